"""McNemar's test on pairs, its clustered forms on checks, and bounds of a share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats


@dataclass(frozen=True, slots=True)
class McNemar:
    """Both p-values are two-sided."""

    exact: float
    mid: float
    """Fagerland, Lydersen and Laake 2013: keeps the level, and wastes less than the exact one."""


def mcnemar(broken: int, fixed: int) -> McNemar:
    """Return McNemar's test on units that are independent: pairs, or one check across pairs; never checks of a pair."""
    n = broken + fixed
    if not n:
        return McNemar(1.0, 1.0)
    exact = float(stats.binomtest(min(broken, fixed), n).pvalue)
    mid = exact - float(stats.binom.pmf(min(broken, fixed), n, 0.5))
    if broken == fixed:
        # Both tails meet: the exact p is 1, and half of the middle's probability comes off.
        mid = 1 - float(stats.binom.pmf(broken, n, 0.5)) / 2
    return McNemar(exact, mid)


@dataclass(frozen=True, slots=True)
class Chi2:
    """A chi-squared statistic of one degree of freedom with its p."""

    statistic: float
    p: float


Counts = Sequence[int] | npt.NDArray[np.int64]


def obuchowski(broken: Counts, fixed: Counts) -> Chi2 | None:
    """Return Obuchowski's clustered McNemar test (Statistics in Medicine 17, 1998); None when nothing differs.

    One number of each sequence a cluster: units that only the baseline passed, units that only the candidate passed.
    """
    diff = _differences(broken, fixed)
    k = len(diff)
    return _chi2((k - 1) / k * float(diff.sum()) ** 2, float((diff**2).sum()))


def durkalski(broken: Counts, fixed: Counts, sizes: Counts) -> Chi2 | None:
    """Return Durkalski's clustered McNemar test (Statistics in Medicine 22, 2003); `sizes`: units of each cluster."""
    share = _differences(broken, fixed) / np.asarray(sizes, dtype=float)
    return _chi2(float(share.sum()) ** 2, float((share**2).sum()))


def yang(broken: Counts, fixed: Counts, sizes: Counts) -> Chi2 | None:
    """Return the clustered McNemar test of Yang, Sun and Hardin (Biometrical Journal 52, 2010)."""
    diff, size = _differences(broken, fixed), np.asarray(sizes, dtype=float)
    k = len(diff)
    shift = float(diff.sum()) / float(size.sum())
    spread = 0.5 * float(((diff - size * shift) ** 2 + diff**2).sum())
    return _chi2((k - 1) / k * float(diff.sum()) ** 2, spread)


def share_interval(count: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share (Clopper and Pearson 1934)."""
    found = stats.binomtest(count, n).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)


def _differences(broken: Counts, fixed: Counts) -> npt.NDArray[np.float64]:
    return np.subtract(broken, fixed, dtype=float)


def _chi2(square: float, spread: float) -> Chi2 | None:
    if not spread:
        return None
    statistic = square / spread
    return Chi2(statistic, float(stats.chi2.sf(statistic, 1)))
