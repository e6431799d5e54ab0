"""A suite that real parts play in seconds: two tasks of two checks, a scripted model that solves them in two turns."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_ab.model import Task
from tests.command import ROOT
from tests.tiny_task import tiny_task

SCRIPT = """mtp_noise = 0.25

[[turns]]
say = "The sum lacks its second number."
[turns.call]
name = "write"
arguments = { path = "calc.py" }
content_from = "solution/calc.py"

[[turns]]
say = "Both numbers are in the sum now."
"""
SEEDS = (4242, 8675309)


@dataclass(frozen=True)
class SmallSuite:
    """Files that `agent-ab run` takes."""

    folder: Path
    profile: Path

    def words(self, *more: object) -> list[str]:
        """Return the command's arguments."""
        given = ["run", "--profile", self.profile, "--tasks-dir", self.folder / "tasks"]
        given += ["--seeds", ",".join(map(str, SEEDS)), *more]
        return list(map(str, given))


def small_task(folder: Path) -> Task:
    """Write the task `tiny` into `folder`/tasks."""
    made = tiny_task(folder / "tasks", {"scripts/solve.toml": SCRIPT})
    shutil.rmtree(folder / "tasks" / "scratch")
    return made


def small_suite(folder: Path, tasks: int = 2, changes: Mapping[str, str] | None = None) -> SmallSuite:
    """Write `tasks` tasks and a profile into `folder`; `changes` replaces parts of the profile's text."""
    made = small_task(folder)
    for number in range(1, tasks):
        shutil.copytree(made.root, folder / "tasks" / f"tiny-{number}")
    text = (ROOT / "profiles" / "scripted-solve.toml").read_text()
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    profile = folder / "small.toml"
    profile.write_text(text)
    return SmallSuite(folder, profile)
