"""The adapter for any command."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_ab.agents import command
from agent_ab.agents.job import AgentJob
from agent_ab.config import Agent, Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import AgentEnd, AgentRun, SandboxKind
from agent_ab.sandbox import Box, Mount
from tests.tiny_task import tiny_task

URL = "http://127.0.0.1:8080/v1"


def ignore(_elapsed_s: float) -> None:
    """Tick to nobody."""


def agent(*argv: str, **settings: object) -> Agent:
    return Agent.model_validate({"kind": "command", "command": argv, "time_limit_s": 30.0, **settings})


def make(tmp_path: Path, settings: Agent, requests: Callable[[], int] | None = None) -> AgentJob:
    (tmp_path / "ws").mkdir()
    mounts = (Mount(tmp_path / "ws", "/workspace", writable=True),)
    box = Box(Sandbox(kind=SandboxKind.NONE), mounts, uid=None)
    return AgentJob(settings, tiny_task(tmp_path), box, tmp_path / "ws", URL, tmp_path / "log", requests=requests)


def ran(tmp_path: Path, settings: Agent, requests: Callable[[], int] | None = None) -> AgentRun:
    return command.run(make(tmp_path, settings, requests), ignore)


def test_placeholders_are_filled_in_words_and_variables_in_one_pass(tmp_path: Path) -> None:
    script = 'printf "%s\\n" "$1" "$2" >words; printf "%s\\n" "$URL" "$HERE" >variables; cat >stdin; ls -a {home} >home'
    env = {"URL": "{base_url} {other}", "HERE": "{workspace}"}
    job = make(tmp_path, agent("sh", "-c", script, "sh", "{prompt}", "x={model}", env=env))
    run = command.run(job, ignore)
    assert (run.end, run.exit_code) == (AgentEnd.COMPLETED, 0)
    workspace = job.workspace
    assert (workspace / "words").read_text() == f"{job.task.instruction}\nx=local\n"
    assert (workspace / "variables").read_text() == f"{URL} {{other}}\n{workspace}\n"
    assert (workspace / "stdin").read_text() == ""
    assert (workspace / "home").read_text().split() == [".", ".."]


def test_an_instruction_that_no_word_takes_arrives_on_stdin(tmp_path: Path) -> None:
    job = make(tmp_path, agent("sh", "-c", "cat >stdin"))
    command.run(job, ignore)
    assert (job.workspace / "stdin").read_text() == job.task.instruction


def test_what_the_agent_prints_is_its_transcript_and_its_last_line_is_the_note(tmp_path: Path) -> None:
    run = ran(tmp_path, agent("sh", "-c", "echo begun; echo gave up >&2; exit 3"))
    assert (run.end, run.exit_code) == (AgentEnd.CRASHED, 3)
    assert run.note == "ended with status 3; its last lines: gave up"
    assert (tmp_path / "log").read_text() == "begun\ngave up\n"


def test_an_agent_out_of_time_is_cut_off(tmp_path: Path) -> None:
    run = ran(tmp_path, agent("sleep", "60", time_limit_s=0.3))
    assert (run.end, run.exit_code, run.note) == (AgentEnd.TIMEOUT, None, "cut off; it said nothing")


def test_an_agent_that_asks_nothing_within_its_start_up_limit_is_broken_apparatus(tmp_path: Path) -> None:
    settings = agent("sh", "-c", "echo retrying; sleep 60", startup_limit_s=0.3)
    with pytest.raises(ApparatusError, match=r"asked the model nothing within 0\.3 s .*its last lines: retrying"):
        ran(tmp_path, settings, requests=lambda: 0)


def test_an_agent_that_fails_before_it_asks_anything_is_broken_apparatus(tmp_path: Path) -> None:
    with pytest.raises(ApparatusError, match=r"ended with status 1 before it asked the model anything; .*no module"):
        ran(tmp_path, agent("sh", "-c", "echo no module >&2; exit 1"), requests=lambda: 0)


def test_an_agent_that_chooses_to_ask_nothing_is_its_arm_s_own_result(tmp_path: Path) -> None:
    assert ran(tmp_path, agent("true"), requests=lambda: 0).end is AgentEnd.COMPLETED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (agent(), r"agent\.command: agent\.kind = \"command\" needs"),
        (agent("sh", "{promt}"), r"agent\.command: unknown placeholder \{promt\}; did you mean \{prompt\}\?"),
        (agent("sh", env={"A": "{base_ulr}"}), r"agent\.env: unknown placeholder .* \{base_url\}"),
        (agent("sh", mounts={"/opt/x": "/nowhere"}), r"agent\.mounts: /nowhere: no such file"),
        (agent("sh", mounts={"opt": "/usr"}), r"agent\.mounts: opt: a path in the box is absolute"),
    ],
)
def test_what_cannot_work_is_refused_with_its_key(settings: Agent, message: str) -> None:
    with pytest.raises(UserError, match=message):
        command.prepare(settings, SandboxKind.BWRAP)


def test_braces_of_the_agent_s_own_are_left_alone(tmp_path: Path) -> None:
    settings = agent("awk", '{print} {"a": 1} ${HOME} {x}')
    command.prepare(settings, SandboxKind.BWRAP)
    job = make(tmp_path, agent("sh", "-c", "echo '{print} {\"a\": 1} {x}' >said"))
    command.run(job, ignore)
    assert (job.workspace / "said").read_text() == '{print} {"a": 1} {x}\n'


def test_without_a_box_there_is_nothing_to_mount_into_and_the_program_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"agent\.mounts: there is nothing to mount into"):
        command.prepare(agent("sh", mounts={"/opt": str(tmp_path)}), SandboxKind.NONE)
    with pytest.raises(UserError, match=r"agent\.command: no program no-such-agent"):
        command.prepare(agent("no-such-agent"), SandboxKind.NONE)


def test_identity_covers_every_mounted_file(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.mkdir()
    (tool / "a.py").write_text("1")
    settings = agent("/opt/tool/a.py", version="2.4.6", mounts={"/opt/tool": str(tool)})
    before = command.identity(settings)
    assert before["version"] == "2.4.6" and before["command"] == ["/opt/tool/a.py"]
    (tool / "b.py").write_text("2")
    assert command.identity(settings)["sha256"] != before["sha256"]


def test_identity_of_a_program_on_path_is_its_own(tmp_path: Path) -> None:
    one, other = command.identity(agent("sh"))["sha256"], command.identity(agent("env"))["sha256"]
    assert one != other
    assert command.identity(agent("/nowhere/agent"))["sha256"] == hashlib.sha256().hexdigest()
