"""The agents in the real box, and the built-in one against the real llama-server."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent_ab import agents, workspace
from agent_ab.agents import AgentJob
from agent_ab.config import Agent, Sandbox
from agent_ab.model import AgentEnd, Task
from agent_ab.sandbox import Box, Mount
from tests.agent_program import DONE, calls
from tests.fakes.scripted_model import Hang, ScriptedModel, serving

IN_THE_BOX = "http://127.0.0.1:8080/v1"


@pytest.fixture
def place() -> Iterator[Path]:
    # A unix socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="agents-") as name:
        yield Path(name)


def job(task: Task, place: Path, **settings: object) -> AgentJob:
    workspace.checkout(task, place / "ws", place / "trusted.git")
    mounts = (Mount(place / "ws", "/workspace", writable=True),)
    box = Box(Sandbox(), mounts, proxy=place / "model.sock" if (place / "model.sock").exists() else None)
    agent = Agent.model_validate({"time_limit_s": 60.0, **settings})
    return AgentJob(agent, task, box, place / "ws", IN_THE_BOX, place / "agent.log", context=8192)


def running(word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if word in " ".join(process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def test_built_in_agent_works_in_the_box_through_the_socket(transfer_repair: Task, place: Path) -> None:
    line = "id -un; pwd; ls -a; echo x > made"
    with serving([calls(("bash", {"command": line})), DONE], socket=place / "model.sock") as model:
        ran = agents.run(job(transfer_repair, place), lambda _: None)
    assert (ran.end, ran.exit_code, ran.note) == (AgentEnd.COMPLETED, 0, "completed in turn 2")
    system, _, _, result = model.requests[1]["messages"]
    assert "/workspace" in system["content"] and str(place) not in json.dumps(model.requests)
    assert result["content"].startswith("agent\n/workspace\n.\n..\n.git\n")
    assert (place / "ws" / "made").read_text() == "x\n"


def test_everything_in_the_box_is_dead_after_a_timeout(transfer_repair: Task, place: Path) -> None:
    marker = f"{time.time_ns()}"
    line = f"setsid sleep 98{marker} & sleep 97{marker}"
    with serving([calls(("bash", {"command": line})), Hang()], socket=place / "model.sock"):
        ran = agents.run(job(transfer_repair, place, time_limit_s=3.0), lambda _: None)
    assert ran.end is AgentEnd.TIMEOUT
    assert running(marker) == []


class Refused(Exception):
    """What a watcher raises."""


def test_everything_in_the_box_is_dead_when_the_watcher_raises(transfer_repair: Task, place: Path) -> None:
    marker = f"{time.time_ns()}"

    def watch(_elapsed_s: float) -> None:
        if running(f"sleep 98{marker}"):
            raise Refused

    seen: ScriptedModel
    with serving(
        [calls(("bash", {"command": f"setsid sleep 98{marker} & wait"}))], socket=place / "model.sock"
    ) as seen:
        with pytest.raises(Refused):
            agents.run(job(transfer_repair, place), watch)
        assert len(seen.bodies) == 1
    assert running(marker) == []


@pytest.mark.parametrize("kind", ["oracle", "nop"])
def test_agents_without_a_model_leave_a_workspace_that_the_box_s_user_owns(
    transfer_repair: Task, place: Path, kind: str
) -> None:
    it = job(transfer_repair, place, kind=kind)
    assert agents.run(it, lambda _: None).end is AgentEnd.COMPLETED
    done = it.box.run([*transfer_repair.public_tests], cwd=it.workspace, env={}, timeout_s=60)
    assert done.exit_code == 0, done.stderr.decode()
    written = it.box.run(["touch", "wallet/transfers.py"], cwd=it.workspace, env={}, timeout_s=60)
    assert written.exit_code == 0
