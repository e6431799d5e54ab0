"""Start, prove, watch and stop one model server."""

import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from agent_ab import process, server_log, server_proof
from agent_ab.config import ArmSettings
from agent_ab.engine import Engine
from agent_ab.errors import ApparatusError
from agent_ab.model import Json, ServerFacts, Step
from agent_ab.models import Model
from agent_ab.server_command import (
    HOST,
    Command,
    command,
    comparable_environment,
    environment,
    refuse_system_config,
)

__all__ = ["Command", "Server", "Usage", "command", "free_port", "new_key", "started"]

STOP_PATIENCE_S = (10.0, 5.0)
"""TERM, and TERM again: the first hangs while a request is in flight, the second ends the server at once."""
GONE_S = 3.0
CANARY_S = 600.0
TOKENIZE_S = 60.0
"""Time for one short answer; a large model on a slow CPU needs minutes."""
BUSY_SHARE = 0.05
"""Below this share of one core a loading server is idle: answering our own polls takes about a hundredth."""
GROWTH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server's process uses."""

    rss_bytes: int
    cpu_s: float
    """User and system time since it started."""
    threads: int


class Server:
    """A running model server of one attempt."""

    def __init__(self, asked: server_proof.Asked, child: process.Child, port: int, key: str) -> None:
        """Wrap `child`; use `started`, which makes the child and stops it."""
        self.child = child
        self.url = f"http://{HOST}:{port}"
        self.log = asked.log
        self._asked, self._key = asked, key
        self._counter: server_log.RequestCounter | None = None
        self._own_requests = 0

    def wait_ready(self, tick: Callable[[float], None] | None = None) -> None:
        """Wait until the model is loaded, calling `tick` with the elapsed seconds.

        No fixed time limit: raises ApparatusError when the process ends, or when its log, memory and CPU time have
        stood still for `load_stall_s`.
        """
        begin = time.monotonic()
        watch = _StallWatch(self)
        limit_s = self._asked.settings.server.load_stall_s
        with self._client(timeout_s=2.0) as client:
            while True:
                self.check_alive("while loading")
                if _healthy(client):
                    return
                if watch.still_s() >= limit_s:
                    message = f"llama-server hangs in loading: its log, memory and CPU stood still for {limit_s:g} s"
                    raise ApparatusError(Step.SERVER, message, self.log)
                if tick:
                    tick(time.monotonic() - begin)
                time.sleep(process.POLL_S)

    def prove(self) -> ServerFacts:
        """Return the proof of who serves and how it speculates (one canary request). Raises ApparatusError."""
        try:
            with self._client(timeout_s=CANARY_S) as client:
                facts = server_proof.prove(client, self._asked)
        except (httpx.HTTPError, ValueError, LookupError) as error:
            self.child.wait(1.0)
            self.check_alive("during its canary request")
            raise ApparatusError(Step.SERVER, f"llama-server does not answer as one: {error}", self.log) from None
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
        return self._counter.count(self._settled()) - self._own_requests

    def tokenize(self, text: str) -> Json:
        """Return the server's own cut of `text` into tokens, as `/tokenize` answers. Raises ApparatusError."""
        try:
            with self._client(TOKENIZE_S) as client:
                reply = client.post("/tokenize", json={"content": text, "with_pieces": True})
                reply.raise_for_status()
                return reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ApparatusError(Step.SERVER, f"cannot tokenize: {error}", self.log) from None

    def check_alive(self, when: str = "while serving") -> None:
        """Raise ApparatusError with the server's own first error lines when it has ended."""
        code = self.child.exit_code()
        if code is not None:
            why = server_log.explain_exit(code, self._log_text())
            raise ApparatusError(Step.SERVER, f"llama-server ended {when}, {why}", self.log)

    def usage(self) -> Usage | None:
        """Return what the process uses now, or None when it is gone."""
        try:
            handle = psutil.Process(self.child.pid)
            with handle.oneshot():
                times = handle.cpu_times()
                return Usage(handle.memory_info().rss, times.user + times.system, handle.num_threads())
        except psutil.Error:
            return None

    def _client(self, timeout_s: float) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self._key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)

    def _log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _settled(self) -> str:
        """Return the log when it has stood still for a moment: the server writes it a little after the fact."""
        text, deadline = self._log_text(), time.monotonic() + server_proof.LOG_LAG_S
        while time.monotonic() < deadline and self.child.exit_code() is None:
            time.sleep(process.POLL_S)
            before, text = text, self._log_text()
            if before == text:
                break
        return text


class _StallWatch:
    """Tell how long a loading server has shown no sign of work."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._since = time.monotonic()
        self._mark = self._look()

    def _look(self) -> tuple[int, int, float]:
        usage = self._server.usage() or Usage(0, 0.0, 0)
        return self._server.log.stat().st_size, usage.rss_bytes, usage.cpu_s

    def still_s(self) -> float:
        now = time.monotonic()
        (log, rss, cpu), (log_then, rss_then, cpu_then) = self._look(), self._mark
        worked = cpu - cpu_then > max(0.1, BUSY_SHARE * (now - self._since))
        if log != log_then or abs(rss - rss_then) >= GROWTH_BYTES or worked:
            self._since, self._mark = now, (log, rss, cpu)
        return now - self._since


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
    _require_free(port)
    with tempfile.TemporaryDirectory(prefix="agent-ab-server-") as home:
        env = environment(engine, key, Path(home))
        asked = server_proof.Asked(engine, settings, model, line, comparable_environment(env), log)
        child: process.Child | None = None
        try:
            with process.started(line.argv, env=env, log=log, name="llama-server", patience_s=patience_s) as child:
                yield Server(asked, child, port, key)
        except OSError as error:
            if child is not None:
                raise
            raise ApparatusError(Step.SERVER, f"{engine.binary} cannot be started: {error.strerror}", log) from None
        finally:
            if child is not None:
                _require_gone(child, port, log)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def new_key() -> str:
    """Return a fresh server key. Its end is no secret: llama-server logs the last four characters."""
    return secrets.token_hex(24) + "-key"


def _healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        # As the server does: a port of a closed connection may be used again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ApparatusError(Step.SERVER, f"port {port} is taken by another process: {error.strerror}") from None


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    # What is left may be a zombie that a container's first process never reaps.
    return any(_group_of(other.pid) == group and process.exists(other.pid) for other in psutil.process_iter())


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _require_gone(child: process.Child, port: int, log: Path) -> None:
    deadline = time.monotonic() + GONE_S
    while _group_alive(child.pid) or _listening(port):
        if time.monotonic() > deadline:
            what = f"process group {child.pid}" if _group_alive(child.pid) else f"port {port}"
            raise ApparatusError(Step.SERVER, f"{what} of llama-server is still there after it was stopped", log)
        time.sleep(process.POLL_S)
