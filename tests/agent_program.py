"""Runs the built-in agent's program against a scripted model and reads what it left behind."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_ab.agents.builtin import PROGRAM
from tests.fakes.scripted_model import Answer, Say, ScriptedModel, serving

Json = Any
DONE = Say("All done.")
BUG = "def add(a, b):\n    return a - b\n"
TEST = "import unittest, calc\nclass T(unittest.TestCase):\n    def test(self):\n        assert calc.add(2, 2) == 4\n"


@dataclass(frozen=True)
class Ran:
    """One whole run of the program."""

    exit_code: int
    events: tuple[Json, ...]
    model: ScriptedModel

    def named(self, name: str) -> list[Json]:
        """Return the events of one kind."""
        return [event for event in self.events if event["event"] == name]

    @property
    def end(self) -> Json:
        """Return the last event, which must be `end`."""
        assert self.events[-1]["event"] == "end"
        return self.events[-1]

    @property
    def results(self) -> list[str]:
        """Return what the model was told of its tools, as the last request holds it."""
        return [m["content"] for m in self.model.requests[-1]["messages"] if m["role"] == "tool"]


def make_workspace(path: Path) -> Path:
    """Make a workspace with a bug, a test that shows it, and a `.git` that no agent is told of."""
    (path / ".git").mkdir(parents=True)
    (path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (path / "calc.py").write_text(BUG)
    (path / "test_calc.py").write_text(TEST)
    return path


def write_settings(path: Path, workspace: Path, url: str, **changes: Json) -> Path:
    """Write the settings of a run, with `changes`."""
    settings = {"instruction": "Repair it.", "base_url": url, "workspace": str(workspace), "protocol": "tools"}
    path.write_text(
        json.dumps({**settings, "max_tokens": 512, "max_turns": 10, "pause_s": 0.0, **changes}), encoding="utf-8"
    )
    return path


def command(settings: Path) -> list[str]:
    """Return the command line that a box runs too."""
    return [sys.executable, "-I", "-B", str(PROGRAM), str(settings)]


def run_agent(
    workspace: Path, answers: Sequence[Answer], *, env: Mapping[str, str] | None = None, **changes: Json
) -> Ran:
    """Let the program work in `workspace`, with `answers` to its requests and `changes` of its settings."""
    with serving(answers) as model:
        settings = write_settings(workspace.parent / "settings.json", workspace, model.url, **changes)
        done = subprocess.run(
            command(settings), capture_output=True, env=dict(env or {"PATH": "/usr/bin:/bin"}), timeout=60, check=False
        )
    assert done.stderr == b"", done.stderr.decode()
    return Ran(done.returncode, tuple(map(json.loads, done.stdout.splitlines())), model)


def calls(*wanted: tuple[str, Json]) -> Say:
    """Return a reply that calls tools: (name, arguments)."""
    return Say(calls=[(name, json.dumps(arguments)) for name, arguments in wanted])


def results_of(workspace: Path, *wanted: tuple[str, Json], **changes: Json) -> list[str]:
    """Return what the tools answer to `wanted`, asked in one turn."""
    return run_agent(workspace, [calls(*wanted), DONE], **changes).results


def bash(workspace: Path, line: str, **changes: Json) -> str:
    """Return what the bash tool answers to one command line."""
    return results_of(workspace, ("bash", {"command": line}), **changes)[0]
