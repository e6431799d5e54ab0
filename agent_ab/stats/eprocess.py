"""Evidence that may be looked at after every block: betting e-values, and the confidence sequence that they give.

For differences d in [-1, 1] and a bet g in (0, 1), the capital prod(1 + g (X - m) / m), X = (d + 1) / 2, m = (mu0 + 1) / 2,
cannot be expected to grow while the mean of d is at most mu0 (Waudby-Smith and Ramdas, JRSS-B 86, 2024). Averaged over a
grid of bets it is an e-process: it ever reaches 1 / alpha with a probability of at most alpha (Ville 1939). Any weights
that do not depend on the data will do; these were chosen by simulation (docs/statistics.md).

It does not depend on the order of the pairs. It is read at block ends only: for independent pairs with task means m_t,
E prod(1 - g (X_t - m)) = prod(1 - g (m_t - m)) <= (1 - g (mean m_t - m))^n by the inequality of the means, which is at most
1 under the hypothesis when every task is equally often in; within a block it is not.

A repeated conversation is no new evidence: its factor is capped at 1 for every bet. The capped capital is never above the
uncapped one, so that nothing of the above is lost, whatever it is that repeats.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

BETS = 2000
MAX_LOG = 690.0
"""exp() of more overflows; an e-value this large is as good as any."""
EDGE = 1e-9
ROWS = 2048
"""Rows of counts that are worked on at once: bounds the memory."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Side(StrEnum):
    """Which hypothesis the capital is bet against."""

    HARM = "harm"
    """Against `the mean is at least mu0`."""
    GAIN = "gain"
    """Against `the mean is at most mu0`."""


SHAPE = {Side.HARM: (1.5, 2.0), Side.GAIN: (1.0, 0.5)}
"""Of the beta distribution of the bets: small losses and large ones must be found, equal pairs must soon be enough."""
ALL_IN = {Side.HARM: 0.21, Side.GAIN: 0.0}
"""Weight of the bet g = 1: a candidate that breaks all that it is given is rejected after six pairs."""


def log_factors(values: Floats, mu0: float, side: Side, bets: int = BETS) -> Floats:
    """Return what each of `values` multiplies each bet's capital by, as logarithms: one row a value."""
    if not -1 < mu0 < 1:
        raise ValueError(f"mu0 {mu0} is not between -1 and 1")
    x, m = (values + 1) / 2, (mu0 + 1) / 2
    g = np.append((np.arange(bets) + 0.5) / bets, 1.0)
    factors = 1 - np.outer(x - m, g / (1 - m)) if side is Side.HARM else 1 + np.outer(x - m, g / m)
    # At mu0 itself the factor is 1; rounding must not make an identical pair count.
    factors[np.abs(x - m) < 1e-12] = 1.0
    return np.log(np.clip(factors, 1e-300, None))


@functools.cache
def _log_weights(side: Side, bets: int) -> Floats:
    """Return the logarithm of each bet's weight; the last bet is g = 1, all of the capital."""
    a, b = SHAPE[side]
    cells = np.diff(special.betainc(a, b, np.arange(bets + 1) / bets))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.append((1 - ALL_IN[side]) * cells, ALL_IN[side])))


def log_capital(sums: Floats, side: Side) -> Floats:
    """Return the logarithm of the bets' weighted mean capital; `sums` has each bet's log capital in its last axis."""
    parts = sums + _log_weights(side, sums.shape[-1] - 1)
    top = parts.max(axis=-1, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(parts - top).sum(axis=-1)))


@dataclass(frozen=True, slots=True)
class Tally:
    """How often each difference occurs; the order of the pairs is gone, on purpose."""

    values: Floats
    """Sorted, without repetition."""
    counts: Ints
    """Of new evidence: one row a time of looking, each row up to and including its block; one number a value."""
    repeats: Ints
    """Of repeated conversations, in the same shape."""

    def e(self, mu0: float, side: Side, bets: int = BETS) -> Floats:
        """Return the e-value at each time of looking."""
        found = np.empty(len(self.counts))
        for start in range(0, len(self.counts), ROWS):
            rows = slice(start, start + ROWS)
            found[rows] = log_capital(self._rows(rows).log_capitals(mu0, side, bets), side)
        return np.exp(np.minimum(found, MAX_LOG))

    def log_capitals(self, mu0: float, side: Side, bets: int = BETS) -> Floats:
        """Return the logarithm of each bet's capital, one row a time of looking."""
        logs = log_factors(self.values, mu0, side, bets)
        sums = self.counts @ logs
        if self.repeats.any():
            sums = sums + self.repeats @ np.minimum(logs, 0.0)
        return np.asarray(sums)

    def last(self) -> "Tally":
        """Return the tally at the last time of looking alone."""
        return self._rows(slice(-1, None))

    def _rows(self, rows: slice) -> "Tally":
        return Tally(self.values, self.counts[rows], self.repeats[rows])


def tally(d: Sequence[float], repeated: Sequence[bool] | None = None, ends: Sequence[int] | None = None) -> Tally:
    """Return the tally of `d` at each of `ends`, numbers of differences from the start; by default at its end alone.

    `repeated` marks the differences whose conversation was seen before.
    """
    rounded = np.round(np.asarray(d, dtype=float), 12)
    values, where = np.unique(rounded, return_inverse=True)
    again = np.asarray(repeated if repeated is not None else np.zeros(len(rounded)), dtype=bool)
    stops = list(ends) if ends is not None else [len(rounded)]
    counts = np.zeros((len(stops), len(values)), dtype=np.int64)
    repeats = np.zeros_like(counts)
    begin = 0
    for row, stop in enumerate(stops):
        part, marks = where[begin:stop], again[begin:stop]
        counts[row] = np.bincount(part[~marks], minlength=len(values))
        repeats[row] = np.bincount(part[marks], minlength=len(values))
        begin = stop
    return Tally(values, counts.cumsum(axis=0), repeats.cumsum(axis=0))


def e_value(d: Sequence[float], mu0: float, side: Side, bets: int = BETS) -> float:
    """Return the e-value of `d`, all of it new evidence; 1.0 of nothing."""
    return float(tally(d).e(mu0, side, bets)[-1]) if len(d) else 1.0


def two_sided(harm: float, gain: float) -> float:
    """Return the e-value against `no difference`; of signs it is 2^n / ((n + 1) C(n, w))."""
    return (harm + gain) / 2


def bound(found: Tally, side: Side, alpha: float) -> float:
    """Return the one-sided bound of the mean that holds at every block end at once, with probability 1 - `alpha`.

    GAIN bounds it from below, HARM from above: it is the mean against which the e-value is just 1 / `alpha`; e-values are
    monotone in the mean.
    """
    now, goal = found.last(), math.log(1 / alpha)

    def above(mu0: float) -> float:
        return math.log(float(now.e(mu0, side)[-1])) - goal

    floor, ceiling = -1 + EDGE, 1 - EDGE
    strongest, weakest = (floor, ceiling) if side is Side.GAIN else (ceiling, floor)
    # The bet against the far end is the strongest one; where it does not reach the goal, none does.
    if above(strongest) < 0:
        return strongest
    if above(weakest) >= 0:
        return weakest
    return float(optimize.brentq(above, floor, ceiling, xtol=EDGE))


def confidence_sequence(found: Tally, alpha: float) -> tuple[float, float]:
    """Return the interval of the mean that holds at every block end at once, with probability 1 - `alpha`."""
    return bound(found, Side.GAIN, alpha / 2), bound(found, Side.HARM, alpha / 2)
