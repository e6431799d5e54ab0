"""Runs any agent that takes an OpenAI base URL: a command line with placeholders, in the same box as every other."""

import difflib
import functools
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from agent_ab import bubblewrap
from agent_ab.agents import clock
from agent_ab.agents.job import (
    LOG_BYTES,
    MODEL,
    AgentJob,
    Tick,
    ended,
    last_lines,
    require_start,
    watching_the_start,
)
from agent_ab.config import Agent
from agent_ab.errors import UserError
from agent_ab.model import AgentRun, Json, SandboxKind
from agent_ab.sandbox import Mount

PLACEHOLDERS = ("prompt", "base_url", "model", "workspace", "home")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def prepare(settings: Agent, sandbox: SandboxKind) -> None:
    """Look at the command, its placeholders and its mounts. Raises UserError that names the key."""
    if not settings.command:
        raise UserError(
            'agent.command: agent.kind = "command" needs the command line of your agent, as a list of words'
        )
    for key, texts in (("command", settings.command), ("env", settings.env.values())):
        for name in _PLACEHOLDER.findall(" ".join(texts)):
            # Other braces are the agent's own: JSON, awk.
            close = difflib.get_close_matches(name, PLACEHOLDERS, n=1, cutoff=0.7)
            if close and name not in PLACEHOLDERS:
                raise UserError(f"agent.{key}: unknown placeholder {{{name}}}; did you mean {{{close[0]}}}?")
    if settings.mounts and sandbox is SandboxKind.NONE:
        raise UserError("agent.mounts: there is nothing to mount into with the sandbox `none`; name the real paths")
    for mount in _mounts(settings):
        if not mount.source.exists():
            raise UserError(f"agent.mounts: {mount.source}: no such file or directory")
        if not mount.target.startswith("/"):
            raise UserError(f"agent.mounts: {mount.target}: a path in the box is absolute")
    if sandbox is SandboxKind.NONE and shutil.which(settings.command[0]) is None:
        raise UserError(f"agent.command: no program {settings.command[0]}")
    clock.prepare(settings.clock)


def identity(settings: Agent) -> dict[str, Json]:
    """Return the command line and what it runs: the profile's word for the version, and a digest of all that is mounted."""
    return {
        "version": settings.version,
        "sha256": _digest(tuple(mount.source for mount in _mounts(settings)), settings.command[:1]),
        "command": list(settings.command),
        "environment": {**settings.env, **clock.environment(settings.clock)},
        **clock.identity(settings.clock),
    }


def run(job: AgentJob, tick: Tick) -> AgentRun:
    """Run the command until it ends or its time is up; what it prints is its transcript.

    Raises ApparatusError when the box does not start, when the agent asks the model nothing within `startup_limit_s`, and
    when it fails before it has asked anything.
    """
    box = clock.shown(job.settings.clock, replace(job.box, mounts=(*job.box.mounts, *_mounts(job.settings))))
    with tempfile.TemporaryDirectory(prefix="agent-ab-home-") as home:
        boxed = box.settings.kind is SandboxKind.BWRAP
        values = {
            "prompt": job.task.instruction,
            "base_url": job.base_url,
            "model": MODEL,
            "workspace": box.inside(job.workspace),
            "home": bubblewrap.HOME if boxed else home,
        }
        box.own()
        result = box.run(
            [_filled(word, values) for word in job.settings.command],
            cwd=job.workspace,
            env={name: _filled(text, values) for name, text in job.settings.env.items()}
            | clock.environment(job.settings.clock, box),
            timeout_s=job.settings.time_limit_s,
            stdin=b"" if _takes_prompt(job.settings) else job.task.instruction.encode(),
            cap_bytes=LOG_BYTES,
            output=job.log,
            tick=watching_the_start(job, tick),
        )
    require_start(job, result)
    how = "cut off" if result.timed_out else f"ended with status {result.exit_code}"
    return ended(job, result, f"{how}; {last_lines(job.log, 1)}"[:300])


def _takes_prompt(settings: Agent) -> bool:
    return any("{prompt}" in text for text in (*settings.command, *settings.env.values()))


def _filled(text: str, values: dict[str, str]) -> str:
    # In one pass: the instruction may hold what looks like a placeholder.
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _mounts(settings: Agent) -> tuple[Mount, ...]:
    return tuple(
        Mount(Path(source).expanduser().absolute(), target) for target, source in sorted(settings.mounts.items())
    )


def _digest(roots: tuple[Path, ...], program: tuple[str, ...]) -> str:
    """Return a sha256 over all files below `roots`, or over the program on PATH when nothing is mounted."""
    found = [Path(path) for name in program if (path := shutil.which(name, path=bubblewrap.PATH) or shutil.which(name))]
    files = [file for root in roots or found for file in _files(root)]
    stamp = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return _digest_of(tuple(files), stamp)


@functools.lru_cache(maxsize=4)
def _digest_of(files: tuple[Path, ...], _stamp: tuple[tuple[str, int, int], ...]) -> str:
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path}\n".encode())
    return total.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    yield from sorted(file for file in root.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
