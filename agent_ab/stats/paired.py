"""Differences of pairs: their mean with a t interval, the exact sign-flip test, guards for small numbers, clusters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import stats

EXACT_PAIRS = 16
"""Up to so many non-zero differences every sign pattern is enumerated."""
STEPS = 100_000_000
"""Most additions that the exact distribution of more differences may take; beyond, signs are drawn."""
COARSEST = 2520
"""Greatest common denominator of differences that are counted in units: of every number of checks up to ten."""
DRAWS = 20_000
ALIKE = 1e-12
"""Differences no further apart than this are equal but for rounding."""
FEW = 3
"""With fewer non-zero differences than this, a standard deviation says nothing."""


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """Mean of the differences, with Student's t."""

    n: int
    mean: float
    sd: float | None
    """None for one difference."""
    se: float | None
    t: float | None
    """None when all differences are equal."""
    p: float | None
    """Two-sided."""
    low: float | None
    """Ends of the two-sided interval at the level asked for; None when all differences are equal."""
    high: float | None


def mean_difference(d: Sequence[float], level: float = 0.95) -> MeanDifference:
    """Return the mean of `d` with its t interval (Student 1908). Raises ValueError when `d` is empty."""
    n = len(d)
    if not n:
        raise ValueError("no differences")
    mean = math.fsum(d) / n
    if n == 1:
        return MeanDifference(n, mean, None, None, None, None, None, None)
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in d) / (n - 1))
    se = sd / math.sqrt(n)
    if max(d) - min(d) < ALIKE:
        # An interval of no width would claim to know all that was not played.
        return MeanDifference(n, mean, 0.0, 0.0, None, None, None, None)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * se
    t = mean / se
    return MeanDifference(n, mean, sd, se, t, float(2 * stats.t.sf(abs(t), n - 1)), mean - half, mean + half)


def noninferiority_p(d: Sequence[float], margin: float) -> float | None:
    """Return the one-sided t test's p against `mean(d) <= -margin`; None when the differences do not vary."""
    found = mean_difference(d)
    if not found.se:
        return None
    return float(stats.t.sf((found.mean + margin) / found.se, found.n - 1))


@dataclass(frozen=True, slots=True)
class SignFlip:
    """The sign-flip permutation test."""

    two_sided: float
    one_sided: float
    """Against `the mean is not below 0`."""
    exact: bool
    """False: by simulation, which shows no p below 1 / 20,001."""


def sign_flip(d: Sequence[float], rng: np.random.Generator | None = None) -> SignFlip:
    """Return the sign-flip test of `mean = 0` (Fisher 1935): exact wherever it can be worked out, else (c+1)/(B+1).

    Zeros keep their sign whatever is flipped, so that only the others count. Up to 16 of them are enumerated. More are
    counted in their common unit, a tenth where ten checks judge: all sign patterns that give one sum are one number (the
    polynomial time of Pagano and Tritchler, JASA 78, 1983). Where no unit is coarse enough, `rng` draws the signs.
    """
    sizes = np.abs(np.asarray([x for x in d if x], dtype=float))
    observed = math.fsum(d)
    slack = 1e-9 * max(1.0, float(sizes.sum()))
    if len(sizes) <= EXACT_PAIRS:
        sums = np.zeros(1)
        for size in np.sort(sizes):
            sums = np.concatenate([sums - size, sums + size])
        return SignFlip(
            float(np.mean(np.abs(sums) >= abs(observed) - slack)),
            float(np.mean(sums <= observed + slack)),
            exact=True,
        )
    values, counts = np.unique(np.round(sizes, 12), return_counts=True)
    units = _units(values)
    if units is not None and len(sizes) * int(units @ counts) <= STEPS:
        return _sign_flip_in_units(units, counts, observed * round(units[0] / values[0]))
    # Equal sizes are drawn together: the sum of k random signs is twice a binomial minus k.
    draw = (rng or np.random.default_rng(0)).binomial(counts, 0.5, size=(DRAWS, len(counts)))
    sums = (2 * draw - counts) @ values
    two = int(np.sum(np.abs(sums) >= abs(observed) - slack))
    one = int(np.sum(sums <= observed + slack))
    return SignFlip((two + 1) / (DRAWS + 1), (one + 1) / (DRAWS + 1), exact=False)


def _units(values: Floats) -> Ints | None:
    """Return `values` as multiples of their greatest common unit; None where it is too fine."""
    unit = math.lcm(*(Fraction(value).limit_denominator(COARSEST).denominator for value in values))
    units = np.rint(values * unit)
    if unit > COARSEST or np.abs(units / unit - values).max() > ALIKE:
        return None
    return np.asarray(units, dtype=np.int64)


def _sign_flip_in_units(units: Ints, counts: Ints, observed: float) -> SignFlip:
    """Return the exact test of sizes that are multiples of a unit, each so often; `observed` is their sum as it is."""
    # Chances of each sum of those that keep a plus sign; what `k` equal ones add is binomial.
    sums = np.ones(1)
    for unit, count in zip(units.tolist(), counts.tolist(), strict=True):
        wider = np.zeros(len(sums) + unit * count)
        for k, chance in enumerate(stats.binom.pmf(np.arange(count + 1), count, 0.5)):
            wider[unit * k : unit * k + len(sums)] += chance * sums
        sums = wider
    total, at = len(sums) - 1, round(observed)
    # A sum of signed sizes is twice that of the positive ones minus the total; it falls as it rises, symmetrically.
    beyond = math.fsum(sums[(total + abs(at)) // 2 :])
    return SignFlip(min(1.0, 2 * beyond) if at else 1.0, math.fsum(sums[: (total + at) // 2 + 1]), exact=True)


def share_bound(n: int, alpha: float) -> float:
    """Return the upper bound of the share of deviating pairs after `n` that did not deviate: 1 - alpha^(1/n)."""
    return 1 - math.pow(alpha, 1 / n)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A one-sided lower bound of the mean difference."""

    value: float
    guarded: bool
    """The share bound made it, not the t bound."""


def lower_bound(d: Sequence[float], alpha: float) -> LowerBound:
    """Return the one-sided lower bound of the mean at 1 - `alpha`, for a number of pairs fixed beforehand.

    Where fewer than three differences are non-zero, or all are equal, each pair not seen yet may cost everything: the
    bound is the lower one of Student's and of the share of deviating pairs (Clopper and Pearson 1934, with none seen).
    """
    found = mean_difference(d)
    share = share_bound(found.n, alpha)
    if not found.se:
        return LowerBound(found.mean - share * (1 + found.mean), guarded=True)
    t_bound = max(-1.0, found.mean - float(stats.t.ppf(1 - alpha, found.n - 1)) * found.se)
    if sum(1 for x in d if x) < FEW and -share < t_bound:
        return LowerBound(-share, guarded=True)
    return LowerBound(t_bound, guarded=False)


@dataclass(frozen=True, slots=True)
class DesignEffect:
    """How much less than their number the checks of all pairs say."""

    effect: float
    effective: float
    """Number of independent checks that would say as much; never more than there are."""


def design_effect(d: Sequence[float], broken: int, fixed: int, checks: int) -> DesignEffect | None:
    """Return (standard error over pairs / over checks)^2 (Kish 1965); None where nothing differs.

    `broken` and `fixed` of all `checks` differ between the arms.
    """
    if len(d) < 2 or checks < 2:
        return None
    mean = (fixed - broken) / checks
    variance = ((broken + fixed) - checks * mean**2) / (checks - 1)
    pairs = mean_difference(d)
    if not pairs.se or variance <= 0:
        return None
    effect = pairs.se**2 / (variance / checks)
    return DesignEffect(effect, checks / max(1.0, effect))


def clustered_se(d: Sequence[float], clusters: Sequence[str]) -> float:
    """Return the clustered standard error of the mean without a small-sample correction (Miller 2024, eq. 4)."""
    mean = math.fsum(d) / len(d)
    sums: dict[str, list[float]] = {}
    for x, cluster in zip(d, clusters, strict=True):
        sums.setdefault(cluster, []).append(x - mean)
    return math.sqrt(math.fsum(math.fsum(group) ** 2 for group in sums.values())) / len(d)


def means_by(d: Sequence[float], clusters: Sequence[str]) -> dict[str, float]:
    """Return the mean difference of each cluster, by name."""
    groups: dict[str, list[float]] = {}
    for x, cluster in zip(d, clusters, strict=True):
        groups.setdefault(cluster, []).append(x)
    return {name: math.fsum(groups[name]) / len(groups[name]) for name in sorted(groups)}


def order_effect(d: Sequence[float], baseline_first: Sequence[bool]) -> float | None:
    """Return p of d = mean + p * o, o = 1 where the baseline was played first and -1 elsewhere; None without both."""
    first = [x for x, flag in zip(d, baseline_first, strict=True) if flag]
    second = [x for x, flag in zip(d, baseline_first, strict=True) if not flag]
    if not first or not second:
        return None
    return (math.fsum(first) / len(first) - math.fsum(second) / len(second)) / 2
