"""The agents that ask no model."""

from pathlib import Path

from agent_ab import agents
from agent_ab.agents import AgentJob
from agent_ab.config import Agent, Sandbox
from agent_ab.model import AgentEnd, SandboxKind
from agent_ab.sandbox import Box, Mount
from tests.tiny_task import REFERENCE, START, tiny_task


def job(tmp_path: Path, kind: str) -> AgentJob:
    task = tiny_task(tmp_path / "tasks", {"solution/new/tool.sh": "#!/bin/sh\n"})
    (task.root / "solution" / "new" / "tool.sh").chmod(0o700)
    (task.root / "solution" / "__pycache__").mkdir()
    (task.root / "solution" / "__pycache__" / "calc.pyc").write_bytes(b"stale")
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "calc.py").write_text(START)
    (workspace / "notes.txt").write_text("mine")
    box = Box(Sandbox(kind=SandboxKind.NONE), (Mount(workspace, "/workspace", writable=True),), uid=None)
    return AgentJob(Agent.model_validate({"kind": kind}), task, box, workspace, "", tmp_path / "agent.log")


def files(root: Path) -> dict[str, tuple[str, int]]:
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {p.relative_to(root).as_posix(): (p.read_text(), p.stat().st_mode & 0o777) for p in paths}


def test_oracle_lays_the_solution_over_the_workspace(tmp_path: Path) -> None:
    it = job(tmp_path, "oracle")
    ran = agents.run(it, lambda _: None)
    assert (ran.end, ran.exit_code, ran.note) == (AgentEnd.COMPLETED, 0, "applied the reference solution")
    assert files(it.workspace) == {
        "calc.py": (REFERENCE, 0o644),
        "new/tool.sh": ("#!/bin/sh\n", 0o755),
        "notes.txt": ("mine", 0o644),
    }
    assert it.log.read_text() == "applied the reference solution\n"


def test_nop_changes_nothing(tmp_path: Path) -> None:
    it = job(tmp_path, "nop")
    before = files(it.workspace)
    ticks: list[float] = []
    ran = agents.run(it, ticks.append)
    assert (ran.end, ran.exit_code, len(ticks)) == (AgentEnd.COMPLETED, 0, 1)
    assert files(it.workspace) == before


def test_identity_of_an_agent_without_a_program_is_its_kind() -> None:
    assert agents.identity(Agent(kind="nop")) == {"kind": "nop", "version": "1", "sha256": ""}
