"""What an agent is given, and what its process came to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_ab.config import Agent
from agent_ab.errors import ApparatusError
from agent_ab.model import AgentEnd, AgentRun, Step, Task
from agent_ab.sandbox import Box, BoxResult

Tick = Callable[[float], None]
"""Called with the elapsed seconds while the agent runs; what it raises ends the agent."""
MODEL = "local"
"""The model's name at its API."""
LOG_BYTES = 50_000_000
"""A transcript holds every reply whole and is evidence; this only stops a runaway."""
TAIL_BYTES = 200_000


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
    requests: Callable[[], int] | None = None
    """Returns how many requests have reached the model, finished or not; None: nobody counts, and no start is watched."""


def ended(job: AgentJob, result: BoxResult, note: str) -> AgentRun:
    """Return what the boxed process came to: a time-out, an exit status other than 0, or its own end."""
    end = AgentEnd.COMPLETED if result.exit_code == 0 else AgentEnd.CRASHED
    return AgentRun(
        end=AgentEnd.TIMEOUT if result.timed_out else end,
        exit_code=None if result.timed_out else result.exit_code,
        duration_s=result.duration_s,
        time_limit_s=job.settings.time_limit_s,
        note=note,
        output_cut=result.truncated,
    )


def watching_the_start(job: AgentJob, tick: Tick) -> Tick:
    """Return `tick` with a watch: it raises ApparatusError when the agent has not asked within `startup_limit_s`."""
    asked = False

    def watch(elapsed_s: float) -> None:
        nonlocal asked
        tick(elapsed_s)
        if asked or job.requests is None or elapsed_s < job.settings.startup_limit_s:
            return
        asked = job.requests() > 0
        if not asked:
            limit = f"{job.settings.startup_limit_s:g} s (agent.startup_limit_s)"
            raise ApparatusError(
                Step.AGENT, f"it asked the model nothing within {limit}; {last_lines(job.log)}", job.log
            )

    return watch


def require_start(job: AgentJob, result: BoxResult) -> None:
    """Raise ApparatusError when the agent failed before it asked the model anything: no model had a part in that."""
    if result.exit_code != 0 and job.requests is not None and job.requests() == 0:
        how = "ran out of time" if result.timed_out else f"ended with status {result.exit_code}"
        raise ApparatusError(Step.AGENT, f"it {how} before it asked the model anything; {last_lines(job.log)}", job.log)


def last_lines(log: Path, count: int = 3) -> str:
    """Return the last words of a log, in a clause."""
    if not log.is_file():
        return "it said nothing"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = [" ".join(line.split())[:300] for line in file.read().decode("utf-8", "replace").splitlines()]
    said = [line for line in lines if line][-count:]
    return f"its last lines: {' | '.join(said)}" if said else "it said nothing"
