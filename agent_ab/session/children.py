"""Which children run now, and a record of them for whoever comes after us."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psutil

Note = Callable[[Literal["born", "gone"], int], None]
"""Told of each child that starts or has ended, with its pid, from any thread, one at a time."""


class _Living:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pids: set[int] = set()
        self.note: Note | None = None


_living = _Living()


def born(pid: int) -> None:
    """Note that the child `pid` runs."""
    with _living.lock:
        _living.pids.add(pid)
        if _living.note:
            _living.note("born", pid)


def gone(pid: int) -> None:
    """Note that the child `pid` has ended and been buried; twice is fine."""
    with _living.lock:
        if pid in _living.pids:
            _living.pids.discard(pid)
            if _living.note:
                _living.note("gone", pid)


@contextmanager
def recorded(note: Note) -> Iterator[None]:
    """Tell `note` of each child that starts or ends during the block."""
    before, _living.note = _living.note, note
    try:
        yield
    finally:
        _living.note = before


def kill_all() -> None:
    """Kill the group of every child that runs now; waits for none, and may interrupt anything, a signal handler can."""
    # No lock: the interrupted thread may hold it.
    for pid in tuple(_living.pids):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def birth(pid: int) -> str:
    """Return when process `pid` was started, by a clock that nobody sets: with the pid, it names one process for good.

    Empty when there is no such process.
    """
    try:
        if sys.platform == "linux":
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            # The 22nd field; the second, a name in parentheses, may hold anything.
            return stat.rpartition(b")")[2].split()[19].decode()
        return str(psutil.Process(pid).create_time())
    except (OSError, psutil.Error, IndexError):
        return ""
