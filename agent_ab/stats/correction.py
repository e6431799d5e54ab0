"""Many checks, one claim: Holm where it decides, Benjamini and Hochberg where it informs; and pass@k over tasks."""

from collections.abc import Sequence
from math import comb

from scipy.stats import false_discovery_control


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values (Scandinavian Journal of Statistics 6, 1979), in the order given.

    By hand, since statsmodels' multipletests collects garbage at every call: with many pairs in memory that takes longer
    than everything else. A test holds the two equal.
    """
    found, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        found[i] = largest
    return tuple(found)


def benjamini_hochberg(p: Sequence[float]) -> tuple[float, ...]:
    """Return adjusted p-values that bound the false discovery rate (Benjamini and Hochberg 1995)."""
    return tuple(float(value) for value in false_discovery_control(list(p))) if p else ()


def unanimous_flips_needed(checks: int, alpha: float = 0.05) -> int:
    """Return how many flips, all of one direction, one of `checks` needs until Holm's exact McNemar test supports it."""
    flips = 1
    while 2 * 0.5**flips * checks > alpha:
        flips += 1
    return flips


def pass_at_k(n: int, solved: int, k: int) -> float:
    """Return the chance that at least one of `k` attempts solves, estimated from `n` (Chen et al. 2021)."""
    _sane(n, solved, k)
    return 1 - comb(n - solved, k) / comb(n, k)


def pass_all_k(n: int, solved: int, k: int) -> float:
    """Return the chance that all of `k` attempts solve, pass^k (Yao et al. 2024, tau-bench)."""
    _sane(n, solved, k)
    return comb(solved, k) / comb(n, k)


def _sane(n: int, solved: int, k: int) -> None:
    if not 0 <= solved <= n or not 1 <= k <= n:
        raise ValueError(f"k={k} of n={n} attempts, {solved} solved: not possible")
