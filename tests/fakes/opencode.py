"""Small programs that behave as `opencode run --format json --print-logs` does, faults included.

    program = opencode.program(folder, opencode.step("stop", text="All done."), then="sleep 60")

Each leaves what it was given in its working directory: `stdin.txt`, `argv.txt`, `env.txt`.
"""

import json
import shlex
from pathlib import Path

from tests.fakes import wrap

VERSION = "1.18.33"
SESSION = {"sessionID": "ses_1"}
ASKED = "timestamp=2026-01-01T00:00:00.000Z level=INFO run=1 message=stream providerID=local modelID=local agent=build"
COMPACTED = ASKED.replace("agent=build", "agent=compaction")
LOOP_LEFT = 'timestamp=2026-01-01T00:00:00.000Z level=INFO run=1 message="exiting loop" session.id=ses_1'


def event(kind: str, **members: object) -> str:
    """Return one event line."""
    return json.dumps({"type": kind, "timestamp": 1, **SESSION, **members}, separators=(",", ":"))


def allowed(permission: str, pattern: str) -> str:
    """Return the log line of a tool call that begins."""
    head = "timestamp=2026-01-01T00:00:00.000Z level=INFO run=1 message=evaluated"
    return f"{head} permission={permission} pattern={json.dumps(pattern)} action.permission=* action.action=allow"


def text(words: str) -> str:
    """Return the event of a finished text."""
    return event("text", part={"type": "text", "text": words})


def tool(name: str, **given: str) -> str:
    """Return the event of a finished tool call."""
    return event("tool_use", part={"type": "tool", "tool": name, "state": {"status": "completed", "input": given}})


def step(reason: str, *inner: str) -> list[str]:
    """Return the lines of one step."""
    finish = event("step_finish", part={"type": "step-finish", "reason": reason, "tokens": {"output": 3}})
    return [ASKED, event("step_start", part={"type": "step-start"}), *inner, finish]


def failure(message: str) -> str:
    """Return an error event, after which OpenCode's status is 1."""
    return event("error", error={"name": "APIError", "data": {"message": message}})


def program(folder: Path, *lines: str, then: str = "exit 0", version: str = VERSION) -> Path:
    """Write an OpenCode that says `lines`, then does `then`; return its path."""
    script = [f'[ "$1" = --version ] && {{ echo {version}; exit 0; }}']
    script += ["cat >stdin.txt", 'printf "%s\\n" "$@" >argv.txt', "env >env.txt"]
    script += [f"printf '%s\\n' {shlex.quote(line)}" for line in lines]
    return wrap.program(folder / "opencode", "\n".join([*script, then]))
