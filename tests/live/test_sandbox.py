"""What the real box lets through and what it does not, as whichever user runs the tests."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from agent_ab import process, sandbox
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError
from agent_ab.sandbox import Box, BoxResult, Mount
from tests.fakes.unix_server import STREAM_CLIENT, serving
from tests.patience import cut_off

LONG_S = 60.0
MIB = 1024 * 1024


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "ws"
    path.mkdir()
    return path


@pytest.fixture
def box(workspace: Path) -> Box:
    return boxed(workspace)


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a directory that anybody can enter, whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def boxed(workspace: Path, settings: Sandbox | None = None, proxy: Path | None = None) -> Box:
    it = Box(settings or Sandbox(), (Mount(workspace, "/workspace", writable=True),), proxy=proxy)
    it.own()
    return it


def sh(box: Box, script: str, timeout_s: float = LONG_S, cap_bytes: int = 1_000_000) -> BoxResult:
    cwd = box.mounts[0].source
    return box.run(["sh", "-c", script], cwd=cwd, env={}, timeout_s=timeout_s, cap_bytes=cap_bytes)


def py(box: Box, code: str, *args: object) -> BoxResult:
    argv = [sandbox.python(), "-I", "-S", "-c", code, *map(str, args)]
    return box.run(argv, cwd=box.mounts[0].source, env={}, timeout_s=LONG_S)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.01)


# What the command sees


def test_the_environment_is_exactly_the_constant_one(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the host")
    done = box.run(["env"], cwd=box.mounts[0].source, env={"EXTRA": "a b=c"}, timeout_s=LONG_S)
    assert sorted(done.stdout.decode().splitlines()) == sorted(
        [
            "EXTRA=a b=c",
            "HOME=/home/agent",
            "LANG=C.UTF-8",
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONHASHSEED=0",
            "TZ=UTC",
        ]
    )


def test_two_boxes_look_the_same_from_inside(tmp_path: Path) -> None:
    script = "id; hostname; pwd; date +%Z; ls -ld . /tmp /home/agent /dev/shm / | sed 's/ [A-Z][a-z][a-z] .*//'; umask"
    seen = []
    for name, umask in (("one", 0o022), ("another-and-longer", 0o077)):
        path = tmp_path / name
        path.mkdir(mode=0o755)
        before = os.umask(umask)
        try:
            seen.append(sh(boxed(path), script).stdout.decode())
        finally:
            os.umask(before)
    assert seen[0] == seen[1]
    assert seen[0].startswith("uid=1000(agent) gid=1000(agent) groups=1000(agent)\nagent\n/workspace\nUTC\n")


def test_the_command_runs_in_the_directory_it_was_given(workspace: Path) -> None:
    (workspace / "deep").mkdir()
    box = boxed(workspace)
    done = box.run(["pwd"], cwd=workspace / "deep", env={}, timeout_s=LONG_S)
    assert done.stdout == b"/workspace/deep\n"


def test_input_output_and_status_are_the_commands(box: Box) -> None:
    argv = ["sh", "-c", "cat; echo err >&2; exit 7"]
    done = box.run(argv, cwd=box.mounts[0].source, env={}, timeout_s=LONG_S, stdin=b"in\n")
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"in\n", b"err\n")
    assert not done.timed_out


def test_a_death_by_signal_is_128_and_the_signal(box: Box) -> None:
    assert sh(box, "kill -KILL $$").exit_code == 128 + signal.SIGKILL
    assert sh(box, "kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_no_descriptor_of_ours_is_open_inside(box: Box) -> None:
    done = py(box, "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))")
    assert done.stdout == b"[0, 1, 2, 3]\n", "3 is the listing's own"


def test_the_commands_processes_are_all_that_it_sees(box: Box) -> None:
    done = py(box, "import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))")
    first, *others = eval(done.stdout)
    assert first == 1
    assert len(others) == 1


# What it cannot do


def test_there_is_no_network(box: Box) -> None:
    code = """
import socket, sys
for family, address in ((socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))), (socket.AF_INET, ("192.0.2.1", 80)), (socket.AF_UNIX, "\\0" + sys.argv[2])):
    try:
        socket.socket(family).connect(address)
        print("connected")
    except OSError as error:
        print(type(error).__name__)
print([name for _, name in socket.if_nameindex()])
"""
    name = f"agent-ab-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        done = py(box, code, listener.getsockname()[1], name)
    assert done.stdout.decode().splitlines() == [
        "ConnectionRefusedError",
        "OSError",
        "ConnectionRefusedError",
        "['lo']",
    ]


@pytest.mark.parametrize(
    "place", ["/", "/etc", "/usr", "/usr/bin", "/dev", "/opt", "/run", "/home", "/proc/sys/kernel"]
)
def test_all_but_the_workspace_is_read_only(place: str, box: Box) -> None:
    done = sh(box, f"mkdir -p {place} 2>/dev/null; echo x > {place}/x")
    assert done.exit_code != 0
    assert not Path(place, "x").exists()


@pytest.mark.parametrize(
    "script",
    [
        "mount -o remount,rw,bind /",
        "mount -o remount,rw /usr",
        "mount -t tmpfs none /tmp",
        "umount /tmp",
        "umount -l /usr",
        "unshare --user true",
        "unshare --mount true",
        "chroot / true",
        "mknod /tmp/disk b 254 0",
        "cat /etc/shadow",
        "ls /root",
        "ls /var/lib",
        "kill -0 -- $(($$ + 1000))",
        "nice -n -5 sh -c 'test $(nice) -lt 0'",
        "ulimit -d unlimited",
        "ulimit -n 100000",
        "echo 1 > /proc/sys/user/max_user_namespaces",
        "setpriv --reuid=0 true",
        "su root -c true </dev/null",
    ],
)
def test_a_way_out_is_closed(script: str, box: Box) -> None:
    assert sh(box, script).exit_code != 0


def test_a_link_in_the_workspace_leads_nowhere_outside(box: Box, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (workspace / "leak").symlink_to(tmp_path / "secret")
    assert sh(box, "cat leak").exit_code != 0
    assert sh(box, f"ls {tmp_path}").exit_code != 0


def test_checkouts_under_usr_are_not_shown(box: Box) -> None:
    assert sh(box, "ls -A /usr/src /usr/local/src 2>/dev/null").stdout in (
        b"",
        b"/usr/local/src:\n\n/usr/src:\n",
        b"/usr/src:\n\n/usr/local/src:\n",
    )


def test_what_it_writes_belongs_to_an_unprivileged_user(box: Box, workspace: Path) -> None:
    assert sh(box, "echo hello > made; mkdir dir; ln -s /etc/passwd link").exit_code == 0
    owner = os.geteuid() if box.uid is None else box.uid
    assert {path.lstat().st_uid for path in workspace.iterdir()} == {owner}
    assert owner != 0
    assert (workspace / "made").read_text() == "hello\n"


def test_a_read_only_mount_cannot_be_changed(workspace: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    snapshot.chmod(0o755)
    (snapshot / "file").write_text("x")
    (snapshot / "file").chmod(0o666)
    box = Box(Sandbox(), (Mount(workspace, "/state", True), Mount(snapshot, "/workspace")))
    box.own()
    assert sh(box, "cat /workspace/file").stdout == b"x"
    assert sh(box, "echo y > /workspace/file").exit_code != 0
    assert sh(box, "touch /workspace/new").exit_code != 0
    assert (snapshot / "file").read_text() == "x"


def test_a_program_behind_a_closed_door_can_be_mounted(workspace: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "open.py").write_text("print('open')")
    (closed / "secret.py").write_text("print('secret')")
    (closed / "secret.py").chmod(0o600)
    mounts = (Mount(closed / "open.py", "/opt/open.py"), Mount(closed / "secret.py", "/opt/secret.py"))
    box = Box(Sandbox(), (Mount(workspace, "/workspace", True), *mounts))
    box.own()
    done = sh(box, f"{sandbox.python()} /opt/open.py; {sandbox.python()} /opt/secret.py; echo x > /opt/open.py")
    assert done.stdout == b"open\nsecret\n"
    assert (closed / "open.py").read_text() == "print('open')"


# What it cannot use up


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/home/agent"])
def test_memory_disks_are_limited(place: str, workspace: Path) -> None:
    box = boxed(workspace, Sandbox(tmp_mb=2))
    assert sh(box, f"head -c 1000000 /dev/zero > {place}/fits").exit_code == 0
    done = sh(box, f"head -c 10000000 /dev/zero > {place}/big; stat -c %s {place}/big")
    assert int(done.stdout) <= 2 * MIB


def test_nothing_in_memory_disks_outlives_its_run(box: Box) -> None:
    script = "cat /tmp/note /dev/shm/note ~/note 2>/dev/null; for d in /tmp /dev/shm ~; do echo seen > $d/note; done"
    assert sh(box, script).stdout == b""
    assert sh(box, script).stdout == b""


def test_the_size_of_one_file_is_limited(workspace: Path) -> None:
    box = boxed(workspace, Sandbox(file_size_mb=1))
    assert sh(box, "head -c 3000000 /dev/zero > big").exit_code != 0
    assert (workspace / "big").stat().st_size == MIB


def test_the_memory_of_a_process_is_limited(workspace: Path) -> None:
    box = boxed(workspace, Sandbox(memory_mb=256))
    assert py(box, "bytearray(100 * 2**20)").exit_code == 0
    done = py(box, "bytearray(512 * 2**20)")
    assert done.exit_code == 1
    assert b"MemoryError" in done.stderr


def test_open_files_are_limited(workspace: Path) -> None:
    done = py(boxed(workspace, Sandbox(open_files=32)), "files = [open('/dev/null') for _ in range(40)]")
    assert b"Too many open files" in done.stderr


FORKS = """
import os, time
count = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(600)
        count += 1
except OSError:
    pass
print(count)
"""


def test_a_fork_bomb_is_bounded_and_harms_nobody_else(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    bomb, other = boxed(workspace, Sandbox(processes=40)), boxed(tmp_path / "other", Sandbox(processes=40))
    with ThreadPoolExecutor() as pool:
        bombs = [pool.submit(py, bomb, FORKS) for _ in range(4)]
        others = [pool.submit(sh, other, "(echo alive)") for _ in range(10)]
        assert {future.result().stdout for future in others} == {b"alive\n"}
        counts = [int(future.result().stdout) for future in bombs]
    assert all(30 <= count < 40 for count in counts)


def test_a_flood_of_20_mb_is_cut_and_flagged(box: Box) -> None:
    done = sh(box, "head -c 20000000 /dev/zero; echo done >&2", cap_bytes=100_000)
    assert (len(done.stdout), done.stderr, done.exit_code) == (100_000, b"done\n", 0)
    assert done.truncated


def test_the_kernel_is_asked_to_end_the_box_first_when_memory_runs_out(box: Box) -> None:
    assert sh(box, "cat /proc/1/oom_score_adj /proc/self/oom_score_adj").stdout == b"1000\n1000\n"


# How it ends


def living(token: str) -> list[psutil.Process]:
    found = []
    for candidate in psutil.process_iter():
        try:
            if token in candidate.cmdline() and candidate.status() != psutil.STATUS_ZOMBIE:
                found.append(candidate)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture
def token() -> str:
    """Return a number of seconds that nobody else sleeps."""
    return f"6{time.time_ns() % 10**9}.{os.getpid()}"


def test_a_daemon_is_dead_when_the_command_has_ended(box: Box, workspace: Path, token: str) -> None:
    done = sh(box, f"setsid sh -c 'sleep {token}; echo late > late.txt' & setsid sleep {token} & echo started")
    assert done.stdout == b"started\n"
    assert not living(token)
    assert not (workspace / "late.txt").exists()


def test_a_time_out_ends_everything(box: Box, token: str) -> None:
    script = f"trap '' TERM INT HUP; echo started; setsid sleep {token} & sleep {token}"
    done = cut_off(lambda limit_s: sh(box, script, timeout_s=limit_s), lambda done: bool(done.stdout))
    assert done.timed_out
    assert done.exit_code == 137
    assert done.stdout == b"started\n"
    assert not living(token)


def test_an_interruption_ends_everything(box: Box, workspace: Path, token: str) -> None:
    def interrupt(_: float) -> None:
        if (workspace / "ready").exists():
            raise KeyboardInterrupt

    argv = ["sh", "-c", f"touch ready; setsid sleep {token} & sleep {token}"]
    with pytest.raises(KeyboardInterrupt):
        box.run(argv, cwd=workspace, env={}, timeout_s=LONG_S, tick=interrupt)
    assert not living(token)


def test_the_box_dies_with_a_harness_that_is_killed(workspace: Path, short: Path, tmp_path: Path, token: str) -> None:
    code = (
        "import sys; from pathlib import Path; from agent_ab.sandbox import Box, Mount\n"
        "from agent_ab.config import Sandbox\n"
        "ws = Path(sys.argv[1]); box = Box(Sandbox(), (Mount(ws, '/workspace', True),)); box.own()\n"
        "script = f'touch ready; setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}'\n"
        "box.run(['sh', '-c', script], cwd=ws, env={}, timeout_s=600)"
    )
    # A killed harness cannot tidy up, so what it leaves is put where the test does.
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(sandbox.__file__).parents[1]), "TMPDIR": str(short)}
    argv = [sys.executable, "-c", code, str(workspace), token]
    with process.started(argv, env=env, log=tmp_path / "log", name="harness") as harness:
        until(lambda: len(living(token)) >= 3)
        harness.signal_group(signal.SIGKILL)
        until(lambda: not living(token))


def test_killing_the_first_process_from_inside_is_not_possible(box: Box) -> None:
    assert sh(box, "kill -KILL 1; kill -TERM 1; echo still here").stdout == b"still here\n"


def test_no_zombie_is_left_for_the_machines_first_process(workspace: Path, tmp_path: Path) -> None:
    code = (
        "import ctypes, os, sys; from pathlib import Path; from agent_ab.sandbox import Box, Mount\n"
        "from agent_ab.config import Sandbox\n"
        "PR_SET_CHILD_SUBREAPER = 36; ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)\n"
        "ws = Path(sys.argv[1]); box = Box(Sandbox(), (Mount(ws, '/workspace', True),)); box.own()\n"
        "box.run(['sh', '-c', 'setsid sleep 600 & true'], cwd=ws, env={}, timeout_s=60)\n"
        "try:\n    print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError: print('none')"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(sandbox.__file__).parents[1])}
    done = process.run([sys.executable, "-c", code, str(workspace)], env=env, timeout_s=LONG_S, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (b"none\n", b"")


# Started or not


def test_a_mount_that_is_not_there_is_an_apparatus_fault(workspace: Path, tmp_path: Path) -> None:
    box = Box(Sandbox(), (Mount(workspace, "/workspace", True), Mount(tmp_path / "gone", "/gone")))
    box.own()
    with pytest.raises(ApparatusError, match="cannot mount"):
        sh(box, "true")


def test_a_directory_that_cannot_be_entered_inside_is_an_apparatus_fault(workspace: Path) -> None:
    box = boxed(workspace)
    with pytest.raises(ApparatusError, match="did not start: bwrap: Can't chdir"):
        box.run(["true"], cwd=workspace / "gone", env={}, timeout_s=LONG_S)


def test_the_reason_of_a_failed_start_is_found_in_the_output_file_too(workspace: Path, tmp_path: Path) -> None:
    box, log = boxed(workspace), tmp_path / "log"
    with pytest.raises(ApparatusError, match="Can't chdir") as caught:
        box.run(["true"], cwd=workspace / "gone", env={}, timeout_s=LONG_S, output=log)
    assert caught.value.log == log


@pytest.mark.parametrize("name", ["no-such-program", "/usr/bin/no-such", "/opt/no-such", "/home/agent/no-such"])
def test_a_program_that_is_not_in_the_box_is_an_apparatus_fault(name: str, box: Box) -> None:
    with pytest.raises(ApparatusError, match=f"no program {name} in the box"):
        box.run([name], cwd=box.mounts[0].source, env={}, timeout_s=LONG_S)


def test_a_program_that_the_agent_was_to_leave_in_the_workspace_is_its_own_failure(box: Box) -> None:
    done = box.run(["/workspace/no-such"], cwd=box.mounts[0].source, env={}, timeout_s=LONG_S)
    assert done.exit_code == 127


def test_nothing_that_a_command_prints_makes_it_an_apparatus_fault(box: Box) -> None:
    done = sh(box, "echo 'bwrap: Creating new namespace failed' >&2; exit 1")
    assert done.exit_code == 1


# The one way out


def test_a_stream_comes_through_the_bridge_chunk_by_chunk(workspace: Path, short: Path) -> None:
    with serving(short / "s") as events:
        done = py(boxed(workspace, proxy=short / "s"), STREAM_CLIENT, 8080)
        assert events.acknowledged.is_set()
    assert (done.stdout, done.stderr, done.exit_code) == (b"[b'one\\n', b'two\\n']\n", b"", 0)


def test_the_command_beside_the_bridge_is_as_boxed_as_any_other(workspace: Path, short: Path, token: str) -> None:
    with serving(short / "s"):
        box = boxed(workspace, Sandbox(processes=20, memory_mb=256), proxy=short / "s")
        assert box.run(["env"], cwd=workspace, env={}, timeout_s=LONG_S).stdout.count(b"\n") == len(sandbox.ENVIRONMENT)
        assert sh(box, f"setsid sleep {token} & exit 9").exit_code == 9
        assert not living(token)
        assert sh(box, "kill -KILL $$").exit_code == 137
        assert int(py(box, FORKS).stdout) < 20
        assert b"MemoryError" in py(box, "bytearray(2**30)").stderr
        assert sh(box, "cat /etc/shadow; touch /etc/x").exit_code != 0


def test_orphans_are_buried_by_the_bridge(workspace: Path, short: Path) -> None:
    code = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
for _ in range(20):
    os.wait()
def state(n):
    try:
        return open(f"/proc/{n}/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"
def zombies():
    return [state(n) for n in os.listdir("/proc") if n.isdigit()].count("Z")
while zombies():
    time.sleep(0.01)
print("buried")
"""
    with serving(short / "s"):
        assert py(boxed(workspace, proxy=short / "s"), code).stdout == b"buried\n"


def test_a_time_out_beside_the_bridge_ends_everything(workspace: Path, short: Path, token: str) -> None:
    script = f"echo started; setsid sleep {token} & sleep {token}"
    with serving(short / "s"):
        box = boxed(workspace, proxy=short / "s")
        done = cut_off(lambda limit_s: sh(box, script, timeout_s=limit_s), lambda done: bool(done.stdout))
    assert done.timed_out
    assert not living(token)


def test_a_proxy_that_is_not_there_is_an_apparatus_fault(workspace: Path, short: Path) -> None:
    with pytest.raises(ApparatusError, match="cannot mount"):
        sh(boxed(workspace, proxy=short / "s"), "true")


# Many at once


def test_boxes_run_side_by_side(tmp_path: Path) -> None:
    def one(number: int) -> bytes:
        path = tmp_path / str(number)
        path.mkdir()
        return py(boxed(path), f"open('mine', 'w').write('{number}'); print(open('mine').read())").stdout

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(one, range(20))) == [f"{n}\n".encode() for n in range(20)]
    assert threading.active_count() < 20


def test_the_surroundings_are_described(box: Box) -> None:
    world = sandbox.describe(box.settings)
    assert (world["kind"], len(world["bubblewrap_sha256"])) == ("bwrap", 64)
    assert world["limits"]["processes"] == 512
    assert world == sandbox.describe(box.settings)


def test_a_pause_of_ours_while_a_command_runs_is_a_broken_apparatus_with_its_length(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "STILL_S", 1.0)

    def stop_us_once(_elapsed_s: float) -> None:
        if not helpers:
            helpers.append(
                subprocess.Popen(
                    ["sh", "-c", f"sleep 0.2; kill -STOP {os.getpid()}; sleep 2; kill -CONT {os.getpid()}"]
                )
            )

    helpers: list[subprocess.Popen[bytes]] = []
    with pytest.raises(ApparatusError, match=r"stood still for \d+\.\d s while a command ran in the box"):
        box.run(["sleep", "4"], cwd=box.mounts[0].source, env={}, timeout_s=LONG_S, tick=stop_us_once)
    assert helpers[0].wait(LONG_S) == 0
