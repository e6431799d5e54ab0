"""A model server that somebody else started, reached by its URL: asked what it is, believed in nothing that it says.

Any server with OpenAI's `/v1/chat/completions` will do. What nobody proved is listed (attached_proof.py), and the pair is
UNPROVEN for it.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from agent_ab import connection, process
from agent_ab.config import ArmSettings, Server
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Drafting, Json, ServerFacts, Step
from agent_ab.server import attached_proof, counters, tokens
from agent_ab.server.attached_proof import Answers
from agent_ab.server.counters import Counters
from agent_ab.server.proof import CANARY, CANARY_SEED, CANARY_TOKENS

ANSWER_S = 10.0
"""A server that is there answers a small question within this time."""
GENERATE_S = 600.0
LOOK_S = 2.0
"""How often it is looked at while an agent works."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A server by its URL, in the place of an engine of ours."""

    url: str
    """Scheme, host and port."""
    key: str = field(repr=False)
    """The bearer token, or empty."""
    model: str
    """What the server calls its model."""
    program: str
    """What it calls itself, or empty."""
    sha256: str = ""
    """Nobody knows which program it is."""


def find(settings: Server) -> Attached:
    """Ask the server of these settings who it is. Raises UserError that names the key, ApparatusError."""
    parts = urlsplit(settings.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"server.url: {settings.url!r} is no URL of a server; http://127.0.0.1:8000 is one")
    if parts.username or parts.password:
        raise UserError("server.url: holds a password, which would be stored; server.key_variable names a variable")
    if parts.path.rstrip("/") not in ("", "/v1") or parts.query:
        raise UserError(f"server.url: {settings.url}: the API must be at /v1 of its host; name scheme, host and port")
    key = connection.key_from(settings.key_variable, "server.key_variable")
    asked = Attached(f"{parts.scheme}://{parts.netloc}", key, settings.model_name, "")
    with _client(asked, ANSWER_S) as client:
        models = _models(client, asked.url)
        program = attached_proof.program(_ask(client, models))
    name = settings.model_name or (models[0] if len(models) == 1 else "")
    if not name:
        raise UserError(
            f"server.model_name: {asked.url} serves {', '.join(models) or 'no model that it names'}; name one"
        )
    if models and name not in models:
        raise UserError(f"server.model_name: {asked.url} has no {name}; it serves {', '.join(models)}")
    return Attached(asked.url, key, name, program)


def require(settings: ArmSettings) -> None:
    """Refuse settings that an attached server never hears of. Raises UserError that names the first."""
    default = Server()
    known = {"engine", "url", "key_variable", "model_name", "context", "load_stall_s", "speculation"}
    for key in type(settings.server).model_fields:
        if key not in known and getattr(settings.server, key) != getattr(default, key):
            raise UserError(f"server.{key}: an attached server is started by you; set it there, and remove the key")
    for key in type(settings.server.speculation).model_fields:
        if key != "type" and getattr(settings.server.speculation, key) is not None:
            raise UserError(
                f"server.speculation.{key}: of an attached server only the type is compared; remove the key"
            )
    if settings.model != type(settings.model)():
        raise UserError("model: an attached server has loaded its model already; remove the table")


def describe(attached: Attached) -> str:
    """Return the server in one line, for people."""
    return f"{attached.program or 'a server that does not say what it is'} at {attached.url}, model {attached.model}"


class AttachedServer:
    """The server during one attempt; nothing is started and nothing stopped."""

    pid: int | None = None
    """It may run on another machine."""

    def __init__(self, attached: Attached, settings: ArmSettings, log: Path) -> None:
        """Write what it answers to `log`; use `started`."""
        self._attached, self._settings, self._log = attached, settings, log
        self._before = Counters()
        self._looked_at = time.monotonic()

    def wait_ready(self, tick: Callable[[float], None] | None = None) -> None:
        """Wait while it says that it is loading. Raises ApparatusError when nothing answers."""
        begin, limit_s = time.monotonic(), self._settings.server.load_stall_s
        with _client(self._attached, ANSWER_S) as client:
            while _get(client, "/v1/models", self._attached.url).status_code == httpx.codes.SERVICE_UNAVAILABLE:
                elapsed_s = time.monotonic() - begin
                if elapsed_s > limit_s:
                    message = f"{self._attached.url} has not been ready for {limit_s:g} s (server.load_stall_s)"
                    raise ApparatusError(Step.SERVER, message)
                if tick:
                    tick(elapsed_s)
                time.sleep(process.POLL_S)

    def prove(self) -> ServerFacts:
        """Return what it says of itself after one canary request, and what nobody proved. Raises ApparatusError."""
        url, name = self._attached.url, self._attached.model
        with _client(self._attached, GENERATE_S) as client:
            answers = _ask(client, _models(client, url), canary=name)
        self._before = answers.after
        self._log.write_text(json.dumps(asdict(answers), indent=1) + "\n", encoding="utf-8")
        return attached_proof.facts(self._settings.server.speculation.type, url, name, answers)

    def requests(self) -> int | None:
        """Return None: nobody counts what reaches it."""
        return None

    def drafting(self) -> Drafting | None:
        """Return what it says it drafted since `prove`; None when it does not say."""
        with _client(self._attached, ANSWER_S) as client:
            return _counters(client).since(self._before)

    def tokenize(self, text: str) -> Json | None:
        """Return the server's own cut of `text` as llama-server's `/tokenize` answers; None when it has none."""
        with _client(self._attached, ANSWER_S) as client:
            return tokens.from_llama(client, text) or tokens.from_vllm(client, text, self._attached.model)

    def render(self, _body: Json) -> str | None:
        """Return None: nothing depends on what a server of unknown kind shows of its prompts."""
        return None

    def settings_of(self, _body: Json) -> Json:
        """Return None: it does not echo its sampler."""
        return None

    def check_working(self, _waiting: bool) -> None:
        """Do what `check_alive` does: from outside, a server that works cannot be told from one that hangs."""
        self.check_alive()

    def check_alive(self, _when: str = "while serving", *, patience_s: float = 0.0) -> None:
        """Raise ApparatusError when it does not answer any more; asked every LOOK_S seconds at most.

        `patience_s` is for servers of ours: nobody sees this one's process.
        """
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        try:
            with _client(self._attached, ANSWER_S) as client:
                client.get("/v1/models")
        except httpx.ConnectError as error:
            message = f"{self._attached.url} went away while an attempt was played: {error}"
            raise ApparatusError(Step.SERVER, message) from None
        except httpx.HTTPError:
            # It is there, and busy.
            pass


@contextmanager
def started(attached: Attached, settings: ArmSettings, *, log: Path) -> Iterator[AttachedServer]:
    """Give the attached server to one attempt."""
    log.touch()
    yield AttachedServer(attached, settings, log)


def _ask(client: httpx.Client, models: tuple[str, ...], canary: str = "") -> Answers:
    """Ask everything that some server knows; with a model's name, ask it for one small generation as well."""
    before = _counters(client)
    reply = None
    if canary:
        message = {"role": "user", "content": CANARY}
        body = {
            "model": canary,
            "messages": [message],
            "max_tokens": CANARY_TOKENS,
            "temperature": 0,
            "seed": CANARY_SEED,
        }
        response = _post(client, "/v1/chat/completions", body)
        if response.status_code != httpx.codes.OK:
            raise ApparatusError(
                Step.SERVER, f"the canary request failed: HTTP {response.status_code}: {response.text[:200]}"
            )
        reply = response.json()
    return Answers(
        models=models,
        props=_json(client, "/props"),
        slots=_json(client, "/slots"),
        version=_json(client, "/version"),
        canary=reply,
        before=before,
        after=_counters(client),
    )


def _models(client: httpx.Client, url: str) -> tuple[str, ...]:
    response = _get(client, "/v1/models", url)
    try:
        return tuple(str(entry["id"]) for entry in response.json()["data"])
    except (ValueError, LookupError, TypeError):
        raise ApparatusError(Step.SERVER, f"{url}: /v1/models is not answered as OpenAI's API does") from None


def _counters(client: httpx.Client) -> Counters:
    try:
        response = client.get("/metrics")
    except httpx.HTTPError:
        return Counters()
    return counters.read(response.text) if response.status_code == httpx.codes.OK else Counters()


def _get(client: httpx.Client, path: str, url: str) -> httpx.Response:
    """Return the answer to what every server must know. Raises ApparatusError that says what to do."""
    try:
        response = client.get(path)
    except httpx.HTTPError as error:
        message = f"nothing answers at {url} ({error}); start the server, or correct server.url"
        raise ApparatusError(Step.SERVER, message) from None
    status = response.status_code
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        message = f"{url} refuses the key; server.key_variable names the environment variable that holds it"
        raise ApparatusError(Step.SERVER, message)
    if status not in (httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE):
        raise ApparatusError(Step.SERVER, f"{url}{path} answers HTTP {status}: is it an OpenAI-compatible server?")
    return response


def _post(client: httpx.Client, path: str, body: Json) -> httpx.Response:
    try:
        return client.post(path, json=body)
    except httpx.HTTPError as error:
        raise ApparatusError(Step.SERVER, f"{client.base_url}{path} does not answer: {error}") from None


def _json(client: httpx.Client, path: str, body: Json = None) -> Json | None:
    """Return the answer to what only some servers know, or None."""
    try:
        response = client.get(path) if body is None else client.post(path, json=body)
        return response.json() if response.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError):
        return None


def _client(attached: Attached, timeout_s: float) -> httpx.Client:
    return connection.client(attached.url, attached.key, timeout_s)
