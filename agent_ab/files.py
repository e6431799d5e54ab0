"""Files that are whole or not there, and locks between processes."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_ab.model import Event, Observer

WAIT_S = 0.2
"""How often a lock that another process holds is asked for again."""


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path` that becomes `path` when the block ends well, and vanishes when not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}.part")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, does: str, observer: Observer) -> Iterator[int]:
    """Hold the lock file `path`, waiting for another process that `does` the same, and saying so. Raises OSError."""
    begin, told = time.monotonic(), False
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                elapsed = time.monotonic() - begin
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
                message = f"waiting for another process{f' ({holder})' if holder else ''} that {does}"
                if not told or elapsed > 1:
                    observer(Event(None, None, message, elapsed_s=elapsed))
                told = True
                time.sleep(WAIT_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)
