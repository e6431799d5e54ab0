"""Planned pairs -> attempts -> pair -> saved, one by one."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from agent_ab import (
    __version__,
    aftermath,
    agents,
    checks,
    diff_view,
    divergence,
    engine,
    models,
    parting,
    reply_diff,
    sandbox,
    snapshot,
    tasks,
    workspace,
)
from agent_ab.attempt import AttemptPlan, not_played, run_attempt
from agent_ab.config import ArmSettings, Profile, Sandbox
from agent_ab.errors import UserError
from agent_ab.exchanges import read_log
from agent_ab.model import Arm, Attempt, CheckResult, Event, Json, Observer, Outcome, Pair, PairOutcome, Task
from agent_ab.pair import judge
from agent_ab.paths import RunPaths
from agent_ab.schedule import PlannedPair
from agent_ab.store import Store, pair_to_json

SCRATCH_BYTES = 70
"""Longest temporary directory: a socket of at most 107 bytes lies in a directory below it."""


@dataclass(frozen=True, slots=True)
class ArmParts:
    """One arm's settings with the engine and the model they came to."""

    settings: ArmSettings
    engine: engine.Engine
    model: models.Model


@dataclass(frozen=True, slots=True)
class Bench:
    """What is ready before the first attempt starts."""

    profile: Profile
    task: Task
    arms: dict[Arm, ArmParts]


def prepare(profile: Profile, task_id: str, tasks_dir: Path, observer: Observer) -> Bench:
    """Find or make everything that a pair needs, and refuse here what cannot work. Raises UserError, ApparatusError."""
    task = tasks.load(task_id, tasks_dir)
    workspace.require_git()
    _require_short_scratch()
    arms: dict[Arm, ArmParts] = {}
    for arm in Arm:
        settings = profile.arm(arm)
        sandbox.require(settings.sandbox.kind)
        model = models.resolve(settings.model, task, observer)
        models.require(model, settings.server.speculation)
        found = engine.find(settings.server.binary, observer)
        engine.require(found, settings.server.speculation)
        agents.prepare(settings.agent, settings.sandbox.kind, observer)
        arms[arm] = ArmParts(settings, found, model)
    return Bench(profile, task, arms)


def play_pair(bench: Bench, planned: PlannedPair, runs_dir: Path, store: Store, observer: Observer) -> Pair:
    """Play both arms of one planned pair, judge it, and save it. Returns the pair, VOID included."""
    run = _new_run(runs_dir)
    plan = _plan_json(bench, planned)
    run.plan.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
    store.save_run(run.root.name, bench.profile.name, __version__, plan)
    attempts: dict[Arm, Attempt] = {}
    first: str | None = None
    with _scratch() as scratch:
        for arm in planned.order:
            plan = _attempt_plan(bench, planned, arm, run, scratch, observer)
            if any(attempt.outcome is Outcome.INVALID for attempt in attempts.values()):
                attempts[arm] = not_played(plan)
            else:
                attempts[arm] = run_attempt(plan, first)
                first = _first_digest(attempts[arm])
    pair = judge(
        Pair(
            run=run.root.name,
            id=planned.id,
            task=planned.task,
            seed=planned.seed,
            repeat=planned.repeat,
            first_arm=planned.first_arm,
            variable=bench.profile.variable,
            baseline=attempts[Arm.BASELINE],
            candidate=attempts[Arm.CANDIDATE],
            proof=(),
            outcome=PairOutcome.VOID,
            flips=(),
            findings=(),
        )
    )
    pair = _parted(pair, run)
    run.pair_json(pair.id).write_text(json.dumps(pair_to_json(pair), indent=1) + "\n", encoding="utf-8")
    store.save_pair(pair)
    observer(Event(None, None, "saved"))
    return pair


def _parted(pair: Pair, run: RunPaths) -> Pair:
    """Return `pair` with where and why its arms parted, if both have an exchange log."""
    if pair.baseline.log is None or pair.candidate.log is None:
        return pair
    tokens: dict[str, tuple[reply_diff.Token, ...]] = {}
    for arm in Arm:
        path = run.attempt(pair.id, arm).tokens
        if path.exists():
            replies = json.loads(path.read_text(encoding="utf-8"))
            tokens |= {text: reply_diff.tokens_from_reply(reply) for text, reply in replies.items()}
    found = divergence.between(pair.baseline, pair.candidate, reply_diff.recorded(tokens))
    went_on = aftermath.follow(pair.baseline, pair.candidate, found.raw.common)
    return replace(pair, divergence=parting.to_json(found), aftermath=aftermath.to_json(went_on))


def diff_of(pair: Pair, runs_dir: Path) -> diff_view.PairDiff:
    """Return what `agent-ab diff` shows of a stored pair, its logs read back from the evidence.

    Raises UserError when the pair has nothing to compare, ApparatusError when its evidence is damaged.
    """
    if pair.divergence is None:
        raise UserError(f"{pair.name}: an arm has no exchange log, there is nothing to compare; see `agent-ab show`")
    paths = RunPaths(runs_dir / pair.run)
    logs = {}
    for arm in Arm:
        path = paths.attempt(pair.id, arm).exchanges
        if not path.is_file():
            raise UserError(f"{path}: the evidence is not there; --runs-dir names where it is")
        logs[arm] = read_log(path)
    return diff_view.PairDiff(
        pair,
        logs[Arm.BASELINE],
        logs[Arm.CANDIDATE],
        parting.from_json(pair.divergence),
        aftermath.from_json(pair.aftermath),
    )


def check_workspace(task: Task, directory: Path, settings: Sandbox, observer: Observer) -> tuple[CheckResult, ...]:
    """Judge any directory as if an agent had left it, `.git` and compiled files aside. Raises UserError, ApparatusError."""
    if not directory.is_dir():
        raise UserError(f"--workspace {directory}: no such directory")
    sandbox.require(settings.kind)
    begin = time.monotonic()
    observer(Event(None, None, f"checking {directory}"))
    with _scratch() as scratch:
        snapshot.freeze(directory, scratch / "snapshot", scratch / "snapshot.tar")
        return checks.run(
            task,
            scratch / "snapshot",
            settings,
            tick=lambda _: observer(Event(None, None, f"checking {directory}", elapsed_s=time.monotonic() - begin)),
        )


def _attempt_plan(
    bench: Bench,
    planned: PlannedPair,
    arm: Arm,
    run: RunPaths,
    scratch: Path,
    observer: Observer,
) -> AttemptPlan:
    parts = bench.arms[arm]
    paths = run.attempt(planned.id, arm)
    paths.root.mkdir(parents=True)
    paths.settings.write_text(parts.settings.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return AttemptPlan(
        arm=arm,
        settings=parts.settings,
        task=bench.task,
        seed=planned.seed,
        repeat=planned.repeat,
        position=planned.order.index(arm),
        engine=parts.engine,
        model=parts.model,
        paths=paths,
        scratch=scratch,
        observer=observer,
    )


def _first_digest(attempt: Attempt) -> str | None:
    return attempt.log.exchanges[0].agent_sha256 if attempt.log and attempt.log.exchanges else None


def _plan_json(bench: Bench, planned: PlannedPair) -> Json:
    return {
        "version": __version__,
        "profile": bench.profile.model_dump(mode="json"),
        "pairs": [asdict(planned)],
        "tasks": {bench.task.id: tasks.digest(bench.task)},
        "engines": {arm: parts.engine.sha256 for arm, parts in bench.arms.items()},
        "models": {arm: parts.model.sha256 for arm, parts in bench.arms.items()},
    }


def _new_run(runs_dir: Path) -> RunPaths:
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            root = runs_dir / (f"{stamp}-{attempt}" if attempt else stamp)
            try:
                root.mkdir()
            except FileExistsError:
                continue
            return RunPaths(root)
    except OSError as error:
        raise UserError(f"{runs_dir}: cannot be written: {error.strerror}; choose another with --runs-dir") from error
    raise UserError(f"{runs_dir}: too many runs within one second")


def _require_short_scratch() -> None:
    root = tempfile.gettempdir()
    if len(root.encode()) > SCRATCH_BYTES:
        raise UserError(f"TMPDIR={root}: too long for the path of a unix socket; set a shorter one")


@contextmanager
def _scratch() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="agent-ab-"))
    # The box's unprivileged user must be able to pass through, not to list.
    root.chmod(0o711)
    try:
        yield root
    finally:
        snapshot.remove(root)
