"""How many pairs a question takes, and what a number of pairs can find."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.stats import chi2

from agent_ab.stats.eprocess import Side, Tally, log_capital, log_factors, tally

POWER = 0.80
FAR = 100_000
"""Beyond so many pairs the answer is: out of reach."""
FAR_TAIL = 7.5
"""From this noncentrality on, the far tail of a two-sided test is left out."""


def pairs_for_noninferiority(margin: float, sd: float, alpha: float = 0.05, power: float = POWER) -> int | None:
    """Return the pairs of a one-sided t test against a loss of `margin`, nothing differing in truth.

    None without variation, and where the answer is out of reach.
    """
    return _least_pairs(margin / sd, alpha, power, "larger") if sd > 0 else None


def pairs_for_difference(effect: float, sd: float, alpha: float = 0.05, power: float = POWER) -> int | None:
    """Return the pairs of a two-sided t test that finds a mean difference of `effect`; None as above."""
    return _least_pairs(effect / sd, alpha, power, "two-sided") if sd > 0 else None


def power_of(n: int, effect: float, sd: float, alpha: float = 0.05) -> float:
    """Return the chance that the two-sided t test on `n` pairs finds a mean difference of `effect`."""
    return _t_power(effect / sd, n, alpha, "two-sided")


def smallest_effect(n: int, sd: float, alpha: float = 0.05, power: float = POWER) -> float | None:
    """Return the mean difference that `n` pairs find with the chance `power`; None for fewer than 2, or without sd."""
    if n < 2 or not sd > 0:
        return None
    high = 1.0
    while _t_power(high, n, alpha, "two-sided") < power:
        high *= 2
    return sd * float(optimize.brentq(lambda effect: _t_power(effect, n, alpha, "two-sided") - power, 0.0, high))


def _t_power(effect: float, n: int, alpha: float, alternative: str) -> float:
    from statsmodels.stats.power import TTestPower

    if alternative == "two-sided" and effect * math.sqrt(n) >= FAR_TAIL:
        # The far tail holds nothing any more, and scipy gives nan for it.
        alternative, alpha = "larger", alpha / 2
    found = float(TTestPower().power(effect, n, alpha, alternative=alternative))
    return 1.0 if math.isnan(found) else found


def _least_pairs(effect: float, alpha: float, power: float, alternative: str) -> int | None:
    return least(2, lambda n: _t_power(effect, n, alpha, alternative) >= power)


def least(low: int, reached: Callable[[int], bool]) -> int | None:
    """Return the least number from `low` on that is enough, where more is enough too; None: out of reach."""
    high = low
    while not reached(high):
        if high >= FAR:
            return None
        low, high = high + 1, min(2 * high + 1, FAR)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle + 1, high)
    return high


def sd_interval(sd: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a standard deviation of `n` pairs (chi-squared): what a plan on it is worth."""
    tail = (1 - level) / 2
    low, high = (sd * math.sqrt((n - 1) / float(chi2.ppf(p, n - 1))) for p in (1 - tail, tail))
    return low, high


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the pairs to come are like: differences with their probabilities."""

    values: Sequence[float]
    shares: Sequence[float]


def as_observed(d: Sequence[float]) -> Outlook:
    """Return the outlook that the pairs to come are like those so far."""
    found = tally(d)
    return Outlook(tuple(found.values.tolist()), tuple((found.counts[-1] / len(d)).tolist()))


def no_difference(d: Sequence[float]) -> Outlook:
    """Return the outlook that pairs vary as they did and differ in neither direction."""
    return as_observed([*d, *(-x for x in d)])


def of_sd(sd: float) -> Outlook:
    """Return an outlook without a difference and of this standard deviation: some pairs lose all or gain all."""
    share = min(1.0, sd**2)
    return Outlook((-1.0, 0.0, 1.0), (share / 2, 1 - share, share / 2))


def more_pairs(so_far: Tally, mu0: float, side: Side, alpha: float, outlook: Outlook) -> int | None:
    """Return how many more pairs of `outlook` take the e-value from `so_far` to 1 / `alpha`; None: out of reach.

    On the typical path: each bet's capital grows at its mean rate.
    """
    now = so_far.last()
    logs = log_factors(now.values, mu0, side)
    state = now.counts[-1] @ logs + now.repeats[-1] @ np.minimum(logs, 0.0)
    growth = np.asarray(outlook.shares) @ log_factors(np.asarray(outlook.values), mu0, side)
    goal = math.log(1 / alpha)

    def reached(pairs: int) -> bool:
        return float(log_capital(state + pairs * growth, side)) >= goal

    return least(0, reached)


def fewest(value: float, mu0: float, side: Side, alpha: float) -> int | None:
    """Return how many differences of `value`, and nothing else, take the e-value to 1 / `alpha`; None: out of reach."""
    return more_pairs(tally([]), mu0, side, alpha, Outlook((value,), (1.0,)))
