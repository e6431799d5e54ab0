"""A pinned start time."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent_ab import agents
from agent_ab.agents import AgentJob, clock
from agent_ab.config import Agent, Sandbox
from agent_ab.errors import UserError
from agent_ab.model import SandboxKind
from agent_ab.sandbox import Box
from tests.agent_program import DONE, calls
from tests.fakes.scripted_model import serving
from tests.tiny_task import tiny_task

MOMENT = "2026-03-01 12:00:00"
LOOSE = Box(Sandbox(kind=SandboxKind.NONE), (), uid=None)


def test_no_moment_is_the_real_time() -> None:
    box = Box(Sandbox(), ())
    clock.prepare("")
    assert clock.environment("") == {} and clock.identity("") == {} and clock.shown("", box) == box


def test_a_missing_library_is_named_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"agent\.clock needs libfaketime, which is missing: pip install libfaketime"):
        clock.of_the_system(tmp_path)


def test_the_library_is_found_where_distributions_put_it(tmp_path: Path) -> None:
    path = tmp_path / "usr/lib/riscv64-linux-gnu/faketime/libfaketimeMT.so.1"
    path.parent.mkdir(parents=True)
    path.touch()
    assert clock.of_the_system(tmp_path) == path


def test_a_moment_that_never_is_is_refused() -> None:
    with pytest.raises(UserError, match=r"agent\.clock: .*2026-02-30"):
        clock.prepare("2026-02-30 12:00:00")


def test_the_box_shows_the_library_at_one_path() -> None:
    box = clock.shown(MOMENT, Box(Sandbox(), ()))
    assert clock.environment(MOMENT, box)["LD_PRELOAD"] == clock.IN_THE_BOX == clock.environment(MOMENT)["LD_PRELOAD"]


def test_every_process_starts_at_the_moment_and_files_keep_their_times(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    env = {"PATH": "/usr/bin:/bin", "TZ": "UTC", **clock.environment(MOMENT, LOOSE)}
    said = [
        subprocess.run(["date", "+%F %H:%M"], env=env, capture_output=True, text=True, check=True).stdout for _ in "ab"
    ]
    assert said == ["2026-03-01 12:00\n"] * 2
    stat = subprocess.run(["stat", "-c", "%Y", file], env=env, capture_output=True, text=True, check=True).stdout
    assert int(stat) == int(file.stat().st_mtime)


def test_identity_says_which_library_pins_which_moment() -> None:
    said = clock.identity(MOMENT)
    assert said["clock"] == MOMENT and len(said["libfaketime_sha256"]) == 64


def test_the_built_in_agent_s_tools_start_at_the_moment(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    settings = Agent(clock=MOMENT, time_limit_s=60)
    with serving([calls(("bash", {"command": "date +%F"})), DONE]) as model:
        agents.run(
            AgentJob(settings, tiny_task(tmp_path), LOOSE, tmp_path / "ws", model.url, tmp_path / "log"), lambda _: None
        )
    assert "2026-03-01" in model.requests[1]["messages"][3]["content"]
    assert agents.identity(settings)["clock"] == MOMENT


def test_programs_sleep_and_wait_for_each_other_as_ever() -> None:
    clock.prepare(MOMENT)
    waits = "import queue, subprocess, time\ntime.sleep(0.01)\nsubprocess.run(['true'], timeout=5, check=True)\n"
    waits += "try: queue.Queue().get(timeout=0.01)\nexcept queue.Empty: print('waited')"
    env = {"PATH": "/usr/bin:/bin", **clock.environment(MOMENT, LOOSE)}
    done = subprocess.run(
        [sys.executable, "-I", "-c", waits], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "waited\n"
