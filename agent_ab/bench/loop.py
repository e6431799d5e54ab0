"""Every method plays the same requests in every round, each time on a fresh server, there and back again (ABBA).

A method is measured only when its canary has proven it: a draft that does not fit, is of another kind or is silently
ignored makes the method "not applied", with the server's own reason; it is never measured as a method without gain.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from agent_ab import machine
from agent_ab.bench import stats
from agent_ab.bench.client import Client
from agent_ab.bench.methods import Method
from agent_ab.bench.result import Plan, Result, Standing
from agent_ab.bench.stats import Reply
from agent_ab.config import ArmSettings, Speculation
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Arm, Event, Json, Observer, Step, Task
from agent_ab.models import drafts, models
from agent_ab.pair.speculation import BASELINE
from agent_ab.requests import Recorded, pinned
from agent_ab.server import serving
from agent_ab.server.serving import Address, ModelServer

REPLIES = "replies.jsonl"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A method with what it needs."""

    method: Method
    settings: ArmSettings
    engine: serving.AnyEngine
    model: models.Model


@dataclass(slots=True)
class _Bench:
    plan: Plan
    folder: Path
    observer: Observer
    entrants: dict[str, Entrant] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)

    @property
    def contested(self) -> bool:
        """Return whether a method is left to compare with the baseline."""
        return any(name != BASELINE and not standing.not_applied for name, standing in self.standings.items())


def play(plan: Plan, task: Task | None, folder: Path, observer: Observer) -> Result:
    """Play all rounds and return what was measured; evidence goes to `folder`.

    Raises UserError when the baseline cannot be started as asked, ApparatusError when it breaks.
    """
    bench = _Bench(plan, folder, observer)
    _prepare(bench, task)
    (folder / "plan.json").write_text(json.dumps(plan.as_json(), indent=1) + "\n", encoding="utf-8")
    begin, round_ = time.monotonic(), 0
    while bench.contested and stats.goes_on(round_, plan.rounds, time.monotonic() - begin, plan.limit_s):
        for name in stats.order([method.name for method in plan.methods], round_):
            if not bench.standings[name].not_applied:
                _live(bench, name, round_)
        round_ += 1
    base = bench.entrants[BASELINE]
    facts = {
        "engine": serving.describe(base.engine),
        "engine_sha256": base.engine.sha256,
        "model": base.model.path.name,
        "model_sha256": base.model.sha256,
        "machine": machine.identity(),
    }
    return Result(plan, tuple(bench.replies), bench.standings, facts, round_)


def _prepare(bench: _Bench, task: Task | None) -> None:
    """Find or make engine, model and drafts; a method that cannot run here is not applied, for the reason given."""
    plan = bench.plan
    shared = plan.profile.arm(Arm.BASELINE)
    if shared.server.engine == "attached":
        raise UserError("server.engine: a bench starts each method's server itself; it cannot with an attached one")
    found = serving.find(shared.server, bench.observer)
    for method in plan.methods:
        standing = bench.standings[method.name] = Standing(method)
        speculation = method.speculation
        settings = shared.model_copy(update={"server": shared.server.model_copy(update={"speculation": speculation})})
        try:
            model = serving.model(settings, task, bench.observer)
            serving.require(found, settings, model)
        except UserError as error:
            if method.name == BASELINE:
                raise
            standing.not_applied = str(error)
            continue
        bench.entrants[method.name] = Entrant(method, settings, found, model)
        if shared.model.source == "scripted" and shared.server.engine == "llama-server":
            standing.expected = _expected(model, speculation, plan.requests)


def _expected(target: models.Model, speculation: Speculation, played: tuple[Recorded, ...]) -> float | None:
    """Return the acceptance that the script's own replies must show, when nothing but whole replies is played."""
    kind = speculation.type
    generated = speculation.draft is not None and speculation.draft.source == "generated"
    numbers = [r.id.removeprefix("reply-") for r in played]
    if not (generated or kind == "draft-mtp") or not all(number.isdigit() for number in numbers):
        return None
    acceptance = speculation.draft.acceptance if speculation.draft else 1.0
    parts = drafts.expected(target.path, drafts.Wanted(kind, speculation.n_max or 3, acceptance))
    return drafts.total([parts[int(number)] for number in numbers]).acceptance


def _live(bench: _Bench, name: str, round_: int) -> None:
    """Play all requests on one fresh server; a method that breaks is out, the baseline's end is everybody's."""
    entrant, standing = bench.entrants[name], bench.standings[name]
    log = bench.folder / f"{round_}-{name}.log"
    replies: list[Reply] = []
    watch = machine.Watch()
    try:
        with _serving(bench, entrant, log, round_) as (running, at), watch.serving(running.pid):
            proof = running.prove()
            if not proof.speculation_proven:
                raise ApparatusError(Step.SERVER, proof.proof)
            standing.proof = proof.proof
            with Client(at.url, at.key) as client:
                for number, recorded in enumerate(bench.plan.requests, 1):
                    bench.observer(Event(None, None, _words(bench, name, round_, number)))
                    replies.append(_ask(bench, client, running, recorded, entrant, round_))
                    watch.look()
        _remember_memory(standing, watch.record())
    except ApparatusError as error:
        if name == BASELINE:
            raise
        standing.not_applied = str(error)
        return
    bench.replies += replies
    with (bench.folder / REPLIES).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(reply)) + "\n" for reply in replies)
    never = stats.never_accepted(reply for reply in bench.replies if reply.method == name)
    # Forced rates are a control that accepts what it is told to.
    if never and entrant.method.speculation.synth_rates is None:
        standing.not_applied = never


@contextmanager
def _serving(bench: _Bench, entrant: Entrant, log: Path, round_: int) -> Iterator[tuple[ModelServer, Address]]:
    at = serving.address(entrant.engine)
    parts = (entrant.engine, entrant.settings, entrant.model)
    with serving.started(*parts, at=at, log=log, seed=bench.plan.seed) as running:
        running.wait_ready(_loading(bench, entrant.method.name, round_))
        yield running, at


def _loading(bench: _Bench, name: str, round_: int) -> Callable[[float], None]:
    def tick(elapsed_s: float) -> None:
        bench.observer(Event(None, None, _words(bench, name, round_, 0), elapsed_s=elapsed_s))

    return tick


def _ask(
    bench: _Bench, client: Client, running: ModelServer, recorded: Recorded, entrant: Entrant, round_: int
) -> Reply:
    plan, name = bench.plan, entrant.method.name
    seed = int.from_bytes(hashlib.sha256(f"{plan.seed}/{recorded.id}".encode()).digest()[:4]) % (2**32 - 1)
    body = serving.pins(entrant.engine).renamed(pinned(recorded.body, plan.profile.sampling, seed))
    body["max_tokens"] = min(plan.tokens, int(body.get("max_tokens") or plan.tokens))
    try:
        return client.play(recorded, body, name, round_)
    except (httpx.HTTPError, ValueError) as error:
        running.check_alive(f"while it answered {recorded.id}", patience_s=1.0)
        log = bench.folder / f"{round_}-{name}.log"
        raise ApparatusError(Step.SERVER, f"no answer to {recorded.id}: {error}", log) from None


def _remember_memory(standing: Standing, record: Json) -> None:
    """Keep the greatest memory seen: of the process, and what GPUs held beyond what they held before it started."""
    peak = record["peak"]
    rss = peak.get("server_rss_mib")
    if rss is not None:
        standing.rss_mib = max(standing.rss_mib or 0.0, float(rss))
    grown = [
        peak[f"gpu{index}_memory_mib"] - gpu["memory_mib"]
        for index, gpu in enumerate(record["start"]["gpus"])
        if peak.get(f"gpu{index}_memory_mib") is not None and gpu["memory_mib"] is not None
    ]
    if grown:
        standing.vram_mib = max(standing.vram_mib or 0.0, float(sum(grown)))


def _words(bench: _Bench, name: str, round_: int, request: int) -> str:
    what = f"request {request} of {len(bench.plan.requests)}" if request else "loading"
    return f"round {round_ + 1} of {bench.plan.rounds}, {name}: {what}"
