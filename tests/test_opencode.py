"""The OpenCode adapter, with small programs in OpenCode's place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_ab.agents import opencode
from agent_ab.agents.job import AgentJob
from agent_ab.config import Agent, Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import AgentEnd, AgentRun, SandboxKind
from agent_ab.sandbox import Box, Mount
from tests.fakes import opencode as fake
from tests.patience import cut_off
from tests.tiny_task import tiny_task

DONE = fake.step("stop", fake.text("All done."))
URL = "http://127.0.0.1:8080/v1"


def ignore(_elapsed_s: float) -> None:
    """Tick to nobody."""


def make(tmp_path: Path, program: Path, requests: Callable[[], int] | None = None, **settings: object) -> AgentJob:
    (tmp_path / "ws").mkdir(parents=True)
    mounts = (Mount(tmp_path / "ws", "/workspace", writable=True),)
    box = Box(Sandbox(kind=SandboxKind.NONE), mounts, uid=None)
    agent = Agent.model_validate({"kind": "opencode", "binary": str(program), "time_limit_s": 30.0, **settings})
    log = tmp_path / "agent.log"
    return AgentJob(agent, tiny_task(tmp_path), box, tmp_path / "ws", URL, log, context=4096, requests=requests)


def ran(
    tmp_path: Path, *lines: str, then: str = "exit 0", requests: Callable[[], int] | None = None, **settings: object
) -> AgentRun:
    program = fake.program(tmp_path / "bin", *lines, then=then)
    return opencode.run(make(tmp_path, program, requests, **settings), ignore)


def test_the_instruction_arrives_on_stdin_and_the_configuration_outside_of_the_workspace(tmp_path: Path) -> None:
    program = fake.program(tmp_path / "bin", *DONE, then='cp "$XDG_CONFIG_HOME/opencode/opencode.json" .')
    job = make(tmp_path, program)
    run, workspace = opencode.run(job, ignore), job.workspace
    assert (run.end, run.exit_code, run.note) == (AgentEnd.COMPLETED, 0, "completed in step 1")
    assert (workspace / "stdin.txt").read_text() == job.task.instruction
    assert (workspace / "argv.txt").read_text().split()[:3] == ["run", "--format", "json"]
    config = json.loads((workspace / "opencode.json").read_text())
    assert config["provider"]["local"]["options"]["baseURL"] == URL
    assert config["instructions"] == [f"{workspace}/AGENTS.md"]
    environment = dict(line.split("=", 1) for line in (workspace / "env.txt").read_text().splitlines())
    assert environment["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert not environment["XDG_CONFIG_HOME"].startswith(str(workspace))
    assert not Path(environment["XDG_CONFIG_HOME"]).exists()


def test_opencode_has_no_reason_to_install_its_plugin_library(tmp_path: Path) -> None:
    ran(tmp_path, *DONE, then='cp -r "$XDG_CONFIG_HOME/opencode" conf')
    conf = tmp_path / "ws" / "conf"
    lock = json.loads((conf / "package-lock.json").read_text())
    assert (conf / "node_modules").is_dir() and "@opencode-ai/plugin" in lock["packages"][""]["dependencies"]


def test_limits_budget_and_effort_come_from_the_profile() -> None:
    settings = Agent(kind="opencode", response_budget=777, max_turns=9, reasoning_effort="medium")
    config = opencode.configuration(settings, URL, 4096, "/workspace")
    model = config["provider"]["local"]["models"]["local"]
    assert model["limit"] == {"context": 4096, "output": 777}
    assert model["options"] == {"reasoningEffort": "medium"}
    assert config["agent"]["build"]["steps"] == 9
    plain = opencode.configuration(Agent(kind="opencode"), URL, 4096, "/workspace")
    assert "options" not in plain["provider"]["local"]["models"]["local"]


def test_everything_that_would_ask_someone_else_is_off() -> None:
    config = opencode.configuration(Agent(kind="opencode"), URL, 0, "/workspace")
    off: dict[str, Any] = {"autoupdate": False, "share": "disabled", "plugin": [], "mcp": {}, "lsp": False}
    assert {key: config[key] for key in off} == off
    assert config["agent"]["title"] == {"disable": True}
    allowed = {name for name, rule in config["permission"].items() if rule == "allow"}
    assert next(iter(config["permission"])) == "*" and config["permission"]["*"] == "deny"
    assert not allowed & {"webfetch", "websearch", "task", "question"}


def test_the_slim_variant_has_a_prompt_of_its_own_and_four_tools() -> None:
    slim, full = (Agent(kind="opencode", slim=slim) for slim in (True, False))
    assert opencode.configuration(slim, URL, 0, "/")["agent"]["build"]["prompt"] == opencode.SLIM_PROMPT
    assert "prompt" not in opencode.configuration(full, URL, 0, "/")["agent"]["build"]
    assert set(opencode.permission(slim)) == {"*", "bash", "edit", "read", *opencode.PERMITTED}
    assert set(opencode.permission(slim)) < set(opencode.permission(full))


def test_a_prompt_of_the_profile_comes_first() -> None:
    for slim in (False, True):
        settings = Agent(kind="opencode", slim=slim, prompt="Be brief.")
        assert opencode.configuration(settings, "", 0, "")["agent"]["build"]["prompt"] == "Be brief."


def test_a_reply_that_used_up_its_budget_is_named_although_the_status_is_0(tmp_path: Path) -> None:
    run = ran(tmp_path, *fake.step("length", fake.text("I beg")))
    assert run.end is AgentEnd.COMPLETED and "used up its response budget" in run.note


def test_an_error_is_the_arm_s_own_result_once_the_model_was_asked(tmp_path: Path) -> None:
    run = ran(tmp_path, fake.ASKED, fake.failure("context too small"), then="exit 1", requests=lambda: 1)
    assert (run.end, run.exit_code) == (AgentEnd.CRASHED, 1)
    assert run.note == "error before its first reply: context too small"


def test_an_opencode_that_fails_before_it_asks_anything_is_broken_apparatus(tmp_path: Path) -> None:
    with pytest.raises(ApparatusError, match=r"agent: it ended with status 3 before it asked .*last lines: no config"):
        ran(tmp_path, "no config", then="exit 3", requests=lambda: 0)


def test_an_opencode_that_asks_nothing_within_its_start_up_limit_is_broken_apparatus(tmp_path: Path) -> None:
    def refusal(limit_s: float) -> str:
        with pytest.raises(ApparatusError, match="asked the model nothing within") as refused:
            ran(tmp_path / f"{limit_s}", "init", then="sleep 60", requests=lambda: 0, startup_limit_s=limit_s)
        return str(refused.value)

    assert "last lines: init" in cut_off(refusal, lambda words: "last lines: init" in words)


def test_an_opencode_that_has_asked_may_take_its_time(tmp_path: Path) -> None:
    asked: list[int] = []

    def requests() -> int:
        asked.append(1)
        return 1

    run = ran(tmp_path, *DONE, then="sleep 0.5", requests=requests, startup_limit_s=0.1)
    assert run.end is AgentEnd.COMPLETED


def test_an_opencode_that_does_not_exit_after_its_last_step_is_ended_and_was_done(tmp_path: Path) -> None:
    run = ran(tmp_path, *DONE, then="exec sleep 60", requests=lambda: 1, exit_limit_s=0.3)
    assert (run.end, run.exit_code) == (AgentEnd.COMPLETED, None)
    assert run.note == "completed in step 1; OpenCode did not exit by itself and was ended"


def test_an_opencode_with_a_request_on_its_way_is_not_ended_as_hanging(tmp_path: Path) -> None:
    counts = iter(range(1, 1000))
    run = ran(tmp_path, *DONE, then="exec sleep 60", requests=lambda: next(counts), exit_limit_s=0.2, time_limit_s=1.5)
    assert run.end is AgentEnd.TIMEOUT


def test_a_run_without_time_left_names_what_it_was_doing(tmp_path: Path) -> None:
    lines = [*fake.step("tool-calls", fake.tool("read", filePath="a")), fake.ASKED, fake.allowed("bash", "sleep 99")]
    run = cut_off(
        lambda limit_s: ran(tmp_path / f"{limit_s}", *lines, then="exec sleep 60", time_limit_s=limit_s),
        lambda run: "its tool ran" in run.note,
    )
    assert (run.end, run.note) == (AgentEnd.TIMEOUT, 'cut off in step 1 while its tool ran: bash "sleep 99"')


def test_what_the_watcher_raises_ends_the_run(tmp_path: Path) -> None:
    def watch(_elapsed_s: float) -> None:
        raise ApparatusError("identity", "another first request")

    program = fake.program(tmp_path / "bin", *DONE, then="exec sleep 60")
    with pytest.raises(ApparatusError, match="another first request"):
        opencode.run(make(tmp_path, program), watch)


def test_identity_names_the_version_and_remarks_on_one_that_was_not_tried(tmp_path: Path) -> None:
    tried = opencode.identity(Agent(kind="opencode", binary=str(fake.program(tmp_path / "a"))))
    other = opencode.identity(Agent(kind="opencode", binary=str(fake.program(tmp_path / "b", version="2.0.20"))))
    assert (tried["version"], tried["remark"]) == ("1.18.33", "")
    assert other["remark"] == "OpenCode 2.0.20; this adapter was tried with 1.18.33"
    assert len(tried["sha256"]) == 64 and tried["sha256"] != other["sha256"]
    assert tried["permission"] == opencode.permission(Agent(kind="opencode"))


def test_identity_tells_two_configurations_apart(tmp_path: Path) -> None:
    binary = str(fake.program(tmp_path / "a"))
    one, other = (opencode.identity(Agent(kind="opencode", binary=binary, max_turns=n)) for n in (5, 6))
    assert one["config_sha256"] != other["config_sha256"]


def test_preparing_refuses_what_is_no_opencode(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"agent\.binary: no such file"):
        opencode.prepare(Agent(kind="opencode", binary=str(tmp_path / "none")), lambda _: None)
