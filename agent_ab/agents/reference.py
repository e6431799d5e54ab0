"""The two agents that ask no model: `oracle` applies the task's own solution, `nop` does nothing."""

import shutil
import time

from agent_ab.agents.job import AgentJob, Tick
from agent_ab.model import AgentEnd, AgentRun

VERSION = "1"


def oracle(job: AgentJob, tick: Tick) -> AgentRun:
    """Lay the files of the task's solution over the workspace."""
    begin = time.monotonic()
    solution = job.task.root / "solution"
    for source in sorted(path for path in solution.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        target = job.workspace / source.relative_to(solution)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    return _done(job, tick, begin, "applied the reference solution")


def nop(job: AgentJob, tick: Tick) -> AgentRun:
    """Leave everything as it is."""
    return _done(job, tick, time.monotonic(), "did nothing, on purpose")


def _done(job: AgentJob, tick: Tick, begin: float, note: str) -> AgentRun:
    job.box.own()
    job.log.write_text(f"{note}\n", encoding="utf-8")
    duration_s = time.monotonic() - begin
    tick(duration_s)
    return AgentRun(AgentEnd.COMPLETED, 0, duration_s, job.settings.time_limit_s, note)
