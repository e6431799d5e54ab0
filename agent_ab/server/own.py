"""A model server that we started, whatever its engine: kept in a block, waited for, watched, asked."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from agent_ab import connection, process
from agent_ab.errors import ApparatusError
from agent_ab.model import Step
from agent_ab.server.watch import HOST, StallWatch, Usage, require_gone, unread


class OwnServer(ABC):
    """A server's life during one attempt; what it proves and how it is asked is its engine's."""

    WHAT: str
    """Its name in messages."""

    def __init__(self, child: process.Child, port: int, key: str, log: Path, stall_s: float) -> None:
        """Wrap `child`, which hangs when it has stood still for `stall_s` seconds."""
        self.child, self.log = child, log
        self.pid: int | None = child.pid
        self.url = f"http://{HOST}:{port}"
        self._port, self._key, self._stall_s = port, key, stall_s
        self._watch: StallWatch | None = None

    @abstractmethod
    def usage(self) -> Usage | None:
        """Return what its processes use now, or None when it is gone."""

    @abstractmethod
    def requests(self) -> int:
        """Return how many requests for a generation its log shows, ours left out. Call it after `prove`."""

    @abstractmethod
    def _explained(self, code: int) -> str:
        """Return why it ended with `code`, by its own first error lines."""

    def wait_ready(self, tick: Callable[[float], None] | None = None) -> None:
        """Wait until the model is loaded, calling `tick` with the elapsed seconds.

        No fixed time limit: raises ApparatusError when the process ends, or when its log, memory and CPU time have
        stood still for `load_stall_s`.
        """
        begin = time.monotonic()
        watch = StallWatch(self.log, self.usage)
        with self._client(timeout_s=2.0) as client:
            while True:
                self.check_alive("while loading")
                if _healthy(client):
                    return
                if watch.still_s() >= self._stall_s:
                    message = (
                        f"{self.WHAT} hangs in loading: its log, memory and CPU stood still for {self._stall_s:g} s"
                    )
                    raise ApparatusError(Step.SERVER, message, self.log)
                if tick:
                    tick(time.monotonic() - begin)
                time.sleep(process.POLL_S)

    def check_alive(self, when: str = "while serving", *, patience_s: float = 0.0) -> None:
        """Raise ApparatusError with the server's own first error lines when it has ended, or ends within `patience_s`."""
        code = self.child.wait(patience_s) if patience_s else self.child.exit_code()
        if code is not None:
            raise ApparatusError(Step.SERVER, f"{self.WHAT} ended {when}, {self._explained(code)}", self.log)

    def check_working(self, waiting: bool) -> None:
        """Raise ApparatusError when the process has ended, or stands still although a request is open.

        `waiting`: the proxy has passed on a request that has not come to its end. Call it often while the agent works.
        """
        self.check_alive()
        if not waiting or unread(self._port):
            self._watch = None
            return
        self._watch = self._watch or StallWatch(self.log, self.usage)
        if self._watch.still_s() >= self._stall_s:
            message = f"{self.WHAT} hangs: with a request open, its log and CPU stood still for {self._stall_s:g} s"
            raise ApparatusError(Step.SERVER, message, self.log)

    def _client(self, timeout_s: float) -> httpx.Client:
        return connection.client(self.url, self._key, timeout_s)

    def _log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _settled(self, within_s: float) -> str:
        """Return the log when it has stood still for a moment: the server writes it a little after the fact."""
        size, deadline = self.log.stat().st_size, time.monotonic() + within_s
        while time.monotonic() < deadline and self.child.exit_code() is None:
            time.sleep(process.POLL_S)
            before, size = size, self.log.stat().st_size
            if before == size:
                break
        return self._log_text()


@contextmanager
def running(
    argv: Sequence[str], *, env: Mapping[str, str], port: int, log: Path, name: str, patience_s: Sequence[float]
) -> Iterator[process.Child]:
    """Run a server's process, its whole output in `log`; stop it when the block ends, process and port both gone.

    Raises ApparatusError when it cannot be started, or is still there afterwards.
    """
    child: process.Child | None = None
    try:
        with process.started(argv, env=env, log=log, name=name, patience_s=patience_s) as child:
            yield child
    except OSError as error:
        if child is not None:
            raise
        raise ApparatusError(Step.SERVER, f"{argv[0]} cannot be started: {error.strerror}", log) from None
    finally:
        if child is not None:
            require_gone(child, port, log)


def _healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
