"""Do both arms draw later tokens from one distribution? Repeated replies, a permutation test, and its power. Pure.

A reply's first token is never drafted, the second is the first that is verified. Every request is a stratum: the arms'
labels are shuffled within it (with the margins of each table fixed, which is a multivariate hypergeometric draw), so
nothing is assumed about the tokens. Power is that of the chi-square test on the same tables (noncentral chi-square,
Cohen 1988, ch. 7): the shift that would be found in 80 of 100 such tests.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALPHA = 0.01
"""Per position; divided by the number of positions (Bonferroni), so that a lossless arm is rarely accused."""
POWER = 0.8
LEAST = 5.0
"""Expected replies a cell at least: rarer tokens are put together."""
SHUFFLES = 4000

Replies = Sequence[Sequence[int]]
"""The tokens of repeated replies to one request, the first `positions` of each."""


@dataclass(frozen=True, slots=True)
class Position:
    """The test at one place of the replies."""

    index: int
    """0: the reply's first token, which is never drafted."""
    tokens: int
    """Different tokens that were seen there, over all requests."""
    statistic: float
    p: float | None
    """None: every reply has the same token there, so there is nothing to compare."""
    distance: float
    """Half the summed differences of the two arms' shares (total variation), averaged over the requests."""
    detectable: float | None
    """Smallest share of replies that would have to switch to the most frequent token to be found with 80 % power."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """What repeated replies say."""

    requests: int
    repeats: int
    """Replies a request and arm."""
    positions: tuple[Position, ...]
    alpha: float
    """Of one position, after the division."""

    @property
    def different(self) -> tuple[Position, ...]:
        """Return the places at which the arms differ, but for the first token, which no verification touches."""
        return tuple(p for p in self.positions if p.index > 0 and p.p is not None and p.p < self.alpha)


def compare(
    baseline: Mapping[str, Replies], candidate: Mapping[str, Replies], positions: int, rng: np.random.Generator
) -> Distribution:
    """Compare both arms' repeated replies to the same requests, token place by token place."""
    names = [name for name in baseline if baseline[name] and candidate.get(name)]
    alpha = ALPHA / max(1, positions - 1)
    found = tuple(_position(names, baseline, candidate, index, alpha, rng) for index in range(positions))
    repeats = min((min(len(baseline[name]), len(candidate[name])) for name in names), default=0)
    return Distribution(len(names), repeats, found, alpha)


def _position(
    names: Sequence[str],
    baseline: Mapping[str, Replies],
    candidate: Mapping[str, Replies],
    index: int,
    alpha: float,
    rng: np.random.Generator,
) -> Position:
    tables = [_cells(baseline[name], candidate[name], index) for name in names]
    tables = [table for table in tables if table.cells > 1]
    seen = len({token for arm in (baseline, candidate) for name in names for token in _at(arm[name], index)})
    if not tables:
        return Position(index, seen, 0.0, None, 0.0, None)
    statistic = float(sum(t.chi_square(t.candidate[np.newaxis])[0] for t in tables))
    shuffled = np.zeros(SHUFFLES)
    for t in tables:
        shuffled += t.chi_square(rng.multivariate_hypergeometric(t.total, t.candidate.sum(), SHUFFLES))
    return Position(
        index=index,
        tokens=seen,
        statistic=statistic,
        p=float((np.count_nonzero(shuffled >= statistic - 1e-9) + 1) / (SHUFFLES + 1)),
        distance=float(np.mean([t.distance for t in tables])),
        detectable=_detectable(tables, alpha),
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """The tokens of one request at one place, counted; rare ones are put together."""

    total: npt.NDArray[np.int64]
    """Replies of both arms, a cell each token."""
    candidate: npt.NDArray[np.int64]
    """Of these the candidate's."""

    @property
    def cells(self) -> int:
        """Return how many cells there are."""
        return self.total.size

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Return each cell's share over both arms."""
        return np.asarray(self.total / self.total.sum(), np.float64)

    @property
    def distance(self) -> float:
        """Return the total variation between the arms."""
        baseline = self.total - self.candidate
        return float(np.abs(baseline / baseline.sum() - self.candidate / self.candidate.sum()).sum() / 2)

    def chi_square(self, candidate: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return Pearson's statistic of each row of counts, were they the candidate's."""
        expected = self.total * (self.candidate.sum() / self.total.sum())
        deviation = (candidate - expected) ** 2
        return np.asarray((deviation / expected + deviation / (self.total - expected)).sum(axis=1))


def _at(replies: Replies, index: int) -> list[int]:
    # A reply that has ended says nothing more, which is an outcome of its own.
    return [reply[index] if index < len(reply) else -1 for reply in replies]


def _cells(baseline: Replies, candidate: Replies, index: int) -> _Cells:
    tokens = _at(baseline, index) + _at(candidate, index)
    smaller = min(len(baseline), len(candidate)) / len(tokens)
    common = [token for token, count in Counter(tokens).most_common() if count * smaller >= LEAST]
    cell = {token: at for at, token in enumerate(common)}
    labels = np.array([cell.get(token, len(common)) for token in tokens], np.intp)
    total = np.bincount(labels, minlength=len(common) + 1)
    theirs = np.bincount(labels[len(baseline) :], minlength=len(common) + 1)
    filled = total > 0
    return _Cells(total[filled].astype(np.int64), theirs[filled].astype(np.int64))


def _detectable(tables: Sequence[_Cells], alpha: float) -> float | None:
    """Return the least share of switched replies that the test finds with `POWER`; None when even all are not enough."""
    from scipy.stats import chi2, ncx2

    freedom = sum(table.cells - 1 for table in tables)
    critical = chi2.isf(alpha, freedom)

    def power(share: float) -> float:
        return float(ncx2.sf(critical, freedom, sum(_noncentrality(table, share) for table in tables)))

    low, high = 0.0, 1.0
    if power(high) < POWER:
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) < POWER else (low, middle)
    return high


def _noncentrality(table: _Cells, share: float) -> float:
    """Return the noncentrality when `share` of the candidate's replies switch to the most frequent token."""
    switched = (1 - share) * table.shares
    switched[int(np.argmax(table.shares))] += share
    candidate = int(table.candidate.sum())
    baseline = int(table.total.sum()) - candidate
    mean = (baseline * table.shares + candidate * switched) / (baseline + candidate)
    parts = baseline * (table.shares - mean) ** 2 + candidate * (switched - mean) ** 2
    return float((parts / mean).sum())


def sentences(found: Distribution) -> list[str]:
    """Return the test in words, a line for each place."""
    lines = []
    for place in found.positions:
        name = "first token (never drafted)" if place.index == 0 else f"token {place.index + 1}"
        if place.p is None:
            lines.append(
                f"{name}: the same token in every reply, so that no test is possible and a fault would be one token"
            )
            continue
        verdict = "differs" if place in found.different else "no difference found"
        detectable = (
            "no shift is large enough to be found with 80 % power"
            if place.detectable is None
            else f"a shift of {100 * place.detectable:.1f} % of the replies to the most frequent token is found with 80 % power"
        )
        lines.append(
            f"{name}: {verdict}: p = {place.p:.4f} (alpha {found.alpha:.4f}), {place.tokens} tokens,"
            f" distance {100 * place.distance:.1f} %; {detectable}"
        )
    return lines
