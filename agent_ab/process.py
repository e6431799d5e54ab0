"""Child processes: each in its own session, its output in a file or a capped buffer, gone when its block ends.

The only importer of `subprocess`.
"""

import errno
import functools
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from agent_ab.session import children

POLL_S = 0.05
"""How often a waiting loop looks; short against anything that a person waits for."""
LOOK_S = 0.5
"""How often a wait without a tick looks at the clock, so that a pause is seen."""
LATE_S = 1.0
"""A look that comes later than this was a pause; it does not count towards a time limit."""
DRAIN_S = 1.0
"""How long the last words of a dead child are waited for while a stranger holds its pipe."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    """Output past `cap_bytes` was read and thrown away."""
    duration_s: float
    stood_still_s: float = 0.0
    """The longest time in which we could not look: a stop, a suspended machine, a frozen container, an overload."""


class Child:
    """A running child process and its whole group."""

    def __init__(self, popen: "subprocess.Popen[bytes]", name: str) -> None:
        """Wrap `popen`, whose session id is its pid; `name` is for messages."""
        self._popen = popen
        self.name = name
        self.pid = popen.pid

    def exit_code(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Wait up to `timeout_s` and return the exit status, or None when it still runs."""
        try:
            return self._popen.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def signal_group(self, signum: int) -> None:
        """Send `signum` to the child's process group; a group that is gone is fine."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def stop(self, patience_s: Sequence[float] = (10.0, 5.0)) -> int:
        """TERM once per entry of `patience_s`, waiting that long; then KILL the group. Return the exit status."""
        try:
            for seconds in patience_s:
                if self.exit_code() is not None:
                    break
                self.signal_group(signal.SIGTERM)
                self.wait(seconds)
        finally:
            self.signal_group(signal.SIGKILL)
            exit_code = self._popen.wait()
            children.gone(self.pid)
        return exit_code


@dataclass(frozen=True, slots=True)
class Given:
    """What a child is handed besides its arguments."""

    stdin: bytes = b""
    fds: tuple[int, ...] = ()
    """Open descriptors, inherited under the same numbers."""
    guard: bool = True
    """Let the kernel end the child with us; False for a program that sees to it itself."""


_NOTHING = Given()


@functools.cache
def _guard() -> tuple[str, ...]:
    # The kernel ends the child when the thread that started it ends, kill -9 included (prctl PR_SET_PDEATHSIG).
    setpriv = shutil.which("setpriv", path="/usr/sbin:/usr/bin:/sbin:/bin")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def _require_program(name: str, env: Mapping[str, str], cwd: Path | None) -> None:
    # Behind the guard a missing program would be an exit status like any other.
    if "/" not in name:
        if shutil.which(name, path=env.get("PATH", os.defpath)) is None:
            raise FileNotFoundError(errno.ENOENT, "no such program on PATH", name)
        return
    path = (cwd or Path()) / name
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "no such program", name)
    if not os.access(path, os.X_OK):
        raise PermissionError(errno.EACCES, "not executable", name)


def _spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None,
    stdin: int,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    fds: tuple[int, ...] = (),
    guard: bool = True,
) -> "subprocess.Popen[bytes]":
    _require_program(argv[0], env, cwd)
    popen = subprocess.Popen(
        [*(_guard() if guard else ()), *argv],
        env=dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=fds,
        start_new_session=True,
    )
    children.born(popen.pid)
    return popen


@contextmanager
def started(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    name: str,
    cwd: Path | None = None,
    patience_s: Sequence[float] = (10.0, 5.0),
) -> Iterator[Child]:
    """Run `argv` with exactly `env`, both its streams in `log`; stop its group when the block ends.

    Raises FileNotFoundError or PermissionError when the program cannot be started.
    """
    with log.open("ab") as sink:
        popen = _spawn(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    child = Child(popen, name)
    try:
        yield child
    finally:
        child.stop(patience_s)


class _Stream:
    """One pipe of a child: keeps at most `cap` bytes and throws the rest away, so that a flood blocks nobody."""

    def __init__(self, cap: int, sink: IO[bytes] | None) -> None:
        self._cap, self._sink = cap, sink
        self.kept = bytearray()
        self.size = 0

    def take(self, chunk: bytes) -> None:
        room = max(0, self._cap - self.size)
        self.size += len(chunk)
        if self._sink is None:
            self.kept += chunk[:room]
        elif room:
            self._sink.write(chunk[:room])
            self._sink.flush()

    @property
    def truncated(self) -> bool:
        return self.size > self._cap


def _pidfd(pid: int) -> int | None:
    # Absent on macOS and on Linux before 5.3; there the end is noticed by looking every POLL_S.
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class _Conversation:
    """Everything that is said to and by one child, in one thread: no reader outlives it, whoever holds the pipes."""

    def __init__(self, popen: "subprocess.Popen[bytes]", stdin: bytes, cap: int, sink: IO[bytes] | None) -> None:
        self._popen = popen
        self._left = memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        self._pidfd = _pidfd(popen.pid)
        if self._pidfd is not None:
            self._selector.register(self._pidfd, selectors.EVENT_READ)
        self.streams = []
        for pipe in (popen.stdout, popen.stderr):
            if pipe is not None:
                stream = _Stream(cap, sink)
                self.streams.append(stream)
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, stream)
        self._open = len(self.streams)
        if popen.stdin is not None:
            os.set_blocking(popen.stdin.fileno(), False)
            self._selector.register(popen.stdin, selectors.EVENT_WRITE)

    def step(self, wait_s: float) -> bool:
        """Move what can be moved within `wait_s`; return whether the child has ended."""
        ended = False
        for key, _ in self._selector.select(max(0.0, wait_s) if self._pidfd is not None else min(wait_s, POLL_S)):
            if key.fileobj == self._pidfd:
                ended = True
            elif key.data is None:
                self._feed(key.fd)
            else:
                self._read(key.fileobj, key.fd, key.data)
        return ended or (self._pidfd is None and self._popen.poll() is not None)

    def drain(self, grace_s: float) -> None:
        """Read what is left in the pipes, for at most `grace_s` when something still holds them open."""
        end = time.monotonic() + grace_s
        if self._pidfd is not None:
            self._selector.unregister(self._pidfd)
        while self._open and (left := end - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.data is None:
                    self._selector.unregister(key.fileobj)
                else:
                    self._read(key.fileobj, key.fd, key.data)

    def close(self) -> None:
        """Let go of every descriptor."""
        self._selector.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _read(self, pipe: Any, fd: int, stream: _Stream) -> None:
        chunk = os.read(fd, 65536)
        if chunk:
            stream.take(chunk)
        else:
            self._selector.unregister(pipe)
            self._open -= 1

    def _feed(self, fd: int) -> None:
        try:
            self._left = self._left[os.write(fd, self._left[:65536]) :]
        except OSError:
            # The child closed its stdin: it has heard enough.
            self._left = self._left[:0]
        if not self._left:
            assert self._popen.stdin is not None
            self._selector.unregister(self._popen.stdin)
            self._popen.stdin.close()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
    given: Given = _NOTHING,
    cap_bytes: int = 1_000_000,
    output: Path | None = None,
    tick: Callable[[float], None] | None = None,
) -> Completed:
    """Run `argv` with exactly `env` to its end, or kill its group at `timeout_s`.

    Each stream is kept up to `cap_bytes`; with `output`, stdout and stderr go there instead, up to the same cap.
    `tick` is called with the elapsed seconds while it runs. Raises FileNotFoundError or PermissionError when the
    program cannot be started, and OSError when `output` cannot be written.
    """
    with output.open("ab") if output else nullcontext() as sink:
        begin, pauses = time.monotonic(), _Pauses()
        popen = _spawn(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE if given.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if output else subprocess.PIPE,
            fds=given.fds,
            guard=given.guard,
        )
        child = Child(popen, argv[0])
        try:
            with closing(_Conversation(popen, given.stdin, cap_bytes, sink)) as talk:
                timed_out = not _attend(talk, begin, timeout_s, tick, pauses)
                exit_code = child.stop(())
                duration_s = time.monotonic() - begin
                # A process that left the group may hold the pipe open: what it writes later is nobody's output.
                talk.drain(DRAIN_S)
        except BaseException:
            child.stop(())
            raise
    streams = talk.streams
    return Completed(
        exit_code=exit_code,
        stdout=bytes(streams[0].kept),
        stderr=bytes(streams[1].kept) if len(streams) > 1 else b"",
        timed_out=timed_out,
        truncated=any(stream.truncated for stream in streams),
        duration_s=duration_s,
        stood_still_s=pauses.longest_s,
    )


class _Pauses:
    """Sees the times in which this process did not run, suspended machines included."""

    # CLOCK_MONOTONIC stands still while the machine is suspended, CLOCK_BOOTTIME does not.
    _CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def __init__(self) -> None:
        self.longest_s = self.sum_s = 0.0
        self._last = time.clock_gettime(self._CLOCK)

    def look(self, waited_s: float) -> None:
        """Take note of how much later than after `waited_s` this look comes."""
        now = time.clock_gettime(self._CLOCK)
        late_s, self._last = now - self._last - waited_s, now
        if late_s > LATE_S:
            self.longest_s, self.sum_s = max(self.longest_s, late_s), self.sum_s + late_s


def _attend(
    talk: _Conversation, begin: float, timeout_s: float, tick: Callable[[float], None] | None, pauses: _Pauses
) -> bool:
    """Listen until the child ends (True) or its time is up (False); pauses are no part of its time."""
    next_tick = wait_s = 0.0
    ended = False
    while not ended:
        pauses.look(wait_s)
        left_s = timeout_s - (time.monotonic() - begin - pauses.sum_s)
        if left_s <= 0:
            # It may have ended while nobody looked.
            return talk.step(0.0)
        if tick and (elapsed := timeout_s - left_s) >= next_tick:
            tick(elapsed)
            next_tick = elapsed + POLL_S
        wait_s = min(POLL_S if tick else LOOK_S, left_s)
        ended = talk.step(wait_s)
    pauses.look(wait_s)
    return True


def exists(pid: int) -> bool:
    """Return whether a process with `pid` is there and not a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
