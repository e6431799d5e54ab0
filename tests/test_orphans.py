"""What a killed start left is ended and removed by the next one, and nothing else is touched."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent_ab import process
from agent_ab.errors import UserError
from agent_ab.model import Event
from agent_ab.session import orphans
from tests.command import ROOT

START = """
import os, sys, time
from pathlib import Path
from agent_ab.session import children, orphans

folder, scratch = map(Path, sys.argv[1:])
with orphans.Ledger.kept(folder, scratch) as ledger, children.recorded(ledger.note):
    scratch.mkdir()
    from agent_ab import process
    (scratch / "file").write_text("half written")
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    given = process.Given(guard=False)
    popen = process._spawn(argv, env={}, cwd=None, stdin=-3, stdout=-3, stderr=-3, guard=False)
    print(popen.pid, flush=True)
    time.sleep(600)
"""


@contextmanager
def start(folder: Path, scratch: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A start with a scratch directory and a child that the kernel does not end with it."""
    argv = [sys.executable, "-c", START, str(folder), str(scratch)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}) as popen:
        assert popen.stdout is not None
        child = int(popen.stdout.readline())
        try:
            yield popen, child
        finally:
            popen.kill()
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def kill(popen: "subprocess.Popen[str]") -> None:
    popen.kill()
    popen.wait()


def swept(folder: Path) -> list[str]:
    told: list[Event] = []
    orphans.sweep(folder, told.append)
    assert all(event.lasting for event in told)
    return [event.message for event in told]


def test_children_and_scratch_of_a_killed_start_are_ended_and_removed(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with start(folder, scratch) as (popen, child):
        kill(popen)
        assert process.exists(child) and scratch.is_dir()
        (said,) = swept(folder)
        assert "ended 1 processes" in said and str(scratch) in said and str(popen.pid) in said
        assert not process.exists(child) and not scratch.exists() and list(folder.iterdir()) == []
        assert swept(folder) == []


def test_a_start_that_lives_is_left_alone(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with start(folder, scratch) as (_, child):
        assert swept(folder) == []
        assert process.exists(child) and scratch.is_dir()


def test_a_process_that_lives_in_the_scratch_directory_is_found_without_being_recorded(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with start(folder, scratch) as (popen, _):
        home = {"HOME": f"{scratch}/home"}
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        with subprocess.Popen(sleeper, env=home, start_new_session=True) as lost:
            kill(popen)
            assert "ended 2 processes" in swept(folder)[0]
            assert lost.wait(10) == -signal.SIGKILL


def test_a_process_that_has_the_scratch_directory_mounted_is_found_as_a_box_would_be(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with start(folder, scratch) as (popen, _):
        (scratch / "workspace").mkdir()
        (tmp_path / "seen").mkdir()
        script = f'mount --bind "{scratch}/workspace" "{tmp_path}/seen" && echo up && exec sleep 600'
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
        argv = [*unshare, "sh", "-c", script]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as box:
            assert box.stdout is not None
            if box.stdout.readline() != "up\n":
                pytest.skip("no mount namespace here")
            kill(popen)
            assert "ended 2 processes" in swept(folder)[0]
            assert box.wait(10) == -signal.SIGKILL


def test_a_process_that_has_a_recorded_pid_and_another_birth_is_not_ours(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        with start(folder, scratch) as (popen, _):
            kill(popen)
            (ledger,) = folder.glob("*.jsonl")
            with ledger.open("a") as file:
                file.write(json.dumps(["born", other.pid, "1"]) + "\n")
            swept(folder)
        assert other.poll() is None
        other.kill()


def test_a_child_that_was_gone_is_not_looked_for(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with start(folder, scratch) as (popen, child):
        kill(popen)
        (ledger,) = folder.glob("*.jsonl")
        with ledger.open("a") as file:
            file.write(json.dumps(["gone", child, ""]) + "\n")
        assert "ended" not in swept(folder)[0]
        assert process.exists(child)


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with start(folder, scratch) as (popen, child):
        kill(popen)
        (ledger,) = folder.glob("*.jsonl")
        with ledger.open("a") as file:
            file.write('["born", 12')
        swept(folder)
        assert not process.exists(child)


@pytest.mark.parametrize("text", ["", "\0\0\0", "[]", '{"pid": 1}', '{"pid": "x", "scratch": "/", "boot": ""}'])
def test_a_record_that_cannot_be_read_is_named_and_set_aside_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "1-agent-ab-x1.jsonl").write_text(text)
    (said,) = swept(tmp_path)
    assert "cannot be read; set aside as" in said and (tmp_path / "1-agent-ab-x1.unreadable").exists()
    assert swept(tmp_path) == []


def test_processes_of_another_boot_are_nobodys_and_its_scratch_directory_goes(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "live", tmp_path / "agent-ab-x1"
    with start(folder, scratch) as (popen, child):
        kill(popen)
        (ledger,) = folder.glob("*.jsonl")
        head, *rest = ledger.read_text().splitlines(keepends=True)
        changed = json.loads(head) | {"boot": "another"}
        ledger.write_text("".join([json.dumps(changed) + "\n", *rest]))
        swept(folder)
        assert process.exists(child) and not scratch.exists()


@pytest.mark.parametrize("name", ["documents", "agent-ab-link"])
def test_a_directory_that_is_not_a_scratch_directory_of_ours_is_never_removed(tmp_path: Path, name: str) -> None:
    folder, precious = tmp_path / "live", tmp_path / "precious"
    precious.mkdir()
    target = tmp_path / name
    if name.startswith("agent-ab"):
        target.symlink_to(precious)
    else:
        target.mkdir()
    with start(folder, tmp_path / "agent-ab-x1") as (popen, _):
        kill(popen)
        (ledger,) = folder.glob("*.jsonl")
        head, *rest = ledger.read_text().splitlines(keepends=True)
        ledger.write_text("".join([json.dumps(json.loads(head) | {"scratch": str(target)}) + "\n", *rest]))
        swept(folder)
    assert target.exists() and precious.is_dir()


def test_a_ledger_goes_with_its_block(tmp_path: Path) -> None:
    with orphans.Ledger.kept(tmp_path / "live", tmp_path / "agent-ab-x1"):
        assert len(list((tmp_path / "live").glob("*.jsonl"))) == 1
    assert list((tmp_path / "live").iterdir()) == []


def test_a_place_that_cannot_hold_a_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="AGENT_AB_CACHE"),
        orphans.Ledger.kept(tmp_path / "file" / "live", tmp_path / "agent-ab-x1"),
    ):
        pass
