import hashlib
import os
import socket
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab import snapshot, workspace
from agent_ab.errors import UserError
from agent_ab.model import Patch, Task
from agent_ab.snapshot import Snapshot
from agent_ab.workspace import EPOCH, Checkout
from tests.small_task import small_task, write


class Attempt:
    """A checked-out workspace that a test may spoil."""

    def __init__(self, scratch: Path) -> None:
        task = small_task(scratch / "tasks")
        with pytest.raises(UserError) as caught:
            workspace.checkout(task, scratch / "first", scratch / "first.git")
        words = str(caught.value).split('"')
        self.task: Task = replace(task, fixture_commit=words[1], fixture_manifest=words[3])
        self.own = scratch / "w"
        self.trusted = scratch / "t.git"
        self.start: Checkout = workspace.checkout(self.task, self.own, self.trusted)
        self.frozen = scratch / "frozen"
        self.archive = scratch / "snapshot.tar"

    def freeze(self) -> Snapshot:
        return snapshot.freeze(self.own, self.frozen, self.archive)

    def diff(self) -> Patch:
        return snapshot.diff(self.task, self.trusted, self.start, self.frozen, self.freeze())


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    yield Attempt(tmp_path)
    for name in ("w", "frozen"):
        snapshot.remove(tmp_path / name)


def paths(taken: Snapshot) -> list[str]:
    return [file.path for file in taken.files]


def test_regular_files_are_kept_with_their_content_and_executable_bit(attempt: Attempt) -> None:
    taken = attempt.freeze()
    assert [(file.path, file.mode) for file in taken.files] == [
        ("app.py", 0o644),
        ("data/lines.txt", 0o644),
        ("run.sh", 0o755),
    ]
    assert taken.files[1].sha256 == hashlib.sha256(b"one\r\ntwo").hexdigest()
    assert taken.flags == ()
    assert (attempt.frozen / "data" / "lines.txt").read_bytes() == b"one\r\ntwo"


def test_a_snapshot_is_read_only_and_its_times_are_pinned(attempt: Attempt) -> None:
    attempt.freeze()
    modes = {
        p.relative_to(attempt.frozen).as_posix(): stat.S_IMODE(p.stat().st_mode) for p in attempt.frozen.rglob("*")
    }
    assert modes == {"app.py": 0o444, "data": 0o555, "data/lines.txt": 0o444, "run.sh": 0o555}
    assert stat.S_IMODE(attempt.frozen.stat().st_mode) == 0o555
    assert {path.stat().st_mtime for path in attempt.frozen.rglob("*")} == {EPOCH}


def test_equal_workspaces_give_equal_archives(attempt: Attempt, tmp_path: Path) -> None:
    attempt.freeze()
    for path in attempt.own.rglob("*"):
        os.utime(path, (1, 1))
    (attempt.own / "app.py").chmod(0o604)
    snapshot.freeze(attempt.own, tmp_path / "again", tmp_path / "again.tar")
    assert attempt.archive.read_bytes() == (tmp_path / "again.tar").read_bytes()
    with tarfile.open(attempt.archive) as tar:
        assert next((m.name, m.mode, m.uid, m.mtime) for m in tar.getmembers()) == ("app.py", 0o644, 0, EPOCH)


def test_compiled_files_and_git_data_are_dropped(attempt: Attempt) -> None:
    for name in ("__pycache__/app.cpython-311.pyc", "app.pyc", "data/.git/config", "sub/.GIT/HEAD"):
        (attempt.own / name).parent.mkdir(parents=True, exist_ok=True)
        (attempt.own / name).write_bytes(b"x")
    taken = attempt.freeze()
    assert paths(taken) == ["app.py", "data/lines.txt", "run.sh"]
    assert len([flag for flag in taken.flags if "git's own data" in flag]) == 2


@pytest.mark.parametrize("to", ["/etc/passwd", "../outside", "data/../../outside", "nowhere", "run.sh/x", "/dev/zero"])
def test_a_link_that_leads_out_is_flagged_and_its_target_never_read(attempt: Attempt, to: str) -> None:
    (attempt.own.parent / "outside").write_text("a secret")
    (attempt.own / "leak").symlink_to(to)
    taken = attempt.freeze()
    assert paths(taken) == ["app.py", "data/lines.txt", "run.sh"]
    assert taken.flags == ("leak left out: a link that leads out of the workspace or nowhere",)
    assert b"secret" not in attempt.archive.read_bytes()


def test_a_file_that_became_a_link_out_is_gone_from_the_snapshot(attempt: Attempt) -> None:
    (attempt.own / "app.py").unlink()
    (attempt.own / "app.py").symlink_to("/etc/passwd")
    patch = attempt.diff()
    assert patch.files == ("app.py",)
    assert "deleted file mode 100644" in patch.text


def test_a_directory_that_became_a_link_out_is_not_entered(attempt: Attempt) -> None:
    (attempt.own / "data" / "lines.txt").unlink()
    (attempt.own / "data").rmdir()
    (attempt.own / "data").symlink_to("/etc")
    assert paths(attempt.freeze()) == ["app.py", "run.sh"]


def test_a_link_inside_the_workspace_is_kept_and_flagged(attempt: Attempt) -> None:
    (attempt.own / "data" / "alias.py").symlink_to("../app.py")
    (attempt.own / "copy").symlink_to("data")
    taken = attempt.freeze()
    assert [(file.path, file.mode) for file in taken.files if file.mode == 0o120000] == [
        ("copy", 0o120000),
        ("data/alias.py", 0o120000),
    ]
    assert taken.flags == ("copy is a link to data", "data/alias.py is a link to ../app.py")
    patch = snapshot.diff(attempt.task, attempt.trusted, attempt.start, attempt.frozen, taken)
    assert patch.files == ("copy", "data/alias.py")
    assert "new file mode 120000" in patch.text


def test_links_through_links_and_loops_are_left_out(attempt: Attempt) -> None:
    (attempt.own / "a").symlink_to("b")
    (attempt.own / "b").symlink_to("a")
    (attempt.own / "self").symlink_to(".")
    (attempt.own / "way").symlink_to("self/app.py")
    taken = attempt.freeze()
    assert paths(taken) == ["app.py", "data/lines.txt", "run.sh", "self"]
    assert len(taken.flags) == 4


def test_fifos_sockets_and_devices_are_never_opened(attempt: Attempt) -> None:
    os.mkfifo(attempt.own / "fifo")
    (attempt.own / "app.py").unlink()
    os.mkfifo(attempt.own / "app.py")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(attempt.own / "socket"))
    expected = {"app.py left out: a FIFO", "fifo left out: a FIFO", "socket left out: a socket"}
    if os.geteuid() == 0:
        os.mknod(attempt.own / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        expected.add("zero left out: a device")
    taken = attempt.freeze()
    assert set(taken.flags) == expected
    assert paths(taken) == ["data/lines.txt", "run.sh"]


def test_what_its_owner_may_not_read_is_read_all_the_same(attempt: Attempt) -> None:
    (attempt.own / "app.py").chmod(0)
    (attempt.own / "data").chmod(0)
    attempt.own.chmod(0)
    assert paths(attempt.freeze()) == ["app.py", "data/lines.txt", "run.sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="as a plain user the test above is this test")
def test_a_plain_user_can_freeze_and_remove_what_was_locked() -> None:
    room = Path(tempfile.mkdtemp(prefix="agent-ab-test-"))
    write(room / "w", {"app.py": "x", "data/lines.txt": "y"})
    for path in (room / "w" / "data" / "lines.txt", room / "w" / "data", room / "w" / "app.py", room / "w", room):
        path.chmod(0o700 if path == room else 0)
        os.chown(path, 61999, 61999)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgid(61999)
            os.setuid(61999)
            taken = snapshot.freeze(room / "w", room / "frozen", room / "a.tar")
            snapshot.remove(room / "w")
            snapshot.remove(room / "frozen")
            status = 0 if len(taken.files) == 2 and [p.name for p in room.iterdir()] == ["a.tar"] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    snapshot.remove(room)


def test_strange_names_are_kept_and_shown_on_one_line(attempt: Attempt) -> None:
    root = os.fsencode(attempt.own)
    for name in (b"two\nlines", b"latin-\xe9.py", b" ", b"-rf", b'quo"te', "žluť.py".encode()):
        Path(os.fsdecode(root + b"/" + name)).write_bytes(b"x\n")
    patch = attempt.diff()
    assert len(patch.files) == 6
    assert "latin-\\xe9.py" in patch.files
    assert "two\\nlines" in patch.files
    "".join(patch.files).encode()
    assert patch.text.count("new file mode") == 6


def test_long_paths_and_deep_directories_are_left_out_with_a_flag(attempt: Attempt) -> None:
    deep = os.open(attempt.own, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d" * 100, dir_fd=deep)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    os.close(deep)
    (attempt.own / ("n" * 255)).write_bytes(b"")
    taken = attempt.freeze()
    assert any("its path is longer" in flag for flag in taken.flags)
    assert "n" * 255 in paths(taken)


def test_counts_and_sizes_are_capped_and_the_flags_stay_short(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MAX_FILES", 10)
    monkeypatch.setattr(snapshot, "MAX_FILE_BYTES", 100)
    (attempt.own / "big").write_bytes(b"x" * 101)
    (attempt.own / "aaa").mkdir()
    for number in range(50):
        (attempt.own / "aaa" / f"{number:02}").write_bytes(b"")
    taken = attempt.freeze()
    assert len(taken.files) == 10
    assert "app.py" in paths(taken)
    assert len(taken.flags) == 1 + snapshot.SHOWN + 1
    assert any(flag.startswith("big left out: more than 100 bytes") for flag in taken.flags)


def test_a_workspace_that_is_gone_gives_an_empty_snapshot(attempt: Attempt) -> None:
    snapshot.remove(attempt.own)
    patch = attempt.diff()
    assert patch.files == ("app.py", "data/lines.txt", "run.sh")
    assert patch.edited_production


def test_an_untouched_workspace_gives_an_empty_patch(attempt: Attempt) -> None:
    assert attempt.diff() == Patch(text="", files=(), edited_production=False, flags=())


def test_a_patch_turns_the_fixture_into_the_snapshot(attempt: Attempt, tmp_path: Path) -> None:
    (attempt.own / "app.py").write_bytes(b"def double(x):\r\n    return x + x")
    (attempt.own / "run.sh").chmod(0o644)
    (attempt.own / "data" / "lines.txt").unlink()
    (attempt.own / "new").mkdir()
    (attempt.own / "new" / "image.png").write_bytes(bytes(range(256)) * 20)
    (attempt.own / "empty").write_bytes(b"")
    patch = attempt.diff()
    assert patch.files == ("app.py", "data/lines.txt", "empty", "new/image.png", "run.sh")
    assert patch.edited_production
    again = tmp_path / "again"
    workspace.lay(attempt.task, again)
    env = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    subprocess.run(["git", "apply"], cwd=again, env=env, input=patch.text.encode(), check=True)
    taken = snapshot.freeze(again, tmp_path / "f2", tmp_path / "a2")
    assert (tmp_path / "a2").read_bytes() == attempt.archive.read_bytes()
    assert len(taken.files) == 4


def test_a_snapshot_is_one_pack_in_the_trusted_repository_and_not_a_file_for_each_of_its_files(
    attempt: Attempt,
) -> None:
    for number in range(50):
        (attempt.own / f"{number}.txt").write_text(f"{number}\n")
    (attempt.own / "same.txt").write_text("1\n")
    before = sum(path.is_file() for path in (attempt.trusted / "objects").rglob("*"))
    patch = attempt.diff()
    assert len(patch.files) == 51 and patch.text.count("new file mode") == 51
    added = sum(path.is_file() for path in (attempt.trusted / "objects").rglob("*")) - before
    assert added == len(("a pack", "its index"))
    env = {"PATH": os.environ["PATH"]}
    subprocess.run(["git", f"--git-dir={attempt.trusted}", "fsck", "--full", "--strict"], env=env, check=True)


def test_ignored_files_and_the_agents_commits_are_in_the_patch(attempt: Attempt) -> None:
    (attempt.own / ".gitignore").write_text("*\n")
    (attempt.own / "hidden.py").write_text("x = 1\n")
    (attempt.own / "app.py").write_text("def double(x):\n    return 2 * x\n")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    subprocess.run(["git", "commit", "-q", "-am", "done"], cwd=attempt.own, env=env, check=True)
    assert attempt.diff().files == (".gitignore", "app.py", "hidden.py")


def test_nothing_that_the_workspace_says_to_git_is_obeyed(attempt: Attempt, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    with (attempt.own / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {tmp_path}\n[diff]\n\texternal = {trap}\n")
        config.write(f'[filter "f"]\n\tclean = {trap}\n\tsmudge = {trap}\n[diff "f"]\n\ttextconv = {trap}\n')
    (attempt.own / ".gitattributes").write_text("* filter=f diff=f -text\napp.py binary\n*.txt export-ignore -diff\n")
    (attempt.own / "app.py").write_text("def double(x):\n    return 3\n")
    patch = attempt.diff()
    assert not (tmp_path / "sprung").exists()
    assert "+    return 3" in patch.text


def test_a_file_that_is_not_utf8_makes_a_binary_patch_that_still_applies(attempt: Attempt, tmp_path: Path) -> None:
    (attempt.own / "app.py").write_bytes("# café\n".encode("latin-1"))
    patch = attempt.diff()
    assert patch.flags == ("a changed file is not UTF-8; the patch is in git's binary form",)
    patch.text.encode("ascii")
    workspace.lay(attempt.task, tmp_path / "again")
    env = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    subprocess.run(["git", "apply"], cwd=tmp_path / "again", env=env, input=patch.text.encode(), check=True)
    assert (tmp_path / "again" / "app.py").read_bytes() == "# café\n".encode("latin-1")


def test_a_huge_patch_is_cut_and_says_so(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_PATCH_BYTES", 1000)
    (attempt.own / "app.py").write_text("é\n" * 5000)
    patch = attempt.diff()
    assert len(patch.text) <= 1000
    assert patch.flags == ("the patch was cut at 1000 bytes; the snapshot has everything",)
    assert patch.files == ("app.py",)


def test_test_files_are_not_production_code(attempt: Attempt) -> None:
    (attempt.own / "test_app.py").write_text("")
    assert not attempt.diff().edited_production


def test_a_hostile_tree_can_be_removed(attempt: Attempt) -> None:
    bottom = os.open(attempt.own, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 200, dir_fd=bottom)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=bottom)
        os.close(bottom)
        bottom = inner
    os.symlink("/etc", "etc", dir_fd=bottom)
    os.close(bottom)
    (attempt.own / "data").chmod(0)
    (attempt.own / "out").symlink_to(attempt.own.parent)
    snapshot.remove(attempt.own)
    assert not attempt.own.exists()
    assert attempt.own.parent.exists()
    snapshot.remove(attempt.own)
