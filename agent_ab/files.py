"""Files that are whole or not there, and locks between processes."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_ab.errors import ApparatusError
from agent_ab.model import Event, Observer

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""What a disk that is full or breaks says; it says nothing about an arm."""
WAIT_S = 0.2
"""How often a lock that another process holds is asked for again."""


@contextmanager
def on_disk(place: Path) -> Iterator[None]:
    """Turn what a full or broken disk says in the block into an ApparatusError that names `place`; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        raise ApparatusError("disk", f"{error.filename or place} cannot be written: {error.strerror}") from error


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


def persist(root: Path) -> None:
    """Have the disk hold `root`, and every file and directory below it, whatever happens to the power. Raises OSError."""
    paths = [root]
    for directory, inner, names in os.walk(root):
        paths += [Path(directory) / name for name in (*inner, *names)]
    for path in paths:
        if not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


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
