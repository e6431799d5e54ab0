"""Start mitmdump on proxy/addon.py, follow its exchange log while it grows, and stop it."""

import errno
import json
import os
import shutil
import socket as sockets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import agent_ab
from agent_ab import config, process
from agent_ab.errors import ApparatusError, UserError
from agent_ab.exchanges import STEP, read_log
from agent_ab.model import Json, SeedMode
from agent_ab.requests import renamed

__all__ = ["Proxy", "ProxySettings", "ProxyState", "command", "find_mitmdump", "read_log", "started"]

START_S = 60.0
"""Longest start of mitmdump; 1 to 4 s are usual."""
BIND_TRIES = 4
"""Another process may take the port between our choice and mitmdump's bind."""
BODY_LIMIT = "64m"
"""Largest request that is accepted, and largest response with a declared length."""
SOCKET_PATH_MAX = 107
"""Longest path of a unix socket (sockaddr_un.sun_path without its final zero)."""

_SOURCE = Path(agent_ab.__file__).parent.parent / "proxy"
_TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What the proxy is told for one attempt."""

    upstream: str
    """The model server, `http://127.0.0.1:PORT`."""
    key: str
    """The server's key, which only the proxy knows; never written to a file."""
    seed: int
    seed_mode: SeedMode
    sampling: config.Sampling
    task: str
    repeat: int
    expected_first: str | None
    """Method, path and sha256 that the first model request must have; None in a pair's first attempt."""
    max_tokens: int
    """Response budget in tokens, written where the agent sends none."""
    declared: tuple[str, ...] = ()
    """Keys of a request that the declared variable changes; then the sha256 is `variable.first_digest`."""
    model: str = ""
    """What the server calls the model, when it does not know our name for it."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the server calls a sampling key, when it is not llama-server's name; empty: it has no such key."""
    fixed: Mapping[str, Json] = field(default_factory=lambda: {"cache_prompt": False})
    """More keys, written over whatever the agent sends."""


@dataclass(frozen=True, slots=True)
class ProxyState:
    """What the exchange log shows so far."""

    begun: int
    """Model calls that were passed on to the server."""
    turns: int
    """Exchanges that ended."""
    tokens: int
    """Generated tokens of those exchanges."""
    identity_refused: bool
    """The first model request differed from the expected one."""
    alive: bool
    """mitmdump runs. When it does not, the evidence ends here."""


class Proxy:
    """A mitmdump that is starting or running."""

    def __init__(self, settings: ProxySettings, *, log: Path, exchanges: Path, socket: Path, scratch: Path) -> None:
        """Prepare its files in `scratch`; nothing runs yet."""
        self.socket = socket
        self._settings, self._log, self._exchanges, self._scratch = settings, log, exchanges, scratch
        self._mitmdump = find_mitmdump(os.environ)
        self._follower = _Follower(exchanges)
        self._stack = ExitStack()
        # mitmproxy watches its scripts and would reload, or drop, an addon whose file changes under it.
        shutil.copytree(_SOURCE, scratch / "proxy", ignore=shutil.ignore_patterns("__pycache__"))
        _settings_file(scratch).write_text(
            json.dumps(_addon_settings(settings, exchanges, socket, scratch)), encoding="utf-8"
        )
        self._launch()

    def _launch(self) -> None:
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        self._port = _free_port()
        argv = command(self._mitmdump, self._settings.upstream, self._port, self._scratch)
        environment = _environment(self._settings, self._scratch)
        try:
            self._child = self._stack.enter_context(
                process.started(argv, env=environment, log=self._log, name="mitmdump", patience_s=(10.0, 5.0))
            )
        except OSError as error:
            raise ApparatusError(STEP, f"cannot start {self._mitmdump}: {error.strerror}") from error

    @property
    def url(self) -> str:
        """Return the base URL for an agent; final once `wait_ready` has returned."""
        return f"http://127.0.0.1:{self._port}/v1"

    def wait_ready(self, tick: Callable[[float], None] | None = None) -> None:
        """Wait until the addon serves both ports, calling `tick` with the elapsed seconds. Raises ApparatusError."""
        begin = time.monotonic()
        tries = 1
        while not self._ready():
            elapsed = time.monotonic() - begin
            status = self._child.exit_code()
            if status is not None:
                words = self._last_words()
                if os.strerror(errno.EADDRINUSE).lower() not in words.lower() or tries == BIND_TRIES:
                    raise ApparatusError(STEP, f"mitmdump ended at start-up with status {status}: {words}", self._log)
                tries += 1
                self._launch()
            elif elapsed > START_S:
                raise ApparatusError(STEP, f"mitmdump was not ready after {START_S:.0f} s", self._log)
            if tick:
                tick(elapsed)
            time.sleep(process.POLL_S)

    def _ready(self) -> bool:
        # The addon writes its first line when the log is open and the unix socket is served.
        self._follower.read()
        if not self._follower.begun or self._child.exit_code() is not None:
            return False
        with sockets.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def poll(self) -> ProxyState:
        """Return the state so far; reads only what was added to the log since the last call."""
        alive = self._child.exit_code() is None
        self._follower.read()
        # Read last: what has ended had begun.
        begun = _begun_file(self._scratch)
        return ProxyState(
            begun.stat().st_size if begun.exists() else 0,
            self._follower.turns,
            self._follower.tokens,
            self._follower.identity_refused,
            alive,
        )

    def stop(self) -> None:
        """End mitmdump so that it writes the closing line; twice is fine."""
        self._stack.close()

    def _last_words(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_TAIL_LINES:]) or "it said nothing"


class _Follower:
    """Reads what is added to a growing exchange log, each line once."""

    def __init__(self, path: Path) -> None:
        self.begun = self.identity_refused = False
        self.turns = self.tokens = 0
        self._path = path
        self._offset = 0
        self._tail = b""

    def read(self) -> None:
        try:
            with self._path.open("rb") as log:
                log.seek(self._offset)
                data = log.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._tail = (self._tail + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, line: Json) -> None:
        self.begun = True
        if line["kind"] == "exchange":
            self.turns += 1
            counts = (line["timings"] or {}).get("predicted_n"), (line["usage"] or {}).get("completion_tokens")
            self.tokens += next((count for count in counts if count is not None), 0)
        elif line["kind"] == "refused":
            self.identity_refused |= line["reason"] == "identity"


@contextmanager
def started(settings: ProxySettings, *, log: Path, exchanges: Path, socket: Path) -> Iterator[Proxy]:
    """Start a proxy that writes `exchanges` (which must not exist) and serves `socket`; stop it when the block ends.

    It starts in the background: call `wait_ready` before use. Raises ApparatusError, and UserError when
    AGENT_AB_MITMDUMP names no program.
    """
    if len(os.fsencode(socket)) > SOCKET_PATH_MAX:
        raise ApparatusError(STEP, f"the socket's path is longer than {SOCKET_PATH_MAX} bytes: {socket}")
    if exchanges.exists():
        raise ApparatusError(STEP, f"{exchanges} exists: a log is written once")
    socket.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="agent-ab-proxy-") as scratch:
        proxy = Proxy(settings, log=log, exchanges=exchanges, socket=socket, scratch=Path(scratch))
        try:
            yield proxy
        finally:
            proxy.stop()
            socket.unlink(missing_ok=True)


def find_mitmdump(environ: Mapping[str, str]) -> str:
    """Return mitmdump's path: AGENT_AB_MITMDUMP, beside our interpreter, then PATH. Raises UserError, ApparatusError."""
    named = environ.get("AGENT_AB_MITMDUMP", "")
    if named:
        if not os.access(named, os.X_OK) or Path(named).is_dir():
            raise UserError(f"AGENT_AB_MITMDUMP={named}: no such program; unset it or name a mitmdump")
        return named
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mitmdump", path=beside) or shutil.which("mitmdump", path=environ.get("PATH", ""))
    if found is None:
        raise ApparatusError(STEP, "no mitmdump: pip install mitmproxy, or set AGENT_AB_MITMDUMP")
    return found


def command(mitmdump: str, upstream: str, port: int, scratch: Path) -> list[str]:
    """Return mitmdump's command line; options that a version does not know are ignored by it."""
    options = {
        "agent_ab_settings": str(_settings_file(scratch)),
        "confdir": str(scratch / "conf"),
        "connection_strategy": "lazy",
        "body_size_limit": BODY_LIMIT,
        "tcp_timeout": str(24 * 3600),
        "http2": "false",
        "http3": "false",
        "websocket": "false",
        "rawtcp": "false",
        "onboarding": "false",
    }
    argv = [mitmdump, "-q", "--mode", f"reverse:{upstream}", "--listen-host", "127.0.0.1", "--listen-port", str(port)]
    argv += ["-s", str(scratch / "proxy" / "addon.py")]
    for name, value in options.items():
        argv += ["--set", f"{name}={value}"]
    return argv


def _begun_file(scratch: Path) -> Path:
    return scratch / "begun"


def _settings_file(scratch: Path) -> Path:
    return scratch / "settings.json"


def _addon_settings(settings: ProxySettings, exchanges: Path, socket: Path, scratch: Path) -> Mapping[str, Json]:
    return {
        "exchanges": str(exchanges.absolute()),
        "socket": str(socket.absolute()),
        "seed": settings.seed,
        "seed_mode": settings.seed_mode.value,
        "sampling": renamed(settings.sampling.model_dump(mode="json"), settings.names),
        "fixed": dict(settings.fixed),
        "model": settings.model,
        "task": settings.task,
        "repeat": settings.repeat,
        "max_tokens": settings.max_tokens,
        "expected_first": settings.expected_first,
        "declared": list(settings.declared),
        "begun": str(_begun_file(scratch)),
    }


def _environment(settings: ProxySettings, scratch: Path) -> Mapping[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(scratch),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONPATH": str(scratch),
        "AGENT_AB_SERVER_KEY": settings.key,
    }


def _free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
