"""What a server runs is found in a real process: mapped, replaced, written over, executed."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.server import ran
from agent_ab.server.ran import Planned

MAPS = "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); print(flush=True); input()"


@contextmanager
def running(*argv: str) -> Iterator[int]:
    """Give the pid of a process that has printed a line and waits for its input to end."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        child.stdout.readline()
        yield child.pid
        child.stdin.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights" * 1000)
    return path


def planned(path: Path) -> Planned:
    def again() -> str:
        return sha256(path.read_bytes()).hexdigest()

    return Planned("model", (path,), again(), again)


def test_a_file_that_the_server_has_mapped_is_recorded_as_such(model: Path, tmp_path: Path) -> None:
    with running(sys.executable, "-c", MAPS, str(model)) as pid:
        (file,) = ran.look(pid, [planned(model)], tmp_path / "log")
    assert (file.path, file.inode, file.size, file.mapped) == (str(model), model.stat().st_ino, 7000, True)


def test_a_file_that_was_only_read_is_known_by_its_path(model: Path, tmp_path: Path) -> None:
    with running(sys.executable, "-c", "print(flush=True); input()") as pid:
        (file,) = ran.look(pid, [planned(model)], tmp_path / "log")
    assert not file.mapped


def test_another_file_at_the_same_path_is_refused_even_with_equal_content(model: Path, tmp_path: Path) -> None:
    one = planned(model)
    with running(sys.executable, "-c", MAPS, str(model)) as pid:
        shutil.copy(model, tmp_path / "other")
        (tmp_path / "other").rename(model)
        with pytest.raises(ApparatusError, match="the model was replaced: the server runs another file"):
            ran.look(pid, [one], tmp_path / "log")


def test_content_that_was_written_over_is_refused_with_both_digests(model: Path, tmp_path: Path) -> None:
    one = planned(model)
    model.write_bytes(b"others!" * 1000)
    with (
        running(sys.executable, "-c", MAPS, str(model)) as pid,
        pytest.raises(ApparatusError, match=f"the model is not the one that was planned.*{one.sha256[:12]}"),
    ):
        ran.look(pid, [one], tmp_path / "log")


def test_a_file_that_is_gone_is_refused(model: Path, tmp_path: Path) -> None:
    one = planned(model)
    with running(sys.executable, "-c", MAPS, str(model)) as pid:
        model.unlink()
        with pytest.raises(ApparatusError, match="the model cannot be read any more"):
            ran.look(pid, [one], tmp_path / "log")


def test_a_file_that_was_written_to_between_two_looks_is_refused(model: Path, tmp_path: Path) -> None:
    with running(sys.executable, "-c", MAPS, str(model)) as pid:
        before = ran.look(pid, [planned(model)], tmp_path / "log")
    ran.require_same(before, before, tmp_path / "log")
    later = [replace(file, mtime_ns=file.mtime_ns + 1) for file in before]
    with pytest.raises(ApparatusError, match=r"model\.gguf was changed while the server ran"):
        ran.require_same(before, later, tmp_path / "log")


def test_the_program_that_runs_must_be_the_one_at_its_path(tmp_path: Path) -> None:
    program = tmp_path / "server"
    shutil.copy(shutil.which("cat") or "", program)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as child:
        ran.require_executed(child.pid, program, tmp_path / "log")
        shutil.copy(program, tmp_path / "other")
        (tmp_path / "other").rename(program)
        with pytest.raises(ApparatusError, match="the server does not execute"):
            ran.require_executed(child.pid, program, tmp_path / "log")
        assert child.stdin
        child.stdin.close()


def test_a_script_is_executed_by_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "server"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o755)
    with subprocess.Popen([script], stdin=subprocess.PIPE) as child:
        ran.require_executed(child.pid, script, tmp_path / "log")
        assert child.stdin
        child.stdin.close()
