"""Start, prove, watch and stop one vLLM server. command.py has its command line, proof.py judges what it shows."""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent_ab import process
from agent_ab.config import ArmSettings
from agent_ab.engine.engine import cache_dir
from agent_ab.errors import ApparatusError
from agent_ab.model import Drafting, Json, ServerFacts, Step
from agent_ab.models.models import Model
from agent_ab.server import counters, tokens
from agent_ab.server import watch as server_watch
from agent_ab.server.counters import Counters
from agent_ab.server.own import OwnServer, running
from agent_ab.server.proof import CANARY, CANARY_SEED, CANARY_TOKENS
from agent_ab.vllm import command as vllm_command
from agent_ab.vllm import model as vllm_model
from agent_ab.vllm import proof
from agent_ab.vllm.command import ALIAS, Command
from agent_ab.vllm.engine import Vllm
from agent_ab.vllm.proof import Asked, Seen

STOP_PATIENCE_S = (30.0, 10.0)
"""TERM, and TERM again: 7 s were seen for a tiny model on a busy machine."""
ANSWER_S, GENERATE_S = 60.0, 600.0
SETTLE_S = 2.0
"""Longest wait for the access log to show a request that is over."""
DYING_S = 15.0
"""How long its first process may outlive the engine that broke under it."""
WHAT = "vLLM"


@dataclass(frozen=True, slots=True)
class _Started:
    """What a server was started with."""

    engine: Vllm
    settings: ArmSettings
    model: Model
    command: Command
    environment: Mapping[str, str]
    """Without secrets."""


class VllmServer(OwnServer):
    """A running vLLM of one attempt."""

    WHAT = WHAT

    def __init__(self, asked: _Started, child: process.Child, port: int, key: str, log: Path) -> None:
        """Wrap `child`; use `started`, which makes the child and stops it."""
        super().__init__(child, port, key, log, asked.settings.server.load_stall_s)
        self._asked = asked
        self._before = Counters()
        self._own_requests = 0

    def prove(self) -> ServerFacts:
        """Return the proof of who serves, that nothing is cached and how it speculates (two equal canaries).

        Raises ApparatusError when another server answers, or the prefix cache is not shown to be off.
        """
        try:
            seen = self._look()
        except (httpx.HTTPError, ValueError, LookupError) as error:
            self.check_alive("during its canary requests", patience_s=DYING_S)
            raise ApparatusError(Step.SERVER, f"{WHAT} does not answer as one: {error}", self.log) from None
        declared = self._asked.settings.server.speculation.type
        expected = Asked(
            self._asked.engine.version, str(self._asked.model.path), self._asked.settings.server.context, declared
        )
        fault = proof.identity_fault(expected, seen) or proof.caching_fault(seen)
        if fault:
            raise ApparatusError(Step.SERVER, fault, self.log)
        self._before = counters.read(seen.metrics)
        self._own_requests = proof.requests(self._log_text())
        return self._facts(declared, seen)

    def _look(self) -> Seen:
        with self._client(GENERATE_S) as client:
            before = counters.read(_get(client, "/metrics").text)
            canaries = tuple(_canary(client) for _ in range(2))
            return Seen(
                models=_get(client, "/v1/models").json(),
                version=str(_get(client, "/version").json()["version"]),
                metrics=_get(client, "/metrics").text,
                before=before,
                canaries=canaries,
                log=self._log_text(),
            )

    def _facts(self, declared: str, seen: Seen) -> ServerFacts:
        asked = self._asked
        judgement = proof.judge(declared, seen)
        drafted = self._before.since(seen.before)
        template = asked.settings.server.chat_template_file
        return ServerFacts(
            argv=asked.command.comparable,
            environment=asked.environment,
            binary_sha256=asked.engine.sha256,
            build=f"vLLM {seen.version}",
            model_sha256=asked.model.sha256,
            chat_template_sha256=vllm_model.template_sha256(asked.model.path, template),
            props={"n_ctx": asked.settings.server.context, "prefix_caching": False},
            omitted_flags=asked.command.omitted,
            spec_type=declared,
            draft_n=drafted.drafted if drafted else None,
            draft_n_accepted=drafted.accepted if drafted else None,
            slots_speculative=drafted is not None,
            log_line=proof.speculation_line(seen.log),
            speculation_proven=judgement.proven,
            proof=judgement.sentence,
            draft_sha256=asked.model.draft.sha256 if asked.model.draft else "",
        )

    def requests(self) -> int:
        """Return how many requests for a generation the access log shows, ours left out. Call it after `prove`."""
        return proof.requests(self._settled(SETTLE_S)) - self._own_requests

    def drafting(self) -> Drafting | None:
        """Return what was drafted since `prove`; None without speculation. Raises ApparatusError."""
        try:
            with self._client(ANSWER_S) as client:
                return counters.read(_get(client, "/metrics").text).since(self._before)
        except httpx.HTTPError as error:
            self.check_alive(patience_s=DYING_S)
            raise ApparatusError(Step.SERVER, f"cannot read {WHAT}'s counters: {error}", self.log) from None

    def tokenize(self, text: str) -> Json | None:
        """Return the server's own cut of `text`, as llama-server's `/tokenize` answers."""
        with self._client(ANSWER_S) as client:
            return tokens.from_vllm(client, text, ALIAS)

    def render(self, _body: Mapping[str, Json]) -> str | None:
        """Return None: vLLM does not show the prompt that it makes of a chat request."""
        return None

    def settings_of(self, _body: Mapping[str, Json]) -> Json:
        """Return None: vLLM does not echo its sampler."""
        return None

    def usage(self) -> server_watch.Usage | None:
        """Return what all its processes use now, or None when they are gone."""
        return server_watch.usage_of_family(self.child.pid)

    def _explained(self, code: int) -> str:
        return proof.explain_exit(code, self._log_text())


@contextmanager
def started(
    engine: Vllm,
    settings: ArmSettings,
    model: Model,
    *,
    port: int,
    key: str,
    log: Path,
    seed: int = 0,
    patience_s: Sequence[float] = STOP_PATIENCE_S,
) -> Iterator[VllmServer]:
    """Run vLLM for one attempt on 127.0.0.1:`port`, its whole output in `log`; stop it when the block ends.

    The key travels by environment, so that it is in no argv and no file. Raises ApparatusError: the port is taken, or
    processes or port are still there afterwards.
    """
    line = vllm_command.command(engine.binary, engine.optional, settings, model.path, port, seed)
    server_watch.require_free(port)
    with tempfile.TemporaryDirectory(prefix="agent-ab-server-") as home:
        room = vllm_model.read(model.path).kv_bytes(settings.server.context)
        own = vllm_command.Own(key, Path(home), cache_dir() / "vllm" / "compiled", math.ceil(room / 2**30) + 1)
        env = vllm_command.environment(engine.binary, settings.server, own, os.environ)
        asked = _Started(engine, settings, model, line, vllm_command.comparable_environment(env))
        with running(line.argv, env=env, port=port, log=log, name=WHAT, patience_s=patience_s) as child:
            yield VllmServer(asked, child, port, key, log)


def _get(client: httpx.Client, path: str) -> httpx.Response:
    response = client.get(path)
    response.raise_for_status()
    return response


def _canary(client: httpx.Client) -> Json:
    body = {
        "model": ALIAS,
        "messages": [{"role": "user", "content": CANARY}],
        "max_tokens": CANARY_TOKENS,
        "temperature": 0,
        "seed": CANARY_SEED,
    }
    response = client.post("/v1/chat/completions", json=body)
    response.raise_for_status()
    return response.json()
