"""The real OpenCode in the real box, first against a scripted model, then in whole pairs."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_ab import agents, sandbox, workspace
from agent_ab.agents import AgentJob, opencode, opencode_install
from agent_ab.config import Agent, Sandbox
from agent_ab.errors import UserError
from agent_ab.model import AgentEnd, AgentRun, SandboxKind, Task
from agent_ab.sandbox import Box, Mount
from tests.agent_program import DONE, calls
from tests.command import ROOT, agent_ab
from tests.fakes.scripted_model import Answer, Say, ScriptedModel, serving

IN_THE_BOX = "http://127.0.0.1:8080/v1"


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Have the tried OpenCode in the cache; without npm and without it there is nothing to test."""
    try:
        opencode_install.find("", opencode_install.TRIED, lambda _: None)
    except UserError as error:
        if "needs npm" not in str(error):
            raise
        pytest.skip(f"THE REAL OPENCODE IS NOT TESTED: {error}")


@pytest.fixture
def place() -> Iterator[Path]:
    sandbox.require(SandboxKind.BWRAP)
    # A unix socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="opencode-") as name:
        yield Path(name)


def played(
    task: Task, place: Path, answers: Sequence[Answer], files: dict[str, str] | None = None, **settings: object
) -> tuple[AgentRun, ScriptedModel]:
    """Let OpenCode work in a fresh workspace with `answers` to its requests."""
    here = Path(tempfile.mkdtemp(dir=place))
    workspace.checkout(task, here / "ws", here / "trusted.git")
    for name, content in (files or {}).items():
        (here / "ws" / name).write_text(content)
    socket = here / "model.sock"
    here.chmod(0o755)
    place.chmod(0o755)
    with serving(answers, socket=socket) as model:
        box = Box(Sandbox(), (Mount(here / "ws", "/workspace", writable=True),), proxy=socket)
        agent = Agent.model_validate(
            {"kind": "opencode", "version": opencode_install.TRIED, "time_limit_s": 200.0, **settings}
        )
        job = AgentJob(
            agent,
            task,
            box,
            here / "ws",
            IN_THE_BOX,
            here / "agent.log",
            context=65536,
            requests=lambda: len(model.bodies),
        )
        ran = agents.run(job, lambda _: None)
    return ran, model


def tools(request: Any) -> list[str]:
    return sorted(tool["function"]["name"] for tool in request["tools"])


@pytest.mark.long
def test_opencode_works_in_the_box_asks_nothing_else_and_begins_alike_each_time(
    transfer_repair: Task, place: Path
) -> None:
    answers = [calls(("bash", {"command": "id -un; pwd; ls -a ~"})), DONE]
    limits: dict[str, Any] = {"response_budget": 40000, "reasoning_effort": "medium"}
    ran, model = played(transfer_repair, place, answers, **limits)
    assert (ran.end, ran.exit_code, ran.note) == (AgentEnd.COMPLETED, 0, "completed in step 2")
    first, second = model.requests
    assert tools(first) == sorted(opencode.TOOLS)
    assert (first["max_tokens"], first["reasoning_effort"], first["stream"]) == (40000, "medium", True)
    system, instruction = first["messages"]
    assert "/workspace" in system["content"] and str(place) not in json.dumps(model.requests)
    assert instruction == {"role": "user", "content": transfer_repair.instruction}
    # No .npm in the home directory: it installed nothing.
    assert second["messages"][3]["content"] == "agent\n/workspace\n.\n..\n.cache\n.local\n"
    _, again = played(transfer_repair, place, [DONE], **limits)
    assert again.bodies == model.bodies[:1]


@pytest.mark.usefixtures("opencode")
def test_a_pinned_clock_makes_times_alike(transfer_repair: Task, place: Path, pinned_clock: str) -> None:
    answers = [
        calls(("bash", {"command": "date; touch new; ls -la; python3 -c 'import time; print(int(time.time()))'"})),
        DONE,
    ]
    _, one = played(transfer_repair, place, answers, clock=pinned_clock)
    _, other = played(transfer_repair, place, answers, clock=pinned_clock)
    assert "Today's date: Sun Mar 01 2026" in one.requests[0]["messages"][0]["content"]
    assert "Sun Mar  1 12:00:0" in one.requests[1]["messages"][3]["content"]
    assert one.bodies == other.bodies and len(one.bodies) == 2


@pytest.mark.long
def test_what_outlives_opencode_and_a_budget_stop_are_named(transfer_repair: Task, place: Path) -> None:
    line = "setsid sleep 7531 >/dev/null 2>&1 </dev/null & echo begun"
    ran, _ = played(transfer_repair, place, [calls(("bash", {"command": line})), Say("I beg", finish="length")])
    assert (ran.end, ran.exit_code) == (AgentEnd.COMPLETED, 0)
    assert (
        ran.note == "ended as if done in step 2, whose reply had used up its response budget; left running: sleep 7531"
    )


@pytest.mark.long
def test_the_slim_variant_is_small_and_the_workspace_advises_but_does_not_configure(
    transfer_repair: Task, place: Path
) -> None:
    files = {
        "AGENTS.md": "Indent with four spaces.\n",
        "opencode.json": '{"permission": {"webfetch": "allow"}, "model": "other/other"}',
    }
    ran, model = played(transfer_repair, place, [DONE], files, slim=True)
    (request,) = model.requests
    system = request["messages"][0]["content"]
    assert ran.note == "completed in step 1"
    assert tools(request) == sorted(opencode.SLIM_TOOLS)
    assert opencode.SLIM_PROMPT.strip() in system and "Indent with four spaces." in system
    assert len(model.bodies[0]) < 16_000


def test_the_scripted_model_solves_the_task_with_the_real_opencode_in_both_arms(tmp_path: Path) -> None:
    done = agent_ab(
        tmp_path, "pair", "--task", "transfer-repair", "--profile", "scripted-opencode", "--json", timeout_s=600
    )
    assert done.status == 0, done.stderr
    pair = done.data["pair"]
    assert pair["outcome"] == "BOTH_PASS" and all(line["ok"] for line in pair["proof"])
    for arm in ("baseline", "candidate"):
        assert sum(c["scored"] and c["status"] == "pass" for c in pair[arm]["checks"]) == 10
        assert pair[arm]["agent"]["note"] == "completed in step 8"
        assert pair[arm]["world"]["agent"]["version"] == opencode_install.TRIED
        exchanges = pair[arm]["log"]["exchanges"]
        assert [bool(e["request"].get("tools")) for e in exchanges] == [True] * 8
    first = {pair[arm]["log"]["exchanges"][0]["agent_sha256"] for arm in ("baseline", "candidate")}
    assert len(first) == 1


def test_a_date_that_rolls_over_between_the_arms_voids_the_pair(
    tmp_path: Path, opencode: str, pinned_clock: str
) -> None:
    profile = (ROOT / "profiles" / "scripted-opencode.toml").read_text()
    profile = profile.replace('"server.speculation"', '"agent.clock"').replace(
        'script = "opencode"', 'script = "clock"'
    )
    profile = profile[: profile.index("[baseline.")]
    profile += '[baseline.agent]\nclock = "2026-03-01 23:59:00"\n[candidate.agent]\nclock = "2026-03-02 00:01:00"\n'
    (tmp_path / "midnight.toml").write_text(profile)
    done = agent_ab(
        tmp_path, "pair", "--task", "transfer-repair", "--profile", "midnight.toml", "--json", timeout_s=600
    )
    assert done.status == 4, done.stderr
    pair = done.data["pair"]
    assert pair["outcome"] == "VOID"
    (line,) = [line for line in pair["proof"] if not line["ok"] and line["name"] == "same first request"]
    assert "$.messages[0].content" in line["detail"] and "the date rolled over between the arms" in line["detail"]
    assert pair["candidate"]["log"]["exchanges"] == []
    refused = pair["candidate"]["log"]["refused"][0]
    assert refused["reason"] == "identity"
    assert "Mon Mar 02 2026" in refused["request"]["messages"][0]["content"]
