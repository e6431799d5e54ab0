"""Run the command line as a user does, in a directory of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:
        """Return stdout as JSON."""
        return json.loads(self.stdout)

    @property
    def error(self) -> str:
        """Return the one error line; anything else on stderr but progress is a failure."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.stderr
        assert "Traceback" not in self.stderr
        return lines[0]


def agent_ab(cwd: Path, *words: object, env: dict[str, str] | None = None, timeout_s: float = 300) -> Done:
    """Run `agent-ab` with `words` in `cwd`, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "agent_ab", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def here(cwd: Path, *words: object, env: dict[str, str] | None = None) -> Done:
    """Run `agent-ab` with `words` in `cwd`, in this very process: quicker where no process needs to be its own."""
    from agent_ab.cli import run_command

    said, told = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["agent-ab", *map(str, words)]
    try:
        with (
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(told),
            mock.patch.dict(os.environ, env or {}),
        ):
            status = run_command()
    finally:
        sys.argv = argv
    return Done(status, said.getvalue(), told.getvalue())
