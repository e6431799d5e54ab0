"""Planned pairs -> attempts -> pair -> saved, one by one."""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from agent_ab import __version__, agents, checks, sandbox, snapshot, tasks
from agent_ab.attempt import AttemptPlan, not_played, run_attempt
from agent_ab.config import Sandbox
from agent_ab.divergence import aftermath, divergence, parting, reply_diff, view
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError, UserError
from agent_ab.files import appearing, on_disk, persist
from agent_ab.judge import judgement
from agent_ab.judge import pair as judge_pair
from agent_ab.lossless import lossless
from agent_ab.model import (
    Arm,
    Attempt,
    CheckResult,
    Event,
    Json,
    Observer,
    Outcome,
    Pair,
    PairOutcome,
    RunKind,
    RunStatus,
    Task,
)
from agent_ab.pair.pair import judge
from agent_ab.pair.variable import ANYTHING, first_digest, named
from agent_ab.paths import RunPaths
from agent_ab.schedule import PlannedPair
from agent_ab.server.life import Lives
from agent_ab.store import evidence
from agent_ab.store.store import Store, pair_to_json
from agent_ab.workbench import ArmParts, Bench, prepare

__all__ = ["ArmParts", "Bench", "begin", "check_workspace", "described", "diff_of", "play", "play_pair", "prepare"]


def play_pair(bench: Bench, planned: PlannedPair, runs_dir: Path, store: Store, observer: Observer) -> Pair:
    """Play one pair as a run of its own. Returns the pair, VOID included."""
    plan = {"version": __version__, "profile": bench.profile.model_dump(mode="json"), "pairs": [asdict(planned)]}
    run = begin(runs_dir, store, bench.profile.name, plan | described((bench,)), RunKind.PAIR)
    try:
        pair = play(bench, planned, run, store, observer)
    except BaseException:
        # A finished pair that only could not be saved is taken in by the next start; of anything else nothing stays.
        if not run.pair_json(planned.id).exists():
            with suppress(ApparatusError):
                store.forget_run(run.root.name)
                snapshot.remove(run.root)
        raise
    store.end_run(run.root.name, RunStatus.FINISHED)
    return pair


def begin(
    runs_dir: Path, store: Store, profile: str, plan: Json, kind: RunKind, *, blocks: int = 1, policy: Json = None
) -> RunPaths:
    """Store a run's plan, in the database and beside its evidence, before anything starts. Raises UserError."""
    run = _new_run(runs_dir)
    try:
        run.plan.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{run.plan}: cannot be written: {error.strerror}") from error
    store.save_run(run.root.name, profile, __version__, plan, kind=kind, blocks=blocks, policy=policy)
    return run


def play(
    bench: Bench, planned: PlannedPair, run: RunPaths, store: Store, observer: Observer, lives: Lives | None = None
) -> Pair:
    """Play both arms of one planned pair, judge it, and save it. Returns the pair, VOID included.

    Raises ApparatusError when it cannot be saved; an attempt that breaks only makes the pair VOID.
    """
    attempts: dict[Arm, Attempt] = {}
    first: str | None = None
    with on_disk(run.pair(planned.id)), scratch_directory() as scratch:
        for arm in planned.order:
            plan = attempt_plan(bench, planned, arm, run, scratch, observer)
            plan = replace(plan, life=lives.of(arm) if lives else None)
            if any(attempt.outcome is Outcome.INVALID for attempt in attempts.values()):
                attempts[arm] = not_played(plan)
            else:
                attempts[arm] = run_attempt(plan, first)
                first = first_request(attempts[arm], bench.profile.variable)
    return conclude(bench, planned, run, attempts, store, observer, servers_run=lives is not None)


def conclude(
    bench: Bench,
    planned: PlannedPair,
    run: RunPaths,
    attempts: Mapping[Arm, Attempt],
    store: Store,
    observer: Observer,
    *,
    servers_run: bool = False,
) -> Pair:
    """Judge two attempts as a pair and save it. Raises ApparatusError when it cannot be saved."""
    pair = judge(_unjudged(planned, run.root.name, bench.profile.variable, attempts))
    with on_disk(run.pair(pair.id)):
        seen = _judged(_parted(_legible(pair), run), run, bench, observer, servers_run=servers_run)
        pair = replace(seen, baseline=pair.baseline, candidate=pair.candidate)
        _keep(pair, run)
    store.save_pair(pair)
    observer(Event(None, None, "saved"))
    return pair


def _unjudged(planned: PlannedPair, run_id: str, variable: str, attempts: Mapping[Arm, Attempt]) -> Pair:
    return Pair(
        run=run_id,
        id=planned.id,
        task=planned.task,
        seed=planned.seed,
        repeat=planned.repeat,
        first_arm=planned.first_arm,
        variable=variable,
        baseline=attempts[Arm.BASELINE],
        candidate=attempts[Arm.CANDIDATE],
        proof=(),
        outcome=PairOutcome.VOID,
        flips=(),
        findings=(),
        block=planned.block,
        attempted=planned.attempted,
        again=planned.again,
    )


def _legible(pair: Pair) -> Pair:
    """Return `pair` with those exchanges only that came with their bodies: all, but for enormous logs."""
    arms = [
        replace(a, log=replace(a.log, exchanges=a.log.exchanges[: a.log.bodies])) if a.log else a
        for a in (pair.baseline, pair.candidate)
    ]
    return replace(pair, baseline=arms[0], candidate=arms[1])


def _without_requests(attempt: Attempt) -> Attempt:
    # Every request holds the whole conversation before it; the exchange log has them.
    if attempt.log is None:
        return attempt
    bare = tuple(replace(exchange, request=None) for exchange in attempt.log.exchanges)
    return replace(attempt, log=replace(attempt.log, exchanges=bare))


def _keep(pair: Pair, run: RunPaths) -> None:
    """Have the disk hold the evidence and then the pair's file, before its rows: what is in the database is on the disk."""
    persist(run.pair(pair.id))
    short = replace(pair, baseline=_without_requests(pair.baseline), candidate=_without_requests(pair.candidate))
    with appearing(run.pair_json(pair.id)) as partial:
        partial.write_text(json.dumps(pair_to_json(short), indent=1) + "\n", encoding="utf-8")
        persist(partial)
    persist(run.pair(pair.id))


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
    found = divergence.between(pair.baseline, pair.candidate, reply_diff.recorded(tokens), pair.variable)
    went_on = aftermath.follow(pair.baseline, pair.candidate, found.raw.common)
    return replace(pair, divergence=parting.to_json(found), aftermath=aftermath.to_json(went_on))


def _judged(pair: Pair, run: RunPaths, bench: Bench, observer: Observer, servers_run: bool) -> Pair:
    """Return `pair` with what the independent judge says of its first difference, and with both arms' symptoms."""
    drafts = {arm: lossless.longest_draft(bench.arms[arm].settings.server.speculation) for arm in Arm}
    ggufs = all(isinstance(parts.engine, Engine) for parts in bench.arms.values())
    judge_bench = lossless.judge_bench(bench.arms) if ggufs else None
    found = judge_pair.of_pair(pair, run, judge_bench, drafts, observer, servers_run)
    return replace(pair, judgement=judgement.to_json(found))


def diff_of(pair: Pair, runs_dir: Path) -> view.PairDiff:
    """Return what `agent-ab diff` shows of a stored pair, its logs read back from the evidence.

    Raises UserError when the pair has nothing to compare, ApparatusError when its evidence is damaged.
    """
    if pair.divergence is None:
        raise UserError(f"{pair.name}: an arm has no exchange log, there is nothing to compare; see `agent-ab show`")
    return view.PairDiff(
        pair,
        evidence.recorded_log(pair, Arm.BASELINE, runs_dir),
        evidence.recorded_log(pair, Arm.CANDIDATE, runs_dir),
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
    with scratch_directory() as scratch:
        snapshot.freeze(directory, scratch / "snapshot", scratch / "snapshot.tar")
        return checks.run(
            task,
            scratch / "snapshot",
            settings,
            tick=lambda _: observer(Event(None, None, f"checking {directory}", elapsed_s=time.monotonic() - begin)),
        )


def attempt_plan(
    bench: Bench,
    planned: PlannedPair,
    arm: Arm,
    run: RunPaths,
    scratch: Path,
    observer: Observer,
) -> AttemptPlan:
    """Return the plan of one attempt, its directory made and its settings written."""
    parts = bench.arms[arm]
    paths = run.attempt(planned.id, arm)
    paths.root.mkdir(parents=True)
    paths.settings.write_text(parts.settings.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return AttemptPlan(
        arm=arm,
        settings=parts.settings,
        task=bench.task,
        variable=bench.profile.variable,
        seed=planned.seed,
        repeat=planned.repeat,
        position=planned.order.index(arm),
        engine=parts.engine,
        model=parts.model,
        paths=paths,
        scratch=scratch,
        observer=observer,
    )


def first_request(attempt: Attempt, variable: str) -> str | None:
    """Return what the other arm's first request must be, as the proxy is told it; None: anything."""
    keys = named(variable).request
    if not attempt.log or not attempt.log.exchanges or ANYTHING in keys:
        return None
    first = attempt.log.exchanges[0]
    digest = first_digest(first.request, keys) if keys else first.agent_sha256
    return f"POST {first.path} {digest}"


def described(benches: Iterable[Bench]) -> dict[str, Json]:
    """Return the plan's part on what was found: tasks, engines, models and agents, each by what names it exactly."""
    facts: dict[str, Json] = {"tasks": {}, "engines": {}, "models": {}, "agents": {}}
    for bench in benches:
        facts["tasks"][bench.task.id] = tasks.digest(bench.task)
        for arm, parts in bench.arms.items():
            facts["engines"][arm.value] = parts.engine.sha256
            facts["models"].setdefault(arm.value, {})[bench.task.id] = parts.model.sha256
            facts["agents"][arm.value] = agents.identity(parts.settings.agent)
    return facts


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


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a directory for the workspace that a box's user can pass through; it is gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix="agent-ab-"))
    # The box's unprivileged user must be able to pass through, not to list.
    root.chmod(0o711)
    try:
        yield root
    finally:
        snapshot.remove(root)
