"""What attempts left behind, judged again by the checks as they are today. The first results stay where they are."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from agent_ab import __version__, checks, sandbox, snapshot, tasks
from agent_ab.config import Sandbox
from agent_ab.errors import UserError
from agent_ab.model import Arm, Attempt, CheckResult, Event, Json, Observer, Outcome, Pair, PairOutcome, RunKind, Task
from agent_ab.pair import pair
from agent_ab.paths import RunPaths
from agent_ab.review.thaw import thawed
from agent_ab.store import evidence
from agent_ab.store.store import Store
from agent_ab.store.tables import RegradeRow

_RESULTS: TypeAdapter[tuple[CheckResult, ...]] = TypeAdapter(tuple[CheckResult, ...])


@dataclass(frozen=True, slots=True)
class Changed:
    """A check whose verdict on one snapshot is another one now."""

    arm: Arm
    check_id: str
    scored: bool
    before: str
    """`pass`, `fail`, or `absent` when there was no such check."""
    after: str
    reason: str
    """What the check says now."""


@dataclass(frozen=True, slots=True)
class Regraded:
    """One pair, judged again."""

    pair: Pair
    """As it is stored."""
    outcome: PairOutcome
    """What it would have come to with the checks of today."""
    changed: tuple[Changed, ...]
    task_changed: bool
    """The task is not the one that was played."""


def regrade(store: Store, run_id: str, runs_dir: Path, tasks_dir: Path, observer: Observer) -> Iterator[Regraded]:
    """Judge every snapshot of a run again, store the results beside the first ones, and give each pair as it is done.

    Pairs with an attempt that broke have nothing to judge and are left out. Raises UserError when a task or the
    evidence is not there, ApparatusError when the evidence is damaged or a box cannot be started.
    """
    record, paths = store.run(run_id), RunPaths(runs_dir / run_id)
    if record.kind == RunKind.IMPORT:
        raise UserError(f"{run_id} is imported: there are no snapshots to judge")
    for state in sorted(store.pair_states(run_id), key=lambda state: (state.block, state.id)):
        stored = store.load_pair(f"{run_id}/{state.id}")
        if all(stored.attempt(arm).outcome is not Outcome.INVALID for arm in Arm):
            task = tasks.load(stored.task, tasks_dir)
            played = record.plan.get("tasks", {}).get(task.id)
            yield _regraded(store, stored, task, paths, played, observer)


def judge_again(task: Task, archive: Path, settings: Sandbox) -> tuple[CheckResult, ...]:
    """Return what the checks and probes of `task` say of a stored snapshot. Raises ApparatusError."""
    with _scratch() as scratch, thawed(archive, scratch / "snapshot") as frozen:
        return checks.run(task, frozen, settings)


def snapshot_of(attempt: Attempt, paths: RunPaths, pair_id: str) -> Path:
    """Return an attempt's stored snapshot, known to be the recorded one. Raises UserError, ApparatusError."""
    return evidence.recorded_file(attempt, paths.attempt(pair_id, attempt.arm).snapshot)


def sandbox_of(attempt: Attempt) -> Sandbox:
    """Return the box that the attempt's checks ran in, as far as this version knows its settings."""
    known = {name: attempt.settings.get(f"sandbox.{name}") for name in Sandbox.model_fields}
    return Sandbox.model_validate({name: value for name, value in known.items() if value is not None})


def _regraded(
    store: Store, stored: Pair, task: Task, paths: RunPaths, played: str | None, observer: Observer
) -> Regraded:
    digest = tasks.digest(task)
    changed: list[Changed] = []
    attempts: dict[Arm, Attempt] = {}
    for arm in Arm:
        attempt = stored.attempt(arm)
        observer(Event(None, None, f"judging {stored.name} {arm} again"))
        settings = sandbox_of(attempt)
        sandbox.require(settings.kind)
        results = judge_again(task, snapshot_of(attempt, paths, stored.id), settings)
        _save(store, stored, arm, digest, results)
        changed += _changes(arm, attempt.checks, results)
        attempts[arm] = replace(attempt, checks=results, outcome=_outcome(results))
    judged = pair.judge(replace(stored, baseline=attempts[Arm.BASELINE], candidate=attempts[Arm.CANDIDATE]))
    return Regraded(stored, judged.outcome, tuple(changed), played is not None and played != digest)


def _outcome(results: tuple[CheckResult, ...]) -> Outcome:
    return Outcome.PASS if all(r.status == "pass" for r in results if r.scored) else Outcome.FAIL


def _changes(arm: Arm, before: tuple[CheckResult, ...], after: tuple[CheckResult, ...]) -> Iterator[Changed]:
    first = {(c.id, c.scored): c for c in before}
    now = {(c.id, c.scored): c for c in after}
    for key in first | now:
        was, is_now = (found[key].status.value if key in found else "absent" for found in (first, now))
        if was != is_now:
            yield Changed(arm, *key, was, is_now, now[key].reason if key in now else "")


def _save(store: Store, stored: Pair, arm: Arm, digest: str, results: tuple[CheckResult, ...]) -> None:
    data: Json = _RESULTS.dump_python(results, mode="json")
    row = RegradeRow(
        run_id=stored.run,
        pair_id=stored.id,
        arm=arm.value,
        made_at=datetime.now(UTC).isoformat(),
        version=__version__,
        task_sha256=digest,
        results=data,
    )
    with store.writing() as session:
        session.add(row)


@contextmanager
def _scratch() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="agent-ab-regrade-"))
    # The box's unprivileged user must be able to pass through, not to list.
    root.chmod(0o711)
    try:
        yield root
    finally:
        snapshot.remove(root)
