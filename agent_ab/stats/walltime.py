"""Wall time of pairs, with times cut at a limit as censored; and solved tasks an hour.

Ratios are compared as logarithms over all pairs, solved or not: a mean of ratios is biased, and to compare the passing
attempts alone is to condition on what the arm may change.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from agent_ab.stats.paired import ALIKE, mean_difference, sign_flip

WALSH_PAIRS = 1500
"""Beyond so many pairs the averages of all couples are too many."""
EXACT_RANKS = 400
"""Up to so many unequal pairs the signed ranks are counted out."""


class TimePair(NamedTuple):
    """Both arms' times of one pair, in seconds; a censored one was cut at its limit."""

    baseline: float
    candidate: float
    baseline_censored: bool = False
    candidate_censored: bool = False

    @property
    def log_ratio(self) -> float:
        """Return log(candidate / baseline), a time at the limit taken as the limit."""
        return math.log(self.candidate / self.baseline)


def direction(pair: TimePair, limit_ratio: float = 1.0) -> int:
    """Return 1 when the candidate is known to take less than `limit_ratio` of the baseline's time, -1 when not, else 0.

    0 is a tie, or both cut: no information. One cut alone is a loser where its bound settles it; where it does not
    (`limit_ratio` other than 1), the candidate gets no benefit of the doubt.
    """
    gap = pair.log_ratio - math.log(limit_ratio)
    if pair.baseline_censored and pair.candidate_censored:
        return 0
    if pair.candidate_censored:
        return -1
    # A censored baseline took longer than it says: the true ratio is below the one that is seen.
    if pair.baseline_censored:
        return 1 if gap < 0 else -1
    return 0 if abs(gap) < ALIKE else (1 if gap < 0 else -1)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of candidate to baseline, with its t interval on the log scale."""

    value: float
    low: float | None
    high: float | None
    t: float | None
    p: float | None


def geometric_ratio(pairs: Sequence[TimePair], level: float = 0.95) -> Ratio:
    """Return the geometric mean of the pairs' ratios. Raises ValueError without pairs."""
    found = mean_difference([pair.log_ratio for pair in pairs], level)
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Ratio(math.exp(found.mean), low, high, found.t, found.p)


def censored_ratio(pairs: Sequence[TimePair]) -> float | None:
    """Return the geometric mean of the ratios with censored times as bounds (Tobit 1958); None where it has no fit.

    A pair with both arms cut says nothing and is left out.
    """
    exact, at_most, at_least = [], [], []
    for pair in pairs:
        if pair.baseline_censored and pair.candidate_censored:
            continue
        if pair.baseline_censored:
            at_most.append(pair.log_ratio)
        elif pair.candidate_censored:
            at_least.append(pair.log_ratio)
        else:
            exact.append(pair.log_ratio)
    if len(set(exact)) < 2:
        return None
    data = stats.CensoredData(uncensored=exact, left=at_most, right=at_least)
    mu, _ = stats.norm.fit(data)
    return math.exp(float(mu))


def hodges_lehmann(pairs: Sequence[TimePair]) -> float | None:
    """Return the exponential of the median Walsh average of the log ratios; None above 1,500 pairs."""
    logs = np.asarray([pair.log_ratio for pair in pairs])
    if not len(logs) or len(logs) > WALSH_PAIRS:
        return None
    upper = np.triu_indices(len(logs))
    return math.exp(float(np.median((logs[upper[0]] + logs[upper[1]]) / 2)))


def wilcoxon_p(pairs: Sequence[TimePair]) -> float | None:
    """Return the two-sided p of Wilcoxon's signed-rank test on the log ratios; None when all are equal.

    Equal times are left out, ties share their middle rank. Exact, as the sign-flip test of the signed ranks; beyond
    what that counts, by scipy's normal approximation.
    """
    logs = np.round([pair.log_ratio for pair in pairs], 12)
    logs = logs[logs != 0]
    if not len(logs):
        return None
    if len(logs) > EXACT_RANKS:
        return float(stats.wilcoxon(logs, method="asymptotic").pvalue)
    return sign_flip((np.sign(logs) * stats.rankdata(np.abs(logs))).tolist()).two_sided


@dataclass(frozen=True, slots=True)
class SolvedPerHour:
    """Solved tasks an hour of agent time, per arm, and the candidate's over the baseline's."""

    baseline: float
    candidate: float
    ratio: float | None
    """None when an arm solved nothing: its logarithm is not defined."""
    low: float | None
    """Ends of the interval; None of one pair, and when all pairs are alike."""
    high: float | None


def solved_per_hour(
    solved: Sequence[tuple[bool, bool]], seconds: Sequence[tuple[float, float]], level: float = 0.95
) -> SolvedPerHour:
    """Return sum(solved) / sum(hours) of (baseline, candidate) and the interval of their ratio by the delta method."""
    y = np.asarray(solved, dtype=float)
    h = np.asarray(seconds, dtype=float) / 3600
    rates = y.sum(axis=0) / h.sum(axis=0)
    if not rates.all():
        return SolvedPerHour(float(rates[0]), float(rates[1]), None, None, None)
    relative = y / y.mean(axis=0) - h / h.mean(axis=0)
    g = relative[:, 1] - relative[:, 0]
    log_ratio = math.log(float(rates[1] / rates[0]))
    low = high = None
    # Where all pairs are alike, an interval of no width would claim to know all that was not played.
    if len(g) > 1 and np.ptp(g) > ALIKE:
        half = float(stats.t.ppf((1 + level) / 2, len(g) - 1)) * float(g.std(ddof=1)) / math.sqrt(len(g))
        low, high = math.exp(log_ratio - half), math.exp(log_ratio + half)
    return SolvedPerHour(float(rates[0]), float(rates[1]), math.exp(log_ratio), low, high)
