"""What a server really ran: its program and its model, found in its processes and hashed again where they changed."""

import mmap
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent_ab.errors import ApparatusError
from agent_ab.model import RanFile, Step

_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Planned:
    """Files that were hashed when the run was planned."""

    what: str
    """What they are, for messages."""
    files: tuple[Path, ...]
    sha256: str
    again: Callable[[], str]
    """Returns their sha256 as they are now. Raises OSError."""


def look(pid: int, planned: Iterable[Planned], log: Path) -> tuple[RanFile, ...]:
    """Return the files that the server `pid` runs, each known to be the planned one.

    Raises ApparatusError: a file's content is not the planned one, or a process executes or maps another file than the
    one that is at the path now.
    """
    mapped = _mapped([pid, *_children(pid)])
    ran: list[RanFile] = []
    for one in planned:
        try:
            for path in one.files:
                ran.append(_file(one.what, path.resolve(), mapped, log))
            now = one.again()
        except OSError as error:
            raise ApparatusError(Step.SERVER, f"the {one.what} cannot be read any more: {error}", log) from None
        if now != one.sha256:
            message = (
                f"the {one.what} is not the one that was planned: {one.files[0]} has the sha256 {now[:12]},"
                f" planned is {one.sha256[:12]}"
            )
            raise ApparatusError(Step.SERVER, message, log)
    return tuple(ran)


def require_same(before: Iterable[RanFile], after: Iterable[RanFile], log: Path) -> None:
    """Raise ApparatusError when a file was written to between two looks at a server."""
    then = {file.path: file for file in before}
    for file in after:
        if file.path in then and then[file.path] != file:
            raise ApparatusError(Step.SERVER, f"{file.path} was changed while the server ran", log)


def _file(what: str, path: Path, mapped: Mapping[str, set[tuple[str, str]]], log: Path) -> RanFile:
    status = path.stat()
    there = mapped.get(str(path), set())
    # Some file systems show another device in stat than in maps, so one map is compared with another: our own.
    if there and status.st_size and there != _seen_by_us(path):
        message = f"the {what} was replaced: the server runs another file than the one that is at {path} now"
        raise ApparatusError(Step.SERVER, message, log)
    return RanFile(
        what=what,
        path=str(path),
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        mapped=bool(there),
    )


def require_executed(pid: int, binary: Path, log: Path) -> None:
    """Raise ApparatusError unless a process of the server `pid` executes `binary`; a script's interpreter passes."""
    with binary.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return
    wanted = binary.stat()
    for one in [pid, *_children(pid)]:
        with suppress(OSError):
            # Follows to the file itself, also when another has its name now.
            found = Path(f"/proc/{one}/exe").stat()
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return
    raise ApparatusError(Step.SERVER, f"the server does not execute {binary}, or that file was replaced", log)


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _mapped(pids: Iterable[int]) -> Mapping[str, set[tuple[str, str]]]:
    """Return, by path, the device and inode of each file that the processes have mapped (proc(5), /proc/pid/maps)."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith("/"):
                    found[fields[5].removesuffix(_DELETED)].add((fields[3], fields[4]))
    return found


def _seen_by_us(path: Path) -> set[tuple[str, str]]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ):
        return set(_mapped([os.getpid()]).get(str(path), set()))
