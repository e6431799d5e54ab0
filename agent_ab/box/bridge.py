"""The box's first process: serve 127.0.0.1:PORT by pumping bytes to a unix socket while a command runs.

    bridge.py SOCKET PORT COMMAND...

Exits with the command's status (128 + n after signal n, 127 when there is no such program), and with it, as the first
process of its PID namespace, everything else in the box. Listens before the command starts. One thread moves all bytes:
a command that has used up the box's processes cannot take its own connection to the model away.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import socket
import sys
from contextlib import suppress

CHUNK = 65536
BACKLOG = 128
RETRY_S = 0.01
"""How often a proxy whose queue is full is asked again."""
SPARE_DESCRIPTORS = 32
NOT_FOUND, NOT_RUNNABLE = 127, 126


class End:
    """One socket of a connection, and what waits to be written to it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.peer: End = self
        self.outbox = memoryview(b"")
        self.finished_reading = False
        self.finished_writing = False
        self.events = 0

    def wanted(self) -> int:
        """Return the events to wait for: nothing is read before the peer has taken what was read last."""
        reading = not self.finished_reading and not self.peer.outbox
        return (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if self.outbox else 0)

    def receive(self) -> None:
        """Read once; at the end of the stream, pass the end on. Raises OSError when the connection broke."""
        data = self.sock.recv(CHUNK)
        if data:
            self.peer.outbox = memoryview(data)
            self.peer.flush()
        else:
            self.finished_reading = True
            self.peer.sock.shutdown(socket.SHUT_WR)
            self.peer.finished_writing = True

    def flush(self) -> None:
        """Write what the socket takes now. Raises OSError when the connection broke."""
        with suppress(BlockingIOError):
            self.outbox = self.outbox[self.sock.send(self.outbox) :]


class Bridge:
    """The listener and its open connections."""

    def __init__(self, upstream: str, port: int) -> None:
        self._upstream = upstream
        self._selector = selectors.DefaultSelector()
        self._most = max(1, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_DESCRIPTORS) // 2)
        self._open = 0
        self._waiting: socket.socket | None = None
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def watch(self, descriptor: int) -> None:
        """Make `step` return when `descriptor` is readable, too."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def step(self) -> None:
        """Wait until something can be moved, and move it."""
        for key, mask in self._selector.select(RETRY_S if self._waiting else None):
            if key.fileobj is self._listener:
                # A client that has already gone is none.
                with suppress(OSError):
                    self._waiting, _ = self._listener.accept()
                    self._selector.unregister(self._listener)
            elif isinstance(key.data, End) and key.data.events:
                self._move(key.data, mask)
        if self._waiting:
            self._connect(self._waiting)

    def _connect(self, client: socket.socket) -> None:
        upstream = socket.socket(socket.AF_UNIX)
        upstream.setblocking(False)
        try:
            upstream.connect(self._upstream)
        except BlockingIOError:
            upstream.close()
            return
        except OSError as error:
            os.write(2, f"bridge: {self._upstream}: {error}\n".encode())
            upstream.close()
            client.close()
        else:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            near, far = End(client), End(upstream)
            near.peer, far.peer = far, near
            self._open += 1
            self._update(near)
            self._update(far)
        self._waiting = None
        self._listen()

    def _listen(self) -> None:
        free = self._open < self._most and self._waiting is None
        if free and self._listener not in self._selector.get_map():
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _move(self, end: End, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                end.flush()
            if mask & selectors.EVENT_READ:
                end.receive()
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        if end.finished_writing and end.peer.finished_writing:
            self._close(end)
            return
        self._update(end)
        self._update(end.peer)

    def _update(self, end: End) -> None:
        wanted = end.wanted()
        if wanted == end.events:
            return
        if not end.events:
            self._selector.register(end.sock, wanted, end)
        elif not wanted:
            self._selector.unregister(end.sock)
        else:
            self._selector.modify(end.sock, wanted, end)
        end.events = wanted

    def _close(self, end: End) -> None:
        for each in (end, end.peer):
            if each.events:
                self._selector.unregister(each.sock)
                each.events = 0
            each.sock.close()
        self._open -= 1
        self._listen()


def reap(child: int) -> int | None:
    """Bury every dead process, also those that the box's others left behind; return `child`'s status once it ended."""
    status = None
    with suppress(ChildProcessError):
        while True:
            pid, raw = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(raw)
                status = code if code >= 0 else 128 - code
    return status


def prefer_for_oom() -> None:
    """Ask the kernel to end this box, not its host, when memory runs out."""
    with suppress(OSError):
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.close(score)


def spawn(command: list[str], environment: dict[str, str]) -> int:
    """Start `command` with the signals of a fresh process; return its pid. Raises OSError."""
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]
    return os.posix_spawnp(command[0], command, environment, setsigdef=defaults)


def _noted(_signum: int, _frame: object) -> None:
    """Only the wake-up matters."""


def main(argv: list[str]) -> int:
    """Serve until the command ends; return its status."""
    upstream, port, command = argv[0], int(argv[1]), argv[2:]
    prefer_for_oom()
    os.umask(0o022)
    bridge = Bridge(upstream, port)
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _noted)
    bridge.watch(woken)
    try:
        child = spawn(command, dict(os.environ))
    except OSError as error:
        os.write(2, f"bridge: {command[0]}: {error.strerror}\n".encode())
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
    while (status := reap(child)) is None:
        bridge.step()
        with suppress(BlockingIOError):
            os.read(woken, CHUNK)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
