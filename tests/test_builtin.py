"""The built-in agent's adapter, without a sandbox: what it hands over, and how ends are told apart."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from agent_ab import agents
from agent_ab.agents import AgentJob
from agent_ab.agents.builtin import PROGRAM, last_words
from agent_ab.config import Agent, Sandbox
from agent_ab.model import AgentEnd, SandboxKind, Task
from agent_ab.sandbox import Box, Mount
from tests.agent_program import DONE, calls
from tests.fakes.scripted_model import Hang, Http, Say, ScriptedModel, serving
from tests.tiny_task import tiny_task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return tiny_task(tmp_path / "tasks")


def job(task: Task, tmp_path: Path, url: str, **settings: object) -> AgentJob:
    workspace = tmp_path / "ws"
    workspace.mkdir(exist_ok=True)
    (workspace / "calc.py").write_text("def add(a, b):\n    return a\n")
    box = Box(Sandbox(kind=SandboxKind.NONE), (Mount(workspace, "/workspace", writable=True),), uid=None)
    agent = Agent.model_validate({"time_limit_s": 60.0, **settings})
    return AgentJob(agent, task, box, workspace, url, tmp_path / "agent.log", context=8192)


def ignore(_elapsed_s: float) -> None:
    """Watch nothing."""


def test_agent_works_in_the_workspace_and_its_end_is_noted(task: Task, tmp_path: Path) -> None:
    edit = calls(("edit", {"path": "calc.py", "old": "return a", "new": "return a + b"}))
    with serving([edit, DONE]) as model:
        it = job(task, tmp_path, model.url, response_budget=700, reasoning_effort="high")
        ran = agents.run(it, ignore)
    assert (ran.end, ran.exit_code, ran.note, ran.time_limit_s) == (AgentEnd.COMPLETED, 0, "completed in turn 2", 60.0)
    assert ran.duration_s > 0 and "return a + b" in (it.workspace / "calc.py").read_text()
    request = model.requests[0]
    assert request["messages"][1] == {"role": "user", "content": task.instruction}
    assert (request["max_tokens"], request["reasoning_effort"]) == (700, "high")
    assert str(it.workspace) in request["messages"][0]["content"]
    assert json.loads(it.log.read_text().splitlines()[0])["event"] == "start"


def test_first_request_is_the_same_wherever_the_adapter_keeps_its_files(task: Task, tmp_path: Path) -> None:
    with serving([DONE, DONE]) as model:
        it = job(task, tmp_path, model.url)
        agents.run(it, ignore)
        agents.run(replace(it, log=tmp_path / "other.log"), ignore)
    assert model.bodies[0] == model.bodies[1]


@pytest.mark.parametrize(
    ("answer", "end", "exit_code", "note"),
    [
        (Say("cut", finish="length"), AgentEnd.COMPLETED, 0, "budget in turn 2"),
        (Http(404, "no such path"), AgentEnd.CRASHED, 3, "server-error in turn 1 no such path"),
        (Say(""), AgentEnd.CRASHED, 4, "no-progress in turn 2"),
    ],
)
def test_ends_are_told_apart(task: Task, tmp_path: Path, answer: Say, end: AgentEnd, exit_code: int, note: str) -> None:
    with serving([answer, answer]) as model:
        ran = agents.run(job(task, tmp_path, model.url), ignore)
    assert (ran.end, ran.exit_code, ran.note) == (end, exit_code, note)


def test_agent_that_is_out_of_time_is_a_timeout_and_not_a_crash(task: Task, tmp_path: Path) -> None:
    with serving([Hang()]) as model:
        ran = agents.run(job(task, tmp_path, model.url, time_limit_s=1.0), ignore)
    assert (ran.end, ran.exit_code, ran.time_limit_s) == (AgentEnd.TIMEOUT, None, 1.0)


class Refused(Exception):
    """What a watcher raises."""


def test_watcher_that_raises_ends_the_agent(task: Task, tmp_path: Path) -> None:
    def watch(_elapsed_s: float) -> None:
        if seen.asked.is_set():
            raise Refused

    seen: ScriptedModel
    with serving([Hang()]) as seen:
        with pytest.raises(Refused):
            agents.run(job(task, tmp_path, seen.url), watch)
        assert len(seen.bodies) == 1
    assert '"request"' in (tmp_path / "agent.log").read_text().splitlines()[-1]


def test_last_words_of_a_program_that_broke_are_its_traceback_s_last_line(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text('{"event": "start"}\nTraceback (most recent call last):\n  File "x"\nKeyError: 7\n\n')
    assert last_words(log) == "KeyError: 7"
    log.write_bytes(b"")
    assert last_words(log) == ""
    log.write_text('{"event": "error", "turn": 3, "message": "Compute error."}\n')
    assert last_words(log) == "error in turn 3: Compute error."
    log.write_text('{"event": "tool", "turn": 4}\n')
    assert last_words(log) == "cut off in turn 4"
    log.write_bytes(b"\xff[1]")
    assert last_words(log) == "\ufffd[1]"


def test_identity_names_kind_version_and_program() -> None:
    digest = sha256(PROGRAM.read_bytes()).hexdigest()
    assert agents.identity(Agent()) == {"kind": "builtin", "version": "1", "sha256": digest}
