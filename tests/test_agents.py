"""Which agents there are, and what a template must have for tool calls."""

from pathlib import Path
from typing import get_args

import pytest

from agent_ab import agents
from agent_ab.config import Agent
from agent_ab.errors import UserError
from agent_ab.model import SandboxKind
from tests.fakes import opencode

SMOLLM2 = {"supports_tools": False, "supports_tool_calls": False, "supports_system_role": True}
QWEN3 = {"supports_tools": True, "supports_tool_calls": True, "supports_parallel_tool_calls": True}


def test_every_kind_of_the_configuration_has_an_identity(tmp_path: Path) -> None:
    binary = str(opencode.program(tmp_path))
    for kind in get_args(Agent.model_fields["kind"].annotation):
        settings = Agent(kind=kind, binary=binary, command=("sh",))
        agents.prepare(settings, SandboxKind.BWRAP, lambda _: None)
        assert agents.identity(settings)["kind"] == kind


@pytest.mark.parametrize("kind", ["builtin", "opencode", "command", "oracle"])
def test_a_moment_that_never_is_is_refused_for_every_agent(tmp_path: Path, kind: str) -> None:
    words = {"binary": str(opencode.program(tmp_path)), "command": ["sh"], "clock": "2026-02-30 12:00:00"}
    with pytest.raises(UserError, match=r"agent\.clock: 2026-02-30"):
        agents.prepare(Agent.model_validate({"kind": kind, **words}), SandboxKind.BWRAP, lambda _: None)


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        (Agent(kind="builtin", protocol="tools"), True),
        (Agent(kind="builtin", protocol="json"), False),
        (Agent(kind="opencode"), True),
        (Agent(kind="command"), False),
        (Agent(kind="oracle"), False),
    ],
)
def test_which_agents_need_a_template_with_tools(settings: Agent, needed: bool) -> None:
    assert agents.needs_tools(settings) is needed


@pytest.mark.parametrize(
    ("props", "supported"),
    [
        ({"chat_template_caps": SMOLLM2}, False),
        ({"chat_template_caps": QWEN3}, True),
        ({"chat_template_caps": QWEN3 | {"supports_tool_calls": False}}, False),
        ({"chat_template_caps": {}}, True),
        ({}, True),
    ],
)
def test_template_tells_by_its_capabilities_whether_it_has_tools(props: dict[str, object], supported: bool) -> None:
    assert agents.template_supports_tools(props) is supported


def test_template_without_tools_is_refused_with_the_way_out() -> None:
    agents.require_tools({"chat_template_caps": QWEN3})
    with pytest.raises(UserError, match=r'set agent\.protocol = "json"'):
        agents.require_tools({"chat_template_caps": SMOLLM2})


@pytest.mark.parametrize("kind", ["command", "oracle", "nop"])
def test_a_prompt_for_an_agent_that_has_none_is_refused(kind: str) -> None:
    with pytest.raises(UserError, match=r"agent\.prompt: has no effect on agent\.kind"):
        agents.prepare(Agent.model_validate({"kind": kind, "prompt": "Be brief."}), SandboxKind.BWRAP, lambda _: None)
