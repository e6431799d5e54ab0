"""A start of agent-ab: its temporary files, its children, and the database that it has for itself."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.session.session import playing, session
from tests.command import ROOT
from tests.conftest import ignore

PLAYS = """
import sys, time
from pathlib import Path
from agent_ab import process
from agent_ab.model import Event
from agent_ab.session.session import playing

def say(event: Event) -> None:
    print(event.message, flush=True)

with playing(Path("runs.db"), Path("runs"), say):
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    with process.started(argv, env={}, log=Path("log"), name="sleeper") as child:
        print("plays", child.pid, flush=True)
        if sys.argv[1:] == ["wait"]:
            sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def plays(cwd: Path, *words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(cwd)}
    return subprocess.Popen(
        [sys.executable, "-c", PLAYS, *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_all_temporary_files_lie_in_one_directory_that_goes_with_the_block(own_cache: Path) -> None:
    before = tempfile.gettempdir()
    with session(ignore) as scratch:
        assert tempfile.gettempdir() == str(scratch) and scratch.stat().st_mode & 0o777 == 0o711
        Path(tempfile.mkdtemp(), "file").touch()
    assert not scratch.exists() and tempfile.gettempdir() == before
    assert list((own_cache / "live").iterdir()) == []


def test_they_go_when_the_block_raises(own_cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt), session(ignore) as scratch:
        raise KeyboardInterrupt
    assert not scratch.exists() and list((own_cache / "live").iterdir()) == []


def test_a_database_that_cannot_be_made_is_named_and_nothing_stays(tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/runs\.db"), playing(tmp_path / "file" / "runs.db", tmp_path, ignore):
        pass
    assert list((own_cache / "live").iterdir()) == []


def test_a_second_start_on_the_same_database_says_that_it_waits_and_then_plays(tmp_path: Path) -> None:
    with plays(tmp_path, "wait") as first:
        assert first.stdout and first.stdin
        assert first.stdout.readline().startswith("plays")
        with plays(tmp_path) as second:
            assert second.stdout
            said = second.stdout.readline()
            assert "waiting for another process" in said and str(first.pid) in said and "runs.db" in said
            first.stdin.write("go\n")
            first.stdin.flush()
            rest = second.stdout.read()
            assert rest.splitlines()[-1].startswith("plays")
        assert second.returncode == 0
    assert first.returncode == 0


def test_a_killed_start_holds_nothing_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    with plays(tmp_path, "wait") as first:
        assert first.stdout
        first.stdout.readline()
        assert len(list(tmp_path.glob("agent-ab-*"))) == 1
        first.send_signal(signal.SIGKILL)
    with plays(tmp_path) as second:
        assert second.stdout
        said = second.stdout.read().splitlines()
    assert "was cut off" in said[0] and "removed" in said[0] and said[-1].startswith("plays")
    assert list(tmp_path.glob("agent-ab-*")) == []
