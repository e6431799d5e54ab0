"""The box's own rules, and what runs loose on the host when there is no box. (tests/live starts real boxes.)"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_ab import process, sandbox
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError
from agent_ab.model import SandboxKind
from agent_ab.sandbox import Box, Mount
from tests.patience import cut_off

LOOSE = Sandbox(kind=SandboxKind.NONE)
LONG_S = 60.0
SOMEBODY = 1_900_000_001
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def loose(tmp_path: Path) -> Box:
    return Box(LOOSE, (Mount(tmp_path, "/workspace", writable=True),))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.01)


def run(box: Box, cwd: Path, code: str, *args: str, timeout_s: float = LONG_S) -> sandbox.BoxResult:
    return box.run([sys.executable, "-I", "-S", "-c", code, *args], cwd=cwd, env={}, timeout_s=timeout_s)


def test_a_path_is_known_by_its_mount_inside(tmp_path: Path) -> None:
    box = Box(Sandbox(), (Mount(tmp_path / "ws", "/workspace"), Mount(tmp_path / "ws" / "deep", "/deep")))
    assert box.inside(tmp_path / "ws") == "/workspace"
    assert box.inside(tmp_path / "ws" / "src" / "a.py") == "/workspace/src/a.py"
    assert box.inside(tmp_path / "ws" / "deep" / "b") == "/deep/b"


def test_a_path_through_a_link_is_known_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Box(Sandbox(), (Mount(tmp_path / "link", "/workspace"),)).inside(tmp_path / "real" / "a") == "/workspace/a"
    assert Box(Sandbox(), (Mount(tmp_path / "real", "/workspace"),)).inside(tmp_path / "link" / "a") == "/workspace/a"


def test_a_path_that_no_mount_shows_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in none of the box's mounts"):
        Box(Sandbox(), (Mount(tmp_path / "ws", "/workspace"),)).inside(tmp_path)


def test_on_the_host_a_path_is_itself(loose: Box, tmp_path: Path) -> None:
    assert loose.inside(tmp_path / "a") == str(tmp_path / "a")
    assert loose.inside(Path("/etc")) == "/etc"


@as_root
def test_writable_mounts_are_given_away_and_others_are_not(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "file").write_text("x")
    (tmp_path / "theirs" / "deep" / "link").symlink_to("file")
    Box(Sandbox(), (Mount(tmp_path / "mine", "/a"), Mount(tmp_path / "theirs", "/b", True)), SOMEBODY).own()
    assert {p.lstat().st_uid for p in (tmp_path / "theirs").rglob("*")} == {SOMEBODY}
    assert (tmp_path / "theirs").stat().st_gid == SOMEBODY
    assert {p.lstat().st_uid for p in (tmp_path / "mine").rglob("*")} == {0}


@as_root
def test_no_link_is_followed_out_of_a_mount(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "to_dir").symlink_to(outside)
    (workspace / "to_file").symlink_to(outside / "secret")
    Box(Sandbox(), (Mount(workspace, "/workspace", True),), SOMEBODY).own()
    assert (outside.stat().st_uid, (outside / "secret").stat().st_uid) == (0, 0)
    assert (workspace / "to_dir").lstat().st_uid == SOMEBODY


@as_root
def test_a_file_with_a_second_name_is_not_given_away(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "twin").hardlink_to(tmp_path / "precious")
    with pytest.raises(ApparatusError, match="second name"):
        Box(Sandbox(), (Mount(tmp_path / "ws", "/workspace", True),), SOMEBODY).own()
    assert (tmp_path / "precious").stat().st_uid == 0


def test_times_survive_a_change_of_owner(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    os.utime(file, ns=(5, 7))
    Box(Sandbox(), (Mount(tmp_path, "/workspace", True),)).own()
    assert file.stat().st_mtime_ns == 7


def test_a_named_bubblewrap_that_is_missing_is_an_apparatus_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_AB_BWRAP", "/nowhere/bwrap")
    with pytest.raises(ApparatusError, match=r"/nowhere/bwrap: No such file.*--sandbox none") as caught:
        sandbox.require(SandboxKind.BWRAP)
    assert caught.value.step == "sandbox"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "uid map: Permission denied.*namespaces"),
        ("echo 'bwrap: Unknown option --disable-userns' >&2; exit 1", "Unknown option.*0.8 or newer"),
        ("exit 0", "the box did not start"),
    ],
)
def test_a_bubblewrap_that_does_not_work_is_an_apparatus_fault_with_a_remedy(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.0.1 && exit\n{script}\n')
    broken.chmod(0o755)
    monkeypatch.setenv("AGENT_AB_BWRAP", str(broken))
    with pytest.raises(ApparatusError, match=message):
        sandbox.require(SandboxKind.BWRAP)


def test_without_a_box_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_AB_BWRAP", "/nowhere/bwrap")
    sandbox.require(SandboxKind.NONE)
    world = sandbox.describe(LOOSE)
    assert world["kind"] == "none"
    assert "processes" not in world["limits"]


def test_the_interpreter_is_the_systems_and_new_enough() -> None:
    path = sandbox.python()
    code = "import sys; print(sys.version_info >= (3, 9))"
    assert Path(path).is_absolute()
    done = process.run([path, "-I", "-c", code], env={"PATH": "/usr/bin:/bin"}, timeout_s=LONG_S)
    assert done.stdout == b"True\n"


def test_a_loose_command_gets_the_constant_environment_and_a_home_that_goes_away(loose: Box, tmp_path: Path) -> None:
    done = run(
        loose,
        tmp_path,
        "import os; print(sorted(os.environ)); print(os.environ['HOME']); print(os.path.isdir(os.environ['HOME']))",
    )
    names, home, there = done.stdout.decode().splitlines()
    assert names == str(sorted(sandbox.ENVIRONMENT))
    assert there == "True"
    assert not Path(home).exists()


def test_a_loose_command_is_given_its_input_and_directory(loose: Box, tmp_path: Path) -> None:
    done = loose.run(
        ["sh", "-c", "cat; pwd -P; echo $X"], cwd=tmp_path, env={"X": "y"}, timeout_s=LONG_S, stdin=b"in\n"
    )
    assert done.stdout.decode() == f"in\n{tmp_path.resolve()}\ny\n"


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -SEGV $$", 128 + signal.SIGSEGV)])
def test_the_status_of_a_loose_command_is_a_shells(script: str, status: int, loose: Box, tmp_path: Path) -> None:
    assert loose.run(["sh", "-c", script], cwd=tmp_path, env={}, timeout_s=LONG_S).exit_code == status


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as f:
            print(os.getpid(), file=f)
        time.sleep(600)
    os._exit(0)
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read().endswith("\\n")):
    time.sleep(0.01)
"""


def test_a_daemon_of_a_loose_command_is_hunted_down(loose: Box, tmp_path: Path) -> None:
    run(loose, tmp_path, DAEMON, str(tmp_path / "pid"))
    assert not process.exists(int((tmp_path / "pid").read_text()))


def test_a_daemon_of_a_loose_command_is_hunted_down_after_a_time_out(loose: Box, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"setsid sleep 600 & echo $! > {pid_file}; sleep 600"
    done = cut_off(
        lambda limit_s: loose.run(["sh", "-c", script], cwd=tmp_path, env={}, timeout_s=limit_s),
        lambda _: pid_file.exists() and bool(pid_file.read_text()),
    )
    assert done.timed_out
    assert done.exit_code == 137
    assert not process.exists(int(pid_file.read_text()))


def test_the_file_size_and_memory_of_a_loose_command_are_limited(tmp_path: Path) -> None:
    box = Box(Sandbox(kind=SandboxKind.NONE, file_size_mb=1, memory_mb=256), ())
    assert run(box, tmp_path, "open('big', 'wb').write(b'x' * 3_000_000)").exit_code != 0
    assert (tmp_path / "big").stat().st_size <= 1024 * 1024
    assert b"MemoryError" in run(box, tmp_path, "bytearray(2**30)").stderr


def test_a_loose_flood_is_cut_and_flagged(loose: Box, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os\nfor _ in range(100): os.write(1, b'x' * 65536)"
    done = loose.run([sys.executable, "-c", code], cwd=tmp_path, env={}, timeout_s=LONG_S, cap_bytes=1000, output=log)
    assert done.truncated
    assert log.stat().st_size == 1000


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program"])
def test_a_program_that_is_not_on_the_host_is_an_apparatus_fault(name: str, loose: Box, tmp_path: Path) -> None:
    with pytest.raises(ApparatusError, match=f"no program {name} on the host"):
        loose.run([name], cwd=tmp_path, env={}, timeout_s=LONG_S)
