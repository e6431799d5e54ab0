"""Which agents there are, and what a template must have for tool calls."""

from typing import get_args

import pytest

from agent_ab import agents
from agent_ab.config import Agent
from agent_ab.errors import UserError

SMOLLM2 = {"supports_tools": False, "supports_tool_calls": False, "supports_system_role": True}
QWEN3 = {"supports_tools": True, "supports_tool_calls": True, "supports_parallel_tool_calls": True}


def test_every_kind_of_the_configuration_has_an_identity() -> None:
    for kind in get_args(Agent.model_fields["kind"].annotation):
        assert agents.identity(Agent(kind=kind))["kind"] == kind


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
