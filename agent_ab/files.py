"""Files that are whole or not there, files that others wrote, and locks between processes."""

import errno
import fcntl
import os
import stat
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


def contents(path: Path, most: int) -> bytes:
    """Return what a regular file of at most `most` bytes holds. Raises OSError, which says so, for anything else.

    A FIFO would never answer, a device never end, and a large file leave no memory for anything else.
    """
    _require_regular(path, path.stat())
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        # Somebody may have put another file there meanwhile.
        _require_regular(path, os.fstat(file.fileno()))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"is larger than {most / 1e6:g} MB", str(path))
    return data


def text_of(path: Path, most: int) -> str:
    """Return `contents` as UTF-8, every line's end a newline. Raises OSError, UnicodeDecodeError."""
    return contents(path, most).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file", str(path))


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
