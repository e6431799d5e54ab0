"""Agents by kind: the built-in one, and the two that ask no model."""

from agent_ab.agents import builtin, reference
from agent_ab.agents.job import AgentJob, Tick
from agent_ab.config import Agent
from agent_ab.errors import UserError
from agent_ab.model import AgentRun, Json

__all__ = ["AgentJob", "Tick", "identity", "require_tools", "run", "template_supports_tools"]


def run(job: AgentJob, tick: Tick) -> AgentRun:
    """Let the agent of `job.settings.kind` work in the workspace until it ends or its time is up.

    Raises ApparatusError when its box does not start, and whatever `tick` raises; no process is left then either.
    """
    match job.settings.kind:
        case "builtin":
            return builtin.run(job, tick)
        case "oracle":
            return reference.oracle(job, tick)
        case "nop":
            return reference.nop(job, tick)


def identity(settings: Agent) -> dict[str, Json]:
    """Return what names the agent exactly: kind, version, and the sha256 of its program ("" where it has none)."""
    if settings.kind == "builtin":
        return {"kind": settings.kind, **builtin.identity()}
    return {"kind": settings.kind, "version": reference.VERSION, "sha256": ""}


def template_supports_tools(props: Json) -> bool:
    """Return whether the chat template shows a model its tools, by llama-server's own analysis in `/props`.

    A server that does not say is believed to.
    """
    caps = props.get("chat_template_caps")
    if not isinstance(caps, dict):
        return True
    return all(bool(caps.get(name, True)) for name in ("supports_tools", "supports_tool_calls"))


def require_tools(props: Json) -> None:
    """Raise UserError when tool calls would be lost in the model's chat template."""
    if not template_supports_tools(props):
        raise UserError(
            'the model\'s chat template has no tools, so that it would never see one: set agent.protocol = "json",'
            " or give a template that has them as server.chat_template_file"
        )
