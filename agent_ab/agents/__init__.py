"""Agents by kind: the built-in one, OpenCode, any command, and the two that ask no model."""

from agent_ab.agents import builtin, clock, command, opencode, reference
from agent_ab.agents.job import AgentJob, Tick
from agent_ab.config import Agent
from agent_ab.errors import UserError
from agent_ab.model import AgentRun, Json, Observer, SandboxKind

__all__ = ["AgentJob", "Tick", "identity", "needs_tools", "prepare", "require_tools", "run", "template_supports_tools"]


def prepare(settings: Agent, sandbox: SandboxKind, observer: Observer) -> None:
    """Find or install what the agent needs, and refuse here what cannot work. Raises UserError."""
    if settings.prompt and settings.kind not in ("builtin", "opencode"):
        raise UserError(
            f"agent.prompt: has no effect on agent.kind = {settings.kind!r}; a command takes words in agent.command"
        )
    match settings.kind:
        case "opencode":
            opencode.prepare(settings, observer)
        case "command":
            command.prepare(settings, sandbox)
        case _:
            clock.prepare(settings.clock)


def run(job: AgentJob, tick: Tick) -> AgentRun:
    """Let the agent of `job.settings.kind` work in the workspace until it ends or its time is up.

    Raises ApparatusError when its box or the agent itself does not start, and whatever `tick` raises; no process is left then either.
    """
    match job.settings.kind:
        case "builtin":
            return builtin.run(job, tick)
        case "opencode":
            return opencode.run(job, tick)
        case "command":
            return command.run(job, tick)
        case "oracle":
            return reference.oracle(job, tick)
        case "nop":
            return reference.nop(job, tick)


def identity(settings: Agent) -> dict[str, Json]:
    """Return what names the agent exactly: kind, version, and the sha256 of its program ("" where it has none)."""
    match settings.kind:
        case "builtin":
            facts = {**builtin.identity(), **clock.identity(settings.clock)}
        case "opencode":
            facts = opencode.identity(settings)
        case "command":
            facts = command.identity(settings)
        case "oracle" | "nop":
            facts = {"version": reference.VERSION, "sha256": ""}
    return {"kind": settings.kind, **facts}


def needs_tools(settings: Agent) -> bool:
    """Return whether the agent is useless to a model whose chat template has no tools."""
    return settings.kind == "opencode" or (settings.kind == "builtin" and settings.protocol == "tools")


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
