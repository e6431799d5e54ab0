"""What an agent is given, and what its process came to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_ab.config import Agent
from agent_ab.model import AgentEnd, AgentRun, Task
from agent_ab.sandbox import Box, BoxResult

Tick = Callable[[float], None]
"""Called with the elapsed seconds while the agent runs; what it raises ends the agent."""


@dataclass(frozen=True, slots=True)
class AgentJob:
    """One instruction, and the place to carry it out."""

    settings: Agent
    task: Task
    box: Box
    """Shows `workspace`, and nothing else, to the agent."""
    workspace: Path
    """The agent's own copy, as the host knows it."""
    base_url: str
    """The model's API as the box knows it, `/v1` included."""
    log: Path
    """The agent's transcript and last words go here."""
    context: int = 0
    """The model's context in tokens; 0: unknown."""


def ended(job: AgentJob, result: BoxResult, note: str) -> AgentRun:
    """Return what the boxed process came to: a time-out, an exit status other than 0, or its own end."""
    end = AgentEnd.COMPLETED if result.exit_code == 0 else AgentEnd.CRASHED
    return AgentRun(
        end=AgentEnd.TIMEOUT if result.timed_out else end,
        exit_code=None if result.timed_out else result.exit_code,
        duration_s=result.duration_s,
        time_limit_s=job.settings.time_limit_s,
        note=note,
    )
