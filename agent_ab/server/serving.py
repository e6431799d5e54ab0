"""The seam between an attempt and whatever serves it: llama-server or vLLM, started by us, or a server by its URL.

find -> model -> require            before a run: what is there, and refuse what cannot work
address -> started -> ModelServer   for an attempt: where it will be, and the server itself
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent_ab import interrupts
from agent_ab.config import ArmSettings, Server
from agent_ab.engine import engine
from agent_ab.engine.engine import Engine
from agent_ab.errors import UserError
from agent_ab.model import Drafting, Json, Observer, RanFile, ServerFacts, Task
from agent_ab.models import models
from agent_ab.models.models import Model
from agent_ab.requests import renamed
from agent_ab.server import attached, server
from agent_ab.server.attached import Attached
from agent_ab.server.ran import Planned, look, require_executed
from agent_ab.server.watch import free_port
from agent_ab.vllm import engine as vllm_engine
from agent_ab.vllm import vllm
from agent_ab.vllm.engine import Vllm

AnyEngine = Engine | Vllm | Attached
"""Something that can serve: found before a run, its `sha256` tells two of a kind apart."""


class ModelServer(Protocol):
    """A model server during one attempt."""

    pid: int | None
    """Of its first process; None when it is not ours."""

    def wait_ready(self, tick: Callable[[float], None] | None = None) -> None:
        """Wait until it can be asked, calling `tick` with the elapsed seconds. Raises ApparatusError."""

    def prove(self) -> ServerFacts:
        """Return what was proven of it, and what nobody proved. Raises ApparatusError."""

    def check_alive(self, when: str = "while serving", *, patience_s: float = 0.0) -> None:
        """Raise ApparatusError when it has ended, or ends within `patience_s`: one that fails takes a moment to die."""

    def check_working(self, waiting: bool) -> None:
        """Raise ApparatusError when it has ended, or hangs; `waiting`: a request was passed on that has not ended."""

    def requests(self) -> int | None:
        """Return how many requests for a generation its log shows since `prove`; None: it has none.

        A request can write into a log: it is a remark, and no evidence.
        """

    def drafting(self) -> Drafting | None:
        """Return what it drafted since `prove`, by its own counters; None: it has none."""

    def tokenize(self, text: str) -> Json | None:
        """Return its own cut of `text`, as llama-server's `/tokenize` answers; None: it does not tell."""

    def render(self, body: Mapping[str, Json]) -> str | None:
        """Return the prompt that it makes of a chat request; None: it does not tell."""

    def settings_of(self, body: Mapping[str, Json]) -> Json:
        """Return the sampler's settings that a request gets; None: it does not tell."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an attempt's server is reached."""

    url: str
    """Scheme, host and port."""
    key: str = field(repr=False)
    port: int = 0
    """Of a server that we start."""


@dataclass(frozen=True, slots=True)
class Pins:
    """What the proxy writes into requests, in the server's own words."""

    model: str = ""
    """The model's name, instead of the agent's; empty: ours is known to the server."""
    names: Mapping[str, str] = field(default_factory=dict)
    """How the server calls a sampling key, where it is not llama-server's name; empty: it does not know it."""
    fixed: Mapping[str, Json] = field(default_factory=dict)
    """Keys besides seed and sampling."""

    def renamed(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return a request that was written for llama-server in this server's words."""
        kept = {key: value for key, value in body.items() if key != "cache_prompt"}
        return {**renamed(kept, self.names), **self.fixed, **({"model": self.model} if self.model else {})}


_LLAMA = Pins(fixed={"cache_prompt": False})
_VLLM = Pins(names={"repeat_penalty": "repetition_penalty"})
_OPENAI = Pins(names={"top_k": "", "min_p": "", "repeat_penalty": ""})


def find(settings: Server, observer: Observer) -> AnyEngine:
    """Return what serves these settings: found, built or asked. Raises UserError, ApparatusError."""
    _refuse_strays(settings)
    match settings.engine:
        case "vllm":
            return vllm_engine.find(settings.binary)
        case "attached":
            return attached.find(settings)
        case "llama-server":
            return engine.find(settings.binary, observer)


def _refuse_strays(settings: Server) -> None:
    for key, of in (("url", "attached"), ("key_variable", "attached"), ("model_name", "attached"), ("env", "vllm")):
        if getattr(settings, key) and settings.engine != of:
            raise UserError(f'server.{key}: belongs to server.engine = "{of}", and the engine is {settings.engine}')


def model(settings: ArmSettings, task: Task | None, observer: Observer) -> Model:
    """Return the model that the arm loads, with its draft, as it is on the disk. Raises UserError."""
    match settings.server.engine:
        case "vllm":
            return vllm_engine.model(settings, task, observer)
        case "attached":
            # Whatever it has loaded: nobody saw the file.
            return Model(Path(), "", "unknown", True, "nobody looked", 0)
        case "llama-server":
            resolved = models.resolve(settings.model, task, observer)
            return models.with_draft(resolved, settings.server.speculation, observer)


def require(found: AnyEngine, settings: ArmSettings, loaded: Model) -> None:
    """Refuse an arm that cannot be served as asked. Raises UserError that says why."""
    speculation = settings.server.speculation
    match found:
        case Engine():
            models.require(loaded, speculation)
            engine.require(found, speculation)
        case Attached():
            attached.require(settings)
        case Vllm():
            # Its model is refused with its reason when it is looked at.
            return


def describe(found: AnyEngine) -> str:
    """Return the engine in one line, for people."""
    match found:
        case Engine():
            return engine.describe(found)
        case Vllm():
            return vllm_engine.describe(found)
        case Attached():
            return attached.describe(found)


def address(found: AnyEngine) -> Address:
    """Return where the server of an attempt is, or will be: a free port and a fresh key for one of ours."""
    if isinstance(found, Attached):
        return Address(found.url, found.key)
    port = free_port()
    return Address(f"http://127.0.0.1:{port}", server.new_key(), port)


def ran(found: AnyEngine, loaded: Model, pid: int | None, log: Path) -> tuple[RanFile, ...]:
    """Return the files that a server of ours runs, each known to be as planned; none of a server that is not ours.

    Of vLLM the model's files only: its packages are known by their lists of files. Raises ApparatusError.
    """
    if pid is None:
        return ()
    planned = [_model("model", loaded.files, loaded.sha256)]
    if loaded.draft:
        planned.append(_model("draft model", loaded.draft.files, loaded.draft.sha256))
    if isinstance(found, Engine):
        require_executed(pid, found.binary, log)
        planned.append(Planned("llama-server", engine.files(found), found.sha256, lambda: engine.digest(found)))
    return look(pid, [one for one in planned if one.files], log)


def _model(what: str, files: tuple[Path, ...], sha256: str) -> Planned:
    return Planned(what, files, sha256, lambda: models.digest(list(files), models.ignore))


def pins(found: AnyEngine) -> Pins:
    """Return what the proxy writes into the requests for this server."""
    match found:
        case Engine():
            return _LLAMA
        case Vllm():
            return _VLLM
        case Attached():
            known = {"llama-server": _LLAMA, "vLLM": _VLLM}.get(found.program.partition(" ")[0], _OPENAI)
            return Pins(found.model, known.names, known.fixed)


def started(
    found: AnyEngine, settings: ArmSettings, loaded: Model, *, at: Address, log: Path, seed: int = 0
) -> AbstractContextManager[ModelServer]:
    """Give one attempt its server, which writes its output to `log`; what we started is stopped when the block ends."""
    interrupts.heed()
    match found:
        case Engine():
            return server.started(found, settings, loaded, port=at.port, key=at.key, log=log, seed=seed)
        case Vllm():
            return vllm.started(found, settings, loaded, port=at.port, key=at.key, log=log, seed=seed)
        case Attached():
            return attached.started(found, settings, log=log)
