"""Runs the built-in agent's program in a box: settings in, transcript out."""

import hashlib
import json
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent_ab import sandbox
from agent_ab.agents import clock
from agent_ab.agents.job import AgentJob, Tick, ended
from agent_ab.model import AgentRun, Json
from agent_ab.sandbox import Mount

PROGRAM = Path(__file__).with_name("builtin_agent.py")
INSIDE = "/opt/agent"
LOG_BYTES = 50_000_000
"""The transcript holds every reply whole and is evidence; this only stops a runaway."""
TAIL_BYTES = 200_000


def run(job: AgentJob, tick: Tick) -> AgentRun:
    """Run the program until it ends or its time is up. Raises ApparatusError when the box does not start."""
    with tempfile.TemporaryDirectory(prefix="agent-ab-agent-") as name:
        private = Path(name)
        box = clock.shown(job.settings.clock, replace(job.box, mounts=(*job.box.mounts, Mount(private, INSIDE))))
        program, settings = private / PROGRAM.name, private / "settings.json"
        shutil.copyfile(PROGRAM, program)
        settings.write_text(json.dumps(_settings(job, box.inside(job.workspace))), encoding="utf-8")
        # Another user reads them, whatever our umask is.
        for path, mode in ((private, 0o755), (program, 0o644), (settings, 0o644)):
            path.chmod(mode)
        box.own()
        result = box.run(
            [sandbox.python(box.settings.kind), "-I", "-B", box.inside(program), box.inside(settings)],
            cwd=job.workspace,
            env=clock.environment(job.settings.clock, box),
            timeout_s=job.settings.time_limit_s,
            cap_bytes=LOG_BYTES,
            output=job.log,
            tick=tick,
        )
    return ended(job, result, last_words(job.log))


def _settings(job: AgentJob, workspace: str) -> dict[str, Json]:
    return {
        "instruction": job.task.instruction,
        "base_url": job.base_url,
        "workspace": workspace,
        "protocol": job.settings.protocol,
        "max_tokens": job.settings.response_budget,
        "max_turns": job.settings.max_turns,
        "context": job.context,
        "reasoning_effort": job.settings.reasoning_effort,
        "prompt": job.settings.prompt,
    }


def identity() -> dict[str, Json]:
    """Return the program's version and sha256."""
    text = PROGRAM.read_bytes()
    version = re.search(rb'^VERSION = "(.+)"$', text, re.MULTILINE)
    assert version is not None
    return {"version": version[1].decode(), "sha256": hashlib.sha256(text).hexdigest()}


def last_words(log: Path) -> str:
    """Return what the transcript's last line says, in at most 300 characters: an end, an error, or where it stopped."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    event = _event(last)
    match event.get("event"):
        case None:
            words = last
        case "end":
            words = f"{event.get('reason')} in turn {event.get('turns')} {event.get('detail')}"
        case "error":
            words = f"error in turn {event.get('turn')}: {event.get('message')}"
        case _:
            words = f"cut off in turn {event.get('turn', 1)}"
    return " ".join(words.split())[:300]


def _event(line: str) -> dict[str, Json]:
    with suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict):
            return event
    return {}
