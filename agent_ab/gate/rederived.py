"""A run directory alone -> observations: outcomes are worked out again from the evidence, whatever was claimed."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_ab import checks, tasks
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.gate.observations import observe
from agent_ab.gate.observed import Observed, facts
from agent_ab.model import Arm, Event, Json, Observer, Pair, RunKind, RunStatus, Task
from agent_ab.paths import RunPaths
from agent_ab.review.thaw import thawed
from agent_ab.store import evidence
from agent_ab.store.store import RunRecord


@dataclass(frozen=True, slots=True)
class JudgeAgain:
    """How snapshots are judged again: with the judge's own tasks, not with the run's."""

    tasks_dir: Path
    sandbox: Sandbox
    observer: Observer


def records(runs_dir: Path) -> list[RunRecord]:
    """Return the runs whose evidence lies in `runs_dir`, newest first, by their plans. Raises UserError."""
    if not runs_dir.is_dir():
        raise UserError(f"--runs-dir {runs_dir}: no such directory")
    found = [record(RunPaths(path.parent)) for path in runs_dir.glob("*/run.json")]
    return sorted(found, key=lambda run: run.id, reverse=True)


def record(run: RunPaths) -> RunRecord:
    """Return a run as its plan says it, without a database. Raises UserError."""
    try:
        plan = evidence.parsed(run.plan)
        profile = str(plan["profile"].get("name", ""))
        kind = RunKind(plan.get("kind", RunKind.PAIR))
        planned = len(plan.get("grid", {}).get("seeds", ())) or 1
    except (ApparatusError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{run.plan}: is no plan of a run: {error}") from None
    played = [evidence.recorded_pair(run, pair_id).block + 1 for pair_id in evidence.pair_ids(run)]
    return RunRecord(
        id=run.root.name,
        created_at="",
        ended_at=None,
        status=RunStatus.FINISHED,
        note="",
        kind=kind,
        profile=profile,
        version=str(plan.get("version", "")),
        plan=plan,
        plan_sha256="",
        blocks=max([planned, *played]),
        policy=None,
        policy_sha256=plan.get("policy_sha256"),
    )


def rederived(found: RunRecord, runs_dir: Path, again: JudgeAgain | None = None) -> Observed:
    """Return the run's pairs as its evidence has them; where the record claims something else is a fault of the run.

    With `again`, the hidden checks judge every snapshot once more. Raises ApparatusError for damaged evidence.
    """
    run = RunPaths(runs_dir / found.id)
    faults: list[str] = []
    observations = []
    seconds = {}
    for pair in evidence.load_pairs(run):
        faults += evidence.disagreements(evidence.recorded_pair(run, pair.id), pair)
        faults += evidence.against_plan(found.plan, pair)
        if again and pair.valid:
            faults += _judged_again(pair, run, found.plan, again)
        if pair.again:
            continue
        observations.append(observe(pair))
        seconds[pair.id] = pair.baseline.duration_s + pair.candidate.duration_s
    return Observed(facts(found, observations, seconds, faults), tuple(observations))


def _judged_again(pair: Pair, run: RunPaths, plan: Json, again: JudgeAgain) -> Iterator[str]:
    task = tasks.load(pair.task, again.tasks_dir)
    if tasks.digest(task) != plan.get("tasks", {}).get(pair.task):
        yield f"{pair.name}: the task {pair.task} in {again.tasks_dir} is another one than was played"
        return
    for arm in Arm:
        again.observer(Event(arm, None, f"judging {pair.name} again"))
        yield from _compared(pair, arm, task, run.attempt(pair.id, arm).snapshot, again)


def _compared(pair: Pair, arm: Arm, task: Task, archive: Path, again: JudgeAgain) -> Iterator[str]:
    if not archive.is_file():
        raise ApparatusError("evidence", "the snapshot is not there", archive)
    with tempfile.TemporaryDirectory(prefix="agent-ab-") as scratch:
        # The box's unprivileged user must be able to pass through.
        Path(scratch).chmod(0o711)
        with thawed(archive, Path(scratch) / "snapshot") as directory:
            results = {r.id: r.status for r in checks.run(task, directory, again.sandbox) if r.scored}
    for check in pair.attempt(arm).scored:
        if results.get(check.id) is not check.status:
            now = results.get(check.id, "missing")
            yield f"{pair.name} {arm}: {check.id} is recorded as {check.status}, judged again it is {now}"
