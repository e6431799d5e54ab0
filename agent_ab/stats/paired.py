"""Differences of pairs: their mean with a t interval, the exact sign-flip test, guards for small numbers, clusters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

EXACT_PAIRS = 16
"""Up to so many non-zero differences every sign pattern is enumerated; beyond, signs are drawn."""
DRAWS = 20_000
FEW = 3
"""With fewer non-zero differences than this, a standard deviation says nothing."""


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
    if max(d) == min(d):
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


def sign_flip(d: Sequence[float], rng: np.random.Generator | None = None) -> SignFlip:
    """Return the sign-flip test of `mean = 0` (Fisher 1935): exact up to 16 non-zero differences, else (c+1)/(B+1).

    Zeros keep their sign whatever is flipped, so that only the others count. `rng` draws the signs beyond 16.
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
    # Equal sizes are drawn together: the sum of k random signs is twice a binomial minus k.
    values, counts = np.unique(np.round(sizes, 12), return_counts=True)
    draw = (rng or np.random.default_rng(0)).binomial(counts, 0.5, size=(DRAWS, len(counts)))
    sums = (2 * draw - counts) @ values
    two = int(np.sum(np.abs(sums) >= abs(observed) - slack))
    one = int(np.sum(sums <= observed + slack))
    return SignFlip((two + 1) / (DRAWS + 1), (one + 1) / (DRAWS + 1), exact=False)


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
    """Number of independent checks that would say as much."""


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
    return DesignEffect(effect, checks / effect)


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
