"""The record of running children."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from agent_ab import process
from agent_ab.session import children


def test_each_child_is_told_when_it_is_born_and_when_it_is_gone() -> None:
    heard: list[tuple[str, int]] = []
    with children.recorded(lambda what, pid: heard.append((what, pid))):
        process.run([sys.executable, "-c", ""], env={}, timeout_s=60)
    (born, pid), (gone, same) = heard
    assert (born, gone, pid) == ("born", "gone", same)


def test_nobody_is_told_after_the_block() -> None:
    heard: list[str] = []
    with children.recorded(lambda what, _: heard.append(what)):
        pass
    process.run([sys.executable, "-c", ""], env={}, timeout_s=60)
    assert heard == []


def test_all_running_children_are_killed_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    log = tmp_path / "log"
    with process.started(argv, env={}, log=log, name="sleeper") as child:
        while not log.read_text():
            pass
        children.kill_all()
        assert child.wait(10) == -signal.SIGKILL


def test_pid_and_birth_name_a_process_for_good() -> None:
    mine = children.birth(os.getpid())
    assert mine and mine == children.birth(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as other:
        assert children.birth(other.pid) != mine
    assert children.birth(other.pid) == ""
