"""What a start of agent-ab has in the world, written down as it goes; and the end of what a killed start left there.

Each start keeps a ledger, a locked file in the cache: its scratch directory, and its children by pid and time of birth.
The kernel frees the lock of a start that died, however it died. The next start takes such a ledger over and ends what is
still there of it: its recorded children, and processes whose home or whose mounts lie in its scratch directory, whose
name is random. Nothing else is touched.
"""

import fcntl
import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent_ab import process
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Event, Observer
from agent_ab.session import children
from agent_ab.snapshot import remove

PREFIX = "agent-ab-"
"""What the name of a scratch directory begins with."""
DIE_S = 10.0
"""How long a killed process may take to be gone."""


class Ledger:
    """The record of one start; `Ledger.kept` makes it."""

    def __init__(self, descriptor: int) -> None:
        """Write to the open `descriptor`."""
        self._descriptor = descriptor

    @staticmethod
    @contextmanager
    def kept(folder: Path, scratch: Path) -> "Iterator[Ledger]":
        """Keep a ledger in `folder` while the block runs; it names `scratch`, which the block makes and removes.

        Raises UserError when it cannot be written.
        """
        path = folder / f"{os.getpid()}-{scratch.name}.jsonl"
        unlocked = path.with_suffix(".new")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            # Under its own name only once it is locked: nobody may take it for a dead one's.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            head = {"pid": os.getpid(), "boot": _boot(), "namespace": _namespace(), "scratch": str(scratch)}
            os.write(descriptor, json.dumps(head).encode() + b"\n")
            unlocked.rename(path)
        except OSError as error:
            raise UserError(
                f"{folder}: cannot be written: {error.strerror}; name another with AGENT_AB_CACHE"
            ) from error
        try:
            yield Ledger(descriptor)
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def note(self, what: str, pid: int) -> None:
        """Record that a child was born or is gone."""
        # On a full disk the child still dies with us; only kill -9 together with a race could leave it.
        with suppress(OSError):
            os.write(self._descriptor, json.dumps([what, pid, children.birth(pid)]).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Left:
    """What a dead start's ledger says it had."""

    pid: int
    same_boot: bool
    scratch: Path
    children: frozenset[tuple[int, str]]
    """Pid and time of birth."""


def sweep(folder: Path, observer: Observer) -> None:
    """End and remove what dead starts left behind, saying so. Raises ApparatusError when a process does not die."""
    for path in sorted(folder.glob("*.jsonl")):
        with suppress(FileNotFoundError), _dead(path, observer) as left:
            if left is None:
                continue
            ended = _end(left) if left.same_boot else 0
            try:
                removed = _remove_scratch(left.scratch)
            except OSError as error:
                # The ledger stays, and the next start tries again.
                message = f"{left.scratch}, left by an earlier start, cannot be removed: {error.strerror}"
                observer(Event(None, None, message, lasting=True))
                continue
            path.unlink()
            if ended or removed:
                what = [f"ended {ended} processes"] if ended else []
                what += [f"removed {left.scratch}"] if removed else []
                message = f"an earlier start (pid {left.pid}) was cut off: {' and '.join(what)} that it left"
                observer(Event(None, None, message, lasting=True))


@contextmanager
def _dead(path: Path, observer: Observer) -> Iterator[Left | None]:
    """Hold a ledger whose owner is dead while the block runs; None when it lives, or when another start is at it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield _read(path, observer) if os.fstat(descriptor).st_nlink else None
    finally:
        os.close(descriptor)


def _read(path: Path, observer: Observer) -> Left | None:
    """Return what a ledger says; one that a full disk or a power cut has left unreadable is set aside."""
    head, *lines = path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    try:
        facts = json.loads(head)
        owner = int(facts["pid"]), Path(facts["scratch"]), facts["boot"] == _boot(), facts["namespace"] == _namespace()
    except (ValueError, TypeError, LookupError):
        aside = path.rename(path.with_suffix(".unreadable"))
        message = f"the record of an earlier start cannot be read; set aside as {aside}, what it left is not removed"
        observer(Event(None, None, message, lasting=True))
        return None
    living: set[tuple[int, str]] = set()
    born: dict[int, str] = {}
    for line in lines:
        # The last line may have been cut.
        with suppress(ValueError, TypeError):
            what, pid, birth = json.loads(line)
            living.discard((pid, born.pop(pid, "")))
            if what == "born" and birth:
                born[pid] = birth
                living.add((pid, birth))
    pid, scratch, *here = owner
    return Left(pid, all(here), scratch, frozenset(living))


def _end(left: Left) -> int:
    """Kill all that is left of a start, and return how many processes that were."""
    killed: set[tuple[int, str]] = set()
    deadline = time.monotonic() + DIE_S
    while found := {(pid, children.birth(pid)) for pid in _pids() if _belongs(pid, left)}:
        killed |= found
        for pid, _ in found:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise ApparatusError(
                "orphans", f"an earlier start (pid {left.pid}) left processes that do not die: {found}"
            )
        time.sleep(0.02)
    return len(killed)


def _pids() -> list[int]:
    return psutil.pids()


def _belongs(pid: int, left: Left) -> bool:
    if pid == os.getpid() or not process.exists(pid):
        return False
    if (pid, children.birth(pid)) in left.children:
        return True
    scratch = os.fsencode(left.scratch)
    home = b"HOME=" + scratch + b"/"
    place = b"/" + os.fsencode(left.scratch.name)
    for name, marks in (("environ", (home,)), ("mountinfo", (place + b"/", place + b" "))):
        # Somebody else's process tells nothing, and is none of ours.
        with suppress(OSError):
            told = Path(f"/proc/{pid}/{name}").read_bytes()
            if any(mark in told for mark in marks):
                return True
    return False


def _remove_scratch(scratch: Path) -> bool:
    try:
        status = scratch.lstat()
    except OSError:
        return False
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and scratch.name.startswith(PREFIX)
    if ours:
        remove(scratch)
    return ours


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _namespace() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""
