"""Tasks x seeds x repeats -> planned pairs with their arm order, in blocks; what is still to be played, and how long. Pure."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_ab.config import SeedOrder, Seeds
from agent_ab.model import Arm, Json, PairOutcome


def digest(plan: Json) -> str:
    """Return the sha256 of JSON data, whatever the order of its keys."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def block_seed(plan_sha256: str, block: int) -> int:
    """Return the seed of a block past the planned ones: settled by the plan, so that nobody chooses it by result."""
    return int.from_bytes(hashlib.sha256(f"{plan_sha256}:{block}".encode()).digest()[:4]) % (2**32 - 1)


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """One pair to be played."""

    task: str
    seed: int
    repeat: int
    first_arm: Arm
    block: int = 0
    """Number of its block within the run."""
    attempted: int = 1
    """Which try this is; the tries before it were VOID."""
    again: bool = False
    """The first pair of a server's life, once more at its end."""

    @property
    def id(self) -> str:
        """Return the pair's id, unique within a run."""
        again = "-again" if self.again else ""
        tries = f".{self.attempted}" if self.attempted > 1 else ""
        return f"{self.task}-{self.seed}-{self.repeat}{again}{tries}"

    @property
    def order(self) -> tuple[Arm, Arm]:
        """Return the arms in their order of play."""
        return (Arm.BASELINE, Arm.CANDIDATE) if self.first_arm is Arm.BASELINE else (Arm.CANDIDATE, Arm.BASELINE)

    @property
    def place(self) -> tuple[str, int, int, bool]:
        """Return what its tries have in common."""
        return (self.task, self.seed, self.repeat, self.again)


@dataclass(frozen=True, slots=True)
class Tried:
    """A finished try of a planned pair."""

    place: tuple[str, int, int, bool]
    attempted: int
    outcome: PairOutcome
    block: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """All that a run plays: blocks of one seed each, over all tasks."""

    tasks: tuple[str, ...]
    seeds: tuple[SeedOrder, ...]
    """Of the planned blocks, in their order."""
    repeats: int
    plan_sha256: str = ""
    """Settles the seeds of the blocks that a run is extended by."""

    def seed(self, block: int) -> SeedOrder:
        """Return a block's seed and arm order; past the planned blocks the orders go on alternating."""
        if block < len(self.seeds):
            return self.seeds[block]
        last = self.seeds[-1].first
        other = Arm.CANDIDATE if last is Arm.BASELINE else Arm.BASELINE
        first = other if (block - len(self.seeds)) % 2 == 0 else last
        return SeedOrder(seed=block_seed(self.plan_sha256, block), first=first)

    def block(self, block: int) -> tuple[PlannedPair, ...]:
        """Return the pairs of a block, task by task."""
        chosen = self.seed(block)
        return tuple(
            PlannedPair(task, chosen.seed, repeat, chosen.first, block)
            for task in self.tasks
            for repeat in range(self.repeats)
        )

    @property
    def block_size(self) -> int:
        """Return how many pairs a block has."""
        return len(self.tasks) * self.repeats


def plan_pair(task: str, seed: int, seeds: Seeds, repeat: int = 0) -> PlannedPair:
    """Return the plan of one pair, its arm order taken from `seeds`."""
    return PlannedPair(task, seed, repeat, seeds.first_arm(seed))


def next_try(planned: PlannedPair, tried: Iterable[Tried], retries: int) -> PlannedPair | None:
    """Return the pair as it is to be played next, or None: it has a valid try, or was VOID `retries` + 1 times."""
    before = [t for t in tried if t.place == planned.place]
    if len(before) > retries or any(t.outcome is not PairOutcome.VOID for t in before):
        return None
    return replace(planned, attempted=max((t.attempted for t in before), default=0) + 1)


def unplayed(grid: Grid, blocks: int, tried: Sequence[Tried], retries: int) -> tuple[PlannedPair, ...]:
    """Return every pair of the first `blocks` blocks that is still to be played, in its order."""
    by_place: dict[tuple[str, int, int, bool], list[Tried]] = {}
    for one in tried:
        by_place.setdefault(one.place, []).append(one)
    due = (
        next_try(planned, by_place.get(planned.place, ()), retries)
        for block in range(blocks)
        for planned in grid.block(block)
    )
    return tuple(planned for planned in due if planned is not None)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is."""

    blocks: int
    blocks_done: int
    pairs: int
    """Planned in all blocks."""
    left: tuple[PlannedPair, ...]
    """Still to be played, as it is to be played next."""
    outcomes: Mapping[PairOutcome, int]
    """Of the pairs that are done; VOID: stayed so. Pairs played again at the end of a server's life are left out."""
    void_tries: int
    """All of them, those included whose pair has a valid try by now."""
    left_s: float | None
    """How long what is left will take, by what was measured; None before anything was."""
    next_block_s: float | None
    """The same for the next block that is not done."""
    stopped: str = ""
    """Why it ended before all was played, or empty."""
    name: str = ""
    """The candidate's, where several runs are played side by side."""

    @property
    def done(self) -> int:
        """Return how many planned pairs have a valid try, or stayed VOID."""
        return self.pairs - len(self.left)

    @property
    def void(self) -> int:
        """Return how many planned pairs stayed VOID."""
        return self.outcomes.get(PairOutcome.VOID, 0)


def standing(
    grid: Grid, blocks: int, tried: Sequence[Tried], retries: int, measured: Mapping[str, Sequence[float]]
) -> Standing:
    """Return how far a run of `blocks` blocks is; `measured` has seconds of finished pairs by task."""
    left = unplayed(grid, blocks, tried, retries)
    counted = [t for t in tried if not t.place[3]]
    valid = {t.place for t in counted if t.outcome is not PairOutcome.VOID}
    void = {t.place for t in counted} - valid - {planned.place for planned in left}
    numbers = {outcome: sum(t.outcome is outcome for t in counted) for outcome in PairOutcome}
    numbers[PairOutcome.VOID] = len(void)
    unfinished = {planned.block for planned in left}
    return Standing(
        blocks=blocks,
        blocks_done=blocks - len(unfinished),
        pairs=blocks * grid.block_size,
        left=left,
        outcomes={outcome: number for outcome, number in numbers.items() if number},
        void_tries=sum(t.outcome is PairOutcome.VOID for t in tried),
        left_s=estimate_s((planned.task for planned in left), measured),
        next_block_s=estimate_s((p.task for p in left if p.block == min(unfinished)), measured),
    )


def together(runs: Sequence[Standing], left_s: float | None) -> Standing:
    """Return how far runs that are played side by side are in all."""
    outcomes = sum((Counter(run.outcomes) for run in runs), Counter[PairOutcome]())
    return replace(
        runs[0],
        blocks_done=min(run.blocks_done for run in runs),
        pairs=sum(run.pairs for run in runs),
        left=tuple(planned for run in runs for planned in run.left),
        outcomes=dict(outcomes),
        void_tries=sum(run.void_tries for run in runs),
        left_s=left_s,
    )


def estimate_s(tasks: Iterable[str], measured: Mapping[str, Sequence[float]]) -> float | None:
    """Return how long pairs of `tasks` will take, by what pairs of the same task, or else of any, have taken.

    None when nothing was measured.
    """
    all_of_them = [seconds for durations in measured.values() for seconds in durations]
    if not all_of_them:
        return None
    overall = sum(all_of_them) / len(all_of_them)
    means = {task: sum(durations) / len(durations) for task, durations in measured.items() if durations}
    return sum(means.get(task, overall) for task in tasks)


def changes(planned: Json, now: Json) -> tuple[str, ...]:
    """Return in what two plans differ, as `key: before -> after`, leaf by leaf."""
    before, after = dict(_leaves(planned)), dict(_leaves(now))
    return tuple(
        f"{key}: {_shown(before.get(key))} -> {_shown(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    )


def _leaves(value: Json, prefix: str = "") -> Iterable[tuple[str, Json]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def _shown(value: Json) -> str:
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
