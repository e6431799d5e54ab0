"""Flips to be looked at one by one, what is there to see of each, and a check that is suspected of chance, run again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from sqlmodel import select

from agent_ab import sandbox, tasks
from agent_ab.config import nearest
from agent_ab.divergence import parting
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Arm, CheckResult, Event, Json, Observer, Pair, PairOutcome
from agent_ab.paths import RunPaths
from agent_ab.review import marks, regrade
from agent_ab.review.marks import Mark, MarkKind
from agent_ab.store import evidence
from agent_ab.store.store import Store
from agent_ab.store.tables import PairRow

RERUNS = 3
"""So often a check that is suspected of chance is run again on each snapshot."""
_RESULTS: TypeAdapter[tuple[CheckResult, ...]] = TypeAdapter(tuple[CheckResult, ...])


@dataclass(frozen=True, slots=True)
class Flipped:
    """One flip with what a person needs to judge it."""

    pair: Pair
    check_id: str
    verdicts: Mapping[Arm, CheckResult]
    """Both verdicts, with their evidence where it is still on the disk."""
    parted: str
    """Where and why the two arms parted, in one sentence."""
    mark: Mark | None
    """The mark that stands."""

    @property
    def broken(self) -> bool:
        """Return whether the candidate lost the check."""
        return self.verdicts[Arm.BASELINE].status == "pass"


def flips(store: Store, run_id: str, runs_dir: Path) -> Iterator[Flipped]:
    """Give every flip of a run's valid pairs, broken ones of each pair first. Raises UserError for an unknown run."""
    standing = {(mark.pair_id, mark.check_id): mark for mark in marks.of_run(store, run_id)}
    for pair_id in flipped_pairs(store, run_id):
        pair = store.load_pair(f"{run_id}/{pair_id}")
        found = [_flipped(pair, flip.check_id, RunPaths(runs_dir / run_id), standing) for flip in pair.flips]
        yield from sorted(found, key=lambda flip: not flip.broken)


def flipped_pairs(store: Store, run_id: str) -> tuple[str, ...]:
    """Return the ids of a run's valid pairs with a flip, block by block. Raises UserError for an unknown run."""
    store.run(run_id)
    valid = (PairRow.run_id == run_id, PairRow.outcome != PairOutcome.VOID)
    with store.session() as session:
        rows = session.exec(select(PairRow.id, PairRow.block, PairRow.flips).where(*valid)).all()
    return tuple(pair_id for pair_id, _, found in sorted(rows, key=lambda row: (row[1], row[0])) if found)


def find(store: Store, run_id: str, pair_id: str, check_id: str, runs_dir: Path) -> Flipped:
    """Return one flip of a run. Raises UserError that names the nearest ones."""
    pairs = list(flipped_pairs(store, run_id))
    if not pairs:
        raise UserError(f"{run_id}: no check flipped in it, there is nothing to mark")
    if pair_id not in pairs:
        raise UserError(f"--pair {pair_id!r}: no pair of {run_id} with a flip{nearest(pair_id, pairs)}")
    pair = store.load_pair(f"{run_id}/{pair_id}")
    checks = [flip.check_id for flip in pair.flips]
    if check_id not in checks:
        raise UserError(f"--check {check_id!r}: did not flip in {pair_id}{nearest(check_id, checks)}")
    standing = {(mark.pair_id, mark.check_id): mark for mark in marks.of_run(store, run_id)}
    return _flipped(pair, check_id, RunPaths(runs_dir / run_id), standing)


def mark(store: Store, flip: Flipped, kind: MarkKind, note: str) -> Mark:
    """Store what a person says of a flip; use `rerun` for a check that is suspected of chance."""
    assert kind is not MarkKind.FLAKY_CHECK
    return marks.add(store, flip.pair.run, Mark(flip.pair.id, flip.check_id, kind, note))


def rerun(store: Store, flip: Flipped, note: str, runs_dir: Path, tasks_dir: Path, observer: Observer) -> Mark:
    """Run the check again on both frozen snapshots, and store the mark with what came of it.

    It is quarantined, for both arms, only when it disagreed with itself on one snapshot: in the reruns, or between them
    and the first verdict when the task is still the one that was played. Raises UserError, ApparatusError.
    """
    pair = flip.pair
    task = tasks.load(pair.task, tasks_dir)
    same_task = store.run(pair.run).plan.get("tasks", {}).get(task.id) == tasks.digest(task)
    paths = RunPaths(runs_dir / pair.run)
    reruns: dict[str, tuple[str, ...]] = {}
    for arm in Arm:
        attempt = pair.attempt(arm)
        settings = regrade.sandbox_of(attempt)
        sandbox.require(settings.kind)
        archive = regrade.snapshot_of(attempt, paths, pair.id)
        verdicts = []
        for turn in range(RERUNS):
            observer(Event(None, None, f"{flip.check_id} on the {arm}'s snapshot, {turn + 1} of {RERUNS}"))
            results = regrade.judge_again(task, archive, settings)
            verdicts += [r.status.value for r in results if r.scored and r.id == flip.check_id]
        if len(verdicts) != RERUNS:
            raise UserError(f"{task.root}: has no check {flip.check_id!r} any more; it cannot be run again")
        reruns[arm.value] = tuple(verdicts)
    seen = {arm.value: (*reruns[arm.value], *((flip.verdicts[arm].status.value,) if same_task else ())) for arm in Arm}
    made = Mark(pair.id, flip.check_id, MarkKind.FLAKY_CHECK, note, "", reruns, marks.disagrees(seen))
    return marks.add(store, pair.run, made)


def data(flip: Flipped) -> Json:
    """Return a flip as JSON-able data."""
    standing = flip.mark
    return {
        "pair": flip.pair.name,
        "task": flip.pair.task,
        "seed": flip.pair.seed,
        "check": flip.check_id,
        "rule": flip.verdicts[Arm.CANDIDATE].rule,
        "baseline": {"status": flip.verdicts[Arm.BASELINE].status, "reason": flip.verdicts[Arm.BASELINE].reason},
        "candidate": {"status": flip.verdicts[Arm.CANDIDATE].status, "reason": flip.verdicts[Arm.CANDIDATE].reason},
        "parted": flip.parted,
        "mark": None
        if standing is None
        else {
            "kind": standing.kind.value,
            "note": standing.note,
            "made_at": standing.made_at,
            "reruns": standing.reruns,
            "quarantined": standing.quarantined,
        },
    }


def _flipped(pair: Pair, check_id: str, paths: RunPaths, standing: Mapping[tuple[str, str], Mark]) -> Flipped:
    verdicts = {}
    for arm in Arm:
        stored = next(c for c in pair.attempt(arm).scored if c.id == check_id)
        verdicts[arm] = next((c for c in _results(paths, pair, arm) if c.scored and c.id == check_id), stored)
    parted = parting.sentence(parting.from_json(pair.divergence).raw) if pair.divergence is not None else ""
    return Flipped(pair, check_id, verdicts, parted, standing.get((pair.id, check_id)))


def _results(paths: RunPaths, pair: Pair, arm: Arm) -> tuple[CheckResult, ...]:
    """Return the verdicts with their evidence; nothing when that is gone, changed or cannot be read."""
    try:
        file = evidence.recorded_file(pair.attempt(arm), paths.attempt(pair.id, arm).checks)
        return _RESULTS.validate_python(evidence.parsed(file))
    except (UserError, ApparatusError, OSError, ValueError, ValidationError):
        return ()
