"""The pairs that count, and the evidence that they come to at the block ends. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

import numpy as np

from agent_ab.gate.observations import Observation, Side
from agent_ab.gate.policy import Policy
from agent_ab.stats import eprocess, walltime
from agent_ab.stats.eprocess import Ints, Tally
from agent_ab.stats.eprocess import Side as Bet
from agent_ab.verdict.verdict import EValues, PathPoint

T = TypeVar("T")

PATH_POINTS = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """The pairs of whole blocks in their order, each with whether its conversation was seen before."""

    pairs: tuple[Observation, ...]
    repeated: tuple[bool, ...]
    fresh: tuple[Observation, ...]
    """The pairs that count, a repeated conversation once."""
    d: tuple[float, ...]
    """Differences of all `pairs`, candidate minus baseline."""
    solved: tuple[int, ...]
    """Of all `pairs`: +1 when the candidate alone solved the task, -1 when the baseline alone did, else 0."""
    kinds: tuple[Observation, ...]
    """One pair of each kind: task and results are the same in all of its pairs."""
    kind: tuple[int, ...]
    """The kind of each of `pairs`, a place in `kinds`: with many pairs, what follows from the results is worked out once."""

    @property
    def fresh_d(self) -> list[float]:
        """Return the differences of the pairs that count."""
        return self.of_fresh(self.d)

    @property
    def fresh_kind(self) -> Ints:
        """Return the kinds of the pairs that count."""
        return np.asarray(self.of_fresh(self.kind), dtype=np.int64)

    @property
    def alike(self) -> list[tuple[Observation, int]]:
        """Return one pair of each kind with how many of the pairs that count are of it."""
        counts = np.bincount(self.fresh_kind, minlength=len(self.kinds)).tolist()
        return [(o, count) for o, count in zip(self.kinds, counts, strict=True) if count]

    @property
    def ends(self) -> tuple[int, ...]:
        """Return how many pairs there are up to the end of each block."""
        sizes = [len(list(group)) for _, group in groupby(self.pairs, key=lambda o: o.block)]
        return tuple(int(end) for end in np.cumsum(sizes))

    def of_fresh(self, values: Sequence[T]) -> list[T]:
        """Return those of `values`, one a pair, that belong to the pairs that count."""
        return [value for value, again in zip(values, self.repeated, strict=True) if not again]


def sample(pairs: Sequence[Observation], *, every_repeat_counts: bool) -> Sample:
    """Return `pairs`, sorted and of whole blocks, with the repeated conversations marked."""
    marks = [False] * len(pairs) if every_repeat_counts else repeats(pairs)
    fresh = tuple(o for o, again in zip(pairs, marks, strict=True) if not again)
    places: dict[tuple[str, int, int, int, int, int, int], int] = {}
    kinds: list[Observation] = []
    kind: list[int] = []
    for o in pairs:
        left, right = sides(o)
        # Results that come as the same objects, as the database's do, are the same.
        results = left.passed, left.scored, id(left.checks), right.passed, right.scored, id(right.checks)
        place = places.setdefault((o.task, *results), len(kinds))
        if place == len(kinds):
            kinds.append(o)
        kind.append(place)
    differences = [o.difference for o in kinds]
    solved = [right.solved - left.solved for left, right in map(sides, kinds)]
    d, signs = tuple(differences[place] for place in kind), tuple(solved[place] for place in kind)
    return Sample(tuple(pairs), tuple(marks), fresh, d, signs, tuple(kinds), tuple(kind))


def repeats(pairs: Sequence[Observation]) -> list[bool]:
    """Return of each pair whether both models said, word for word, what they said in an earlier one of the same task."""
    seen: set[tuple[str, str, str]] = set()
    marks = []
    for o in pairs:
        left, right = sides(o)
        key = (o.task, left.conversation, right.conversation)
        known = bool(left.conversation and right.conversation)
        marks.append(known and key in seen)
        if known:
            seen.add(key)
    return marks


@dataclass(frozen=True, slots=True)
class Evidence:
    """The tallies that the evidence is read from, and the evidence itself at every block end."""

    differences: Tally
    solved: Tally
    directions: Tally
    times: tuple[walltime.TimePair | None, ...]
    """Both arms' wall times of all pairs; None unless both are known."""
    signs: tuple[int, ...]
    """Of all pairs: 1 where the candidate is known to be the faster one, -1 where not, 0: not known."""
    path: tuple[PathPoint, ...]
    now: EValues


def evidence(found: Sample, policy: Policy) -> Evidence:
    """Return the evidence at the block ends, thinned to 200 of them; the last one decides."""
    ends = found.ends
    shown = sorted({round(i) for i in np.linspace(0, len(ends) - 1, min(PATH_POINTS, len(ends)))})
    stops = [ends[i] for i in shown]
    known = tuple(times(o) for o in found.pairs)
    signs = tuple(walltime.direction(pair, policy.max_time_ratio) if pair else 0 for pair in known)
    differences, solved, directions = (
        eprocess.tally(values, found.repeated, stops) for values in (found.d, found.solved, signs)
    )
    # The mean of two e-values is one again, whatever they have to do with each other: no part of alpha is spent.
    by_checks, by_solved = (tally.e(0.0, Bet.HARM) for tally in (differences, solved))
    noninferior = differences.e(-policy.margin, Bet.GAIN)
    noninferior_solved = solved.e(-policy.solved_margin, Bet.GAIN)
    faster = directions.e(0.0, Bet.GAIN)
    every = np.stack([(by_checks + by_solved) / 2, by_checks, by_solved, noninferior, noninferior_solved, faster])
    path = tuple(
        PathPoint(found.pairs[stop - 1].block, stop, *(float(e) for e in every[(0, 3, 4, 5), i]))
        for i, stop in enumerate(stops)
    )
    harm, checks, solved_alone, fit, solved_fit, quick = every[:, -1].tolist()
    now = EValues(harm, checks, solved_alone, fit, solved_fit, quick, 1 / policy.alpha)
    return Evidence(differences, solved, directions, known, signs, path, now)


@dataclass(frozen=True, slots=True)
class TwoSided:
    """Evidence that the arms differ at all, whichever is better."""

    correctness: float
    time: float


def differs(ev: Evidence) -> TwoSided:
    """Return the evidence at the last block end that two arms differ: what an A/A run must not show."""

    def both(tally: Tally) -> float:
        # The same bets in both directions: which arm is called which must not matter here.
        now = tally.last()
        mirrored = replace(now, values=-now.values)
        return eprocess.two_sided(*(float(t.e(0.0, Bet.HARM)[-1]) for t in (now, mirrored)))

    return TwoSided((both(ev.differences) + both(ev.solved)) / 2, both(ev.directions))


def times(o: Observation) -> walltime.TimePair | None:
    """Return both arms' wall times; None unless both are known."""
    left, right = sides(o)
    if left.seconds is None or right.seconds is None:
        return None
    return walltime.TimePair(left.seconds, right.seconds, left.censored, right.censored)


def sides(o: Observation) -> tuple[Side, Side]:
    """Return both arms' attempts of a valid pair, baseline first."""
    assert o.baseline is not None and o.candidate is not None
    return o.baseline, o.candidate
