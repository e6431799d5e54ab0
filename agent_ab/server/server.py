"""Start, prove, watch and stop one model server."""

import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from agent_ab import process
from agent_ab.config import ArmSettings
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError
from agent_ab.model import Drafting, Json, ServerFacts, Step
from agent_ab.models.models import Model
from agent_ab.server import counters, proof
from agent_ab.server import log as server_log
from agent_ab.server.command import (
    Command,
    command,
    comparable_environment,
    environment,
    refuse_system_config,
)
from agent_ab.server.counters import Counters
from agent_ab.server.own import OwnServer, running
from agent_ab.server.watch import Usage, free_port, require_free, usage_of

__all__ = ["Command", "Server", "Usage", "command", "free_port", "new_key", "started"]

STOP_PATIENCE_S = (10.0, 5.0)
"""TERM, and TERM again: the first hangs while a request is in flight, the second ends the server at once."""
CANARY_S = 600.0
TOKENIZE_S = 60.0
"""Time for one short answer; a large model on a slow CPU needs minutes."""


class Server(OwnServer):
    """A running llama-server of one attempt."""

    WHAT = "llama-server"

    def __init__(self, asked: proof.Asked, child: process.Child, port: int, key: str) -> None:
        """Wrap `child`; use `started`, which makes the child and stops it."""
        super().__init__(child, port, key, asked.log, asked.settings.server.load_stall_s)
        self._asked = asked
        self._counter: server_log.RequestCounter | None = None
        self._own_requests = 0
        self._before = Counters()

    def prove(self) -> ServerFacts:
        """Return the proof of who serves and how it speculates (one canary request). Raises ApparatusError."""
        try:
            with self._client(timeout_s=CANARY_S) as client:
                facts = proof.prove(client, self._asked)
        except (httpx.HTTPError, ValueError, LookupError) as error:
            self.check_alive("during its canary request", patience_s=1.0)
            raise ApparatusError(Step.SERVER, f"llama-server does not answer as one: {error}", self.log) from None
        self._before = self._counters()
        text = self._log_text()
        self._counter = server_log.request_counter(text)
        self._own_requests = self._counter.count(text) if self._counter else 0
        return facts

    def requests(self) -> int:
        """Return how many requests for a generation the server's log shows, ours left out. Call it after `prove`.

        Counts what reached the server whatever came of it: answered, refused (400), failed (500), cut by the client.
        Works after the server has stopped, too. Raises ApparatusError for a build whose log names no requests.
        """
        if self._counter is None:
            raise ApparatusError(Step.SERVER, "this llama-server's log does not show its requests", self.log)
        return self._counter.count(self._settled(proof.LOG_LAG_S)) - self._own_requests

    def tokenize(self, text: str) -> Json:
        """Return the server's own cut of `text` into tokens, as `/tokenize` answers. Raises ApparatusError."""
        try:
            with self._client(TOKENIZE_S) as client:
                reply = client.post("/tokenize", json={"content": text, "with_pieces": True})
                reply.raise_for_status()
                return reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ApparatusError(Step.SERVER, f"cannot tokenize: {error}", self.log) from None

    def render(self, body: Mapping[str, Json]) -> str | None:
        """Return the prompt that the server makes of a chat request; None when it refuses or cannot tell."""
        reply = self._told("/apply-template", body)
        return reply.get("prompt") if isinstance(reply.get("prompt"), str) else None

    def settings_of(self, body: Mapping[str, Json]) -> Json:
        """Return the `generation_settings` that a chat request of this shape gets, its grammar included; None: unknown.

        One word is asked and one token generated: neither changes what the settings are.
        """
        asked = {**body, "messages": [{"role": "user", "content": "-"}], "stream": False, "cache_prompt": False}
        reply = self._told("/v1/chat/completions", {**asked, "max_tokens": 0, "verbose": True})
        verbose = reply.get("__verbose")
        return verbose.get("generation_settings") if isinstance(verbose, dict) else None

    def _told(self, path: str, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return the answer to a question that only evidence depends on; empty when there is none."""
        try:
            with self._client(TOKENIZE_S) as client:
                reply = client.post(path, json=body).json()
        except (httpx.HTTPError, ValueError):
            return {}
        return reply if isinstance(reply, dict) else {}

    def usage(self) -> Usage | None:
        """Return what the process uses now, or None when it is gone."""
        return usage_of(self.child.pid)

    def _explained(self, code: int) -> str:
        return server_log.explain_exit(code, self._log_text())

    def drafting(self) -> Drafting | None:
        """Return what the server says it drafted since `prove`; None when this build does not count it."""
        return self._counters().since(self._before)

    def _counters(self) -> Counters:
        try:
            with self._client(TOKENIZE_S) as client:
                reply = client.get("/metrics")
        except httpx.HTTPError:
            return Counters()
        return counters.read(reply.text) if reply.status_code == httpx.codes.OK else Counters()


@contextmanager
def started(
    engine: Engine,
    settings: ArmSettings,
    model: Model,
    *,
    port: int,
    key: str,
    log: Path,
    seed: int = 0,
    patience_s: Sequence[float] = STOP_PATIENCE_S,
) -> Iterator[Server]:
    """Run llama-server for one attempt on 127.0.0.1:`port`, its whole output in `log`; stop it when the block ends.

    The key travels by environment, so that it is in no argv and no file. Close whatever talks to the server before the
    block ends: a request in flight delays its end. Raises ApparatusError: the port is taken, a system-wide
    configuration interferes, or process or port are still there afterwards.
    """
    refuse_system_config()
    line = command(engine, settings, model, port, seed)
    require_free(port)
    with tempfile.TemporaryDirectory(prefix="agent-ab-server-") as home:
        env = environment(engine, key, Path(home))
        asked = proof.Asked(engine, settings, model, line, comparable_environment(env), log)
        with running(line.argv, env=env, port=port, log=log, name=Server.WHAT, patience_s=patience_s) as child:
            yield Server(asked, child, port, key)


def new_key() -> str:
    """Return a fresh server key. Its end is no secret: llama-server logs the last four characters."""
    return secrets.token_hex(24) + "-key"
