"""One arm's execution of one task: workspace -> server -> proxy -> agent -> snapshot -> checks."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agent_ab import agents, checks, interrupts, machine, proxy, sandbox, snapshot, tasks, workspace
from agent_ab.config import ArmSettings
from agent_ab.divergence import reply_diff
from agent_ab.errors import ApparatusError
from agent_ab.files import appearing, on_disk
from agent_ab.judge import recall
from agent_ab.model import (
    NOT_PLAYED,
    AgentRun,
    Arm,
    Attempt,
    CheckResult,
    Event,
    Exchange,
    ExchangeLog,
    FileDigest,
    Json,
    Observer,
    Outcome,
    RanFile,
    SandboxKind,
    Step,
    Task,
)
from agent_ab.models.models import Model
from agent_ab.nested import flatten
from agent_ab.pair.variable import named
from agent_ab.paths import AttemptPaths
from agent_ab.server import serving
from agent_ab.server.life import Life
from agent_ab.server.ran import require_same
from agent_ab.server.serving import Address, AnyEngine, ModelServer

Tick = Callable[[float], None]
_RESULTS: TypeAdapter[tuple[CheckResult, ...]] = TypeAdapter(tuple[CheckResult, ...])


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """Everything that one attempt needs; built before either arm is played."""

    arm: Arm
    settings: ArmSettings
    task: Task
    variable: str
    seed: int
    repeat: int
    position: int
    engine: AnyEngine
    model: Model
    paths: AttemptPaths
    scratch: Path
    """Holds the workspace; the same path in both arms, emptied before each."""
    observer: Observer
    life: Life | None = None
    """The server that serves several attempts; None: one of its own."""


def run_attempt(plan: AttemptPlan, expected_first: str | None) -> Attempt:
    """Play one attempt. A broken apparatus makes it INVALID; every other end is the arm's own result.

    `expected_first` is the digest of the other arm's first request, when this arm is played second.
    """
    record = _Record(_blank(plan), machine.Watch())
    begin = time.monotonic()
    try:
        with on_disk(plan.paths.root):
            _play(_watched(plan, record.watch), expected_first, record)
    except ApparatusError as error:
        record.note(outcome=Outcome.INVALID, invalid_reason=str(error), log=_salvage(plan))
    record.note(
        duration_s=time.monotonic() - begin, evidence=_digest_evidence(plan.paths), machine=record.watch.record()
    )
    return record.attempt


def _watched(plan: AttemptPlan, watch: machine.Watch) -> AttemptPlan:
    def observe(event: Event) -> None:
        watch.look()
        plan.observer(event)

    return replace(plan, observer=observe)


def not_played(plan: AttemptPlan) -> Attempt:
    """Return the INVALID attempt of an arm whose partner broke first: its result could not be compared."""
    return replace(_blank(plan), invalid_reason=f"{NOT_PLAYED}: the other arm's attempt is invalid")


class _Record:
    """What is known so far; survives a step that breaks."""

    def __init__(self, attempt: Attempt, watch: machine.Watch) -> None:
        self.attempt = attempt
        self.watch = watch

    def note(self, **facts: Any) -> None:
        self.attempt = replace(self.attempt, **facts)


def _play(plan: AttemptPlan, expected_first: str | None, record: _Record) -> None:
    task, settings, paths, scratch = plan.task, plan.settings, plan.paths, plan.scratch
    with _step(plan, Step.WORKSPACE):
        _empty(scratch)
        tasks.require_same(task)
        start = workspace.checkout(task, scratch / "workspace", scratch / "trusted.git")
        record.note(fixture_commit=start.commit, manifest_sha256=start.manifest_sha256)
    with _serving(plan, expected_first) as (model_server, witness), record.watch.serving(model_server.pid):
        with _step(plan, Step.SERVER) as tick:
            model_server.wait_ready(tick)
            facts = model_server.prove()
            facts = replace(facts, ran=_ran(plan, model_server))
            record.note(server=facts)
            if not facts.speculation_proven:
                raise ApparatusError("server", f"the arm was not applied: {facts.proof}", paths.server_log)
            _refuse_toolless_template(plan, facts.props)
        with _step(plan, Step.PROXY):
            witness.wait_ready()
        with _step(plan, Step.AGENT, settings.agent.time_limit_s) as tick:
            record.note(agent=_run_agent(plan, model_server, witness, tick))
        witness.stop()
        record.note(log=_read_log(plan, model_server), drafting=model_server.drafting())
        _record_tokens(plan, record.attempt.log, model_server)
        require_same(facts.ran, _ran(plan, model_server), paths.server_log)
    with _step(plan, Step.SNAPSHOT):
        frozen = scratch / "snapshot"
        taken = snapshot.freeze(scratch / "workspace", frozen, paths.snapshot)
        patch = snapshot.diff(task, scratch / "trusted.git", start, frozen, taken)
        patch = replace(patch, flags=(*patch.flags, *taken.flags))
        paths.patch.write_text(patch.text, encoding="utf-8", errors="surrogateescape")
        record.note(patch=patch)
    with _step(plan, Step.CHECKS):
        # A check that was edited meanwhile would judge the arms by two measures.
        tasks.require_same(task)
        results = checks.run(task, frozen, settings.sandbox)
        tasks.require_same(task)
        paths.checks.write_bytes(_RESULTS.dump_json(results, indent=1))
        record.note(checks=results)
    record.note(outcome=Outcome.PASS if record.attempt.passed == record.attempt.total else Outcome.FAIL)


@contextmanager
def _serving(plan: AttemptPlan, expected_first: str | None) -> Iterator[tuple[ModelServer, proxy.Proxy]]:
    """Start both at once (mitmdump takes seconds, and so does a model); stop the proxy first.

    The server hangs on SIGTERM while a client is connected (llama.cpp's handler takes a mutex in signal context).
    """
    life = plan.life
    at = life.at(plan.engine) if life else serving.address(plan.engine)
    pins = serving.pins(plan.engine)
    settings = proxy.ProxySettings(
        upstream=at.url,
        key=at.key,
        seed=plan.seed,
        seed_mode=plan.settings.seed_mode,
        sampling=plan.settings.sampling,
        task=plan.task.id,
        repeat=plan.repeat,
        expected_first=expected_first,
        max_tokens=plan.settings.agent.response_budget,
        declared=named(plan.variable).request,
        model=pins.model,
        names=pins.names,
        fixed=pins.fixed,
    )
    socket = plan.scratch / "proxy" / "proxy.sock"
    with (
        _server(plan, at) as model_server,
        proxy.started(settings, log=plan.paths.proxy_log, exchanges=plan.paths.exchanges, socket=socket) as witness,
    ):
        yield model_server, witness


def _server(plan: AttemptPlan, at: Address) -> AbstractContextManager[ModelServer]:
    parts = (plan.engine, plan.settings, plan.model)
    if plan.life:
        return plan.life.lent(*parts, seed=plan.seed, log=plan.paths.server_log)
    return serving.started(*parts, at=at, seed=plan.seed, log=plan.paths.server_log)


def _ran(plan: AttemptPlan, model_server: ModelServer) -> tuple[RanFile, ...]:
    return serving.ran(plan.engine, plan.model, model_server.pid, plan.paths.server_log)


def _run_agent(plan: AttemptPlan, model_server: ModelServer, witness: proxy.Proxy, tick: Tick) -> AgentRun:
    boxed = plan.settings.sandbox.kind is SandboxKind.BWRAP
    box = sandbox.Box(
        settings=plan.settings.sandbox,
        mounts=(sandbox.Mount(plan.scratch / "workspace", "/workspace", writable=True),),
        proxy=witness.socket if boxed else None,
    )
    job = agents.AgentJob(
        settings=plan.settings.agent,
        task=plan.task,
        box=box,
        workspace=plan.scratch / "workspace",
        base_url="http://127.0.0.1:8080/v1" if boxed else witness.url,
        log=plan.paths.agent_log,
        context=plan.settings.server.context,
        requests=lambda: witness.poll().begun,
    )

    def watch(elapsed_s: float) -> None:
        state = witness.poll()
        model_server.check_working(state.begun > state.turns)
        if not state.alive:
            raise ApparatusError("proxy", "the proxy ended while the agent ran", plan.paths.proxy_log)
        if state.identity_refused:
            raise ApparatusError("identity", "the first request differs from the other arm's", plan.paths.exchanges)
        plan.observer(
            Event(
                plan.arm,
                Step.AGENT,
                turns=state.turns,
                tokens=state.tokens,
                elapsed_s=elapsed_s,
                limit_s=plan.settings.agent.time_limit_s,
            )
        )
        tick(elapsed_s)

    ended = agents.run(job, watch)
    watch(ended.duration_s)
    return ended


def _read_log(plan: AttemptPlan, model_server: ModelServer) -> ExchangeLog:
    """Return what passed the proxy, with what the server's log says otherwise.

    That log is no evidence against the proxy's: an error in it can quote a request, and so hold any line.
    """
    log = proxy.read_log(plan.paths.exchanges)
    names = {(_asked_for(exchange), exchange.model) for exchange in log.exchanges if exchange.model}
    if len(names) > len({asked for asked, _ in names}):
        said = ", ".join(sorted({str(name) for _, name in names}))
        raise ApparatusError(Step.SERVER, f"its replies name more than one model: {said}", plan.paths.exchanges)
    seen = model_server.requests()
    # A request whose connection broke before any answer may or may not have been read by the server.
    answered = sum(exchange.status is not None for exchange in log.exchanges)
    if seen is not None and not answered <= seen <= len(log.exchanges):
        remark = f"the server's log shows {seen} requests, the proxy passed on {len(log.exchanges)}"
        return replace(log, remarks=(remark,))
    return log


def _asked_for(exchange: Exchange) -> str:
    return str(exchange.request.get("model")) if isinstance(exchange.request, dict) else ""


def _record_tokens(plan: AttemptPlan, log: ExchangeLog | None, model_server: ModelServer) -> None:
    """Have every reply tokenized and every prompt told while the server still runs: stream chunks are not tokens."""
    cuts = {text: model_server.tokenize(text) for text in reply_diff.texts(log)} if log else {}
    known = {text: cut for text, cut in cuts.items() if cut is not None}
    with appearing(plan.paths.tokens) as partial:
        partial.write_text(json.dumps(known), encoding="utf-8")
    if log:
        with appearing(plan.paths.prompts) as partial:
            partial.write_text(json.dumps(recall.record(log, model_server)), encoding="utf-8")


def _salvage(plan: AttemptPlan) -> ExchangeLog | None:
    """Return what the proxy recorded before the apparatus broke, if it can still be read."""
    try:
        return proxy.read_log(plan.paths.exchanges)
    except ApparatusError:
        return None


def _refuse_toolless_template(plan: AttemptPlan, props: Json) -> None:
    if agents.needs_tools(plan.settings.agent):
        agents.require_tools(props)


@contextmanager
def _step(plan: AttemptPlan, step: Step, limit_s: float | None = None) -> Iterator[Tick]:
    interrupts.heed()
    begin = time.monotonic()
    plan.observer(Event(plan.arm, step, "begins", limit_s=limit_s))

    def tick(_elapsed_s: float) -> None:
        if step is not Step.AGENT:
            plan.observer(Event(plan.arm, step, elapsed_s=time.monotonic() - begin, limit_s=limit_s))

    yield tick
    plan.observer(Event(plan.arm, step, "ends", elapsed_s=time.monotonic() - begin, limit_s=limit_s))


def _blank(plan: AttemptPlan) -> Attempt:
    return Attempt(
        arm=plan.arm,
        outcome=Outcome.INVALID,
        position=plan.position,
        started_at=datetime.now(UTC).isoformat(),
        duration_s=0.0,
        invalid_reason="",
        fixture_commit="",
        manifest_sha256="",
        server=None,
        agent=None,
        log=None,
        patch=None,
        checks=(),
        world=_world(plan),
        evidence=(),
        settings=flatten(plan.settings.model_dump(mode="json")),
        life_position=plan.life.served if plan.life else 0,
    )


def _world(plan: AttemptPlan) -> dict[str, Json]:
    boxed = plan.settings.sandbox.kind is SandboxKind.BWRAP
    return {
        "sandbox": sandbox.describe(plan.settings.sandbox),
        "agent": agents.identity(plan.settings.agent),
        "workspace": "/workspace" if boxed else str(plan.scratch / "workspace"),
    }


def _empty(scratch: Path) -> None:
    for entry in scratch.iterdir():
        snapshot.remove(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _digest_evidence(paths: AttemptPaths) -> tuple[FileDigest, ...]:
    digests = []
    for path in sorted(paths.root.iterdir()):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                digest = sha256()
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
            digests.append(FileDigest(path.name, digest.hexdigest(), path.stat().st_size, 0o644))
    return tuple(digests)
