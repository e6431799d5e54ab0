"""What the process of an agent came to."""

from pathlib import Path

import pytest

from agent_ab.agents.job import AgentJob, ended
from agent_ab.config import Agent, Sandbox
from agent_ab.model import AgentEnd, AgentRun
from agent_ab.sandbox import Box, BoxResult
from tests.tiny_task import tiny_task


@pytest.mark.parametrize(
    ("exit_code", "timed_out", "end", "told"),
    [
        (0, False, AgentEnd.COMPLETED, 0),
        (1, False, AgentEnd.CRASHED, 1),
        (137, False, AgentEnd.CRASHED, 137),
        (137, True, AgentEnd.TIMEOUT, None),
        (0, True, AgentEnd.TIMEOUT, None),
    ],
)
def test_timeout_comes_before_the_exit_status(
    tmp_path: Path, exit_code: int, timed_out: bool, end: AgentEnd, told: int | None
) -> None:
    box = Box(Sandbox(), (), uid=None)
    job = AgentJob(Agent(time_limit_s=9), tiny_task(tmp_path), box, tmp_path, "", tmp_path / "log")
    result = BoxResult(exit_code, b"", b"", timed_out, truncated=False, duration_s=8.5)
    assert ended(job, result, "why") == AgentRun(end, told, 8.5, 9.0, "why")
