"""What works on this machine and what does not, each line with what to do about it. Changes nothing, builds nothing."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

import agent_ab
from agent_ab import agents, proxy, sandbox, workbench, workspace
from agent_ab.agents import clock, opencode_install
from agent_ab.config import Agent, ArmSettings, Profile, Sandbox
from agent_ab.doctor import server as doctor_server
from agent_ab.doctor.findings import Finding, looked
from agent_ab.doctor.memory import GIB, size
from agent_ab.engine import engine
from agent_ab.errors import UserError
from agent_ab.model import Arm, Observer, SandboxKind
from agent_ab.server import server

BUILD_BYTES = 3 * GIB
"""Enough for the build and the demo model."""
RUN_BYTES = GIB
"""Enough for some runs; a pair's evidence is below 10 MB, its scratch directory below a hundred."""
DAY_S = 86_400.0
QUIET_SHARE = 0.5
"""Above this load per core, something else is at work."""


def examine(
    profile: Profile, observer: Observer, *, runs_dir: Path = Path("runs"), free: int | None = None
) -> tuple[Finding, ...]:
    """Return a finding for each part that a pair of `profile` needs; `free` bytes replace the memory that is free here."""
    arms = _arms(profile)
    servers = {name: tuple(doctor_server.examine(arm, free, observer)) for name, arm in arms.items()}
    first = next(iter(arms.values()))
    return (
        _python(),
        looked("git", _git),
        *merged(servers),
        *merged({name: (_agent(arm.agent, arm.sandbox.kind),) for name, arm in arms.items()}),
        looked("proxy", lambda: proxy.find_mitmdump(os.environ)),
        *_box(first.sandbox),
        _ports(),
        disk("cache", engine.cache_dir(), BUILD_BYTES, engine.CACHE_VARIABLE),
        disk("runs", runs_dir, RUN_BYTES, "--runs-dir"),
        _clock(first.agent.clock),
        _load(),
    )


def _arms(profile: Profile) -> dict[str, ArmSettings]:
    """Return the baseline and each candidate, by name."""
    if not profile.candidates:
        return {arm.value: profile.arm(arm) for arm in Arm}
    others = {name: profile.only(name).arm(Arm.CANDIDATE) for name in profile.candidates}
    return {Arm.BASELINE.value: profile.model_copy(update={"candidates": {}}).arm(Arm.BASELINE), **others}


def merged(by_arm: Mapping[str, Sequence[Finding]]) -> Iterator[Finding]:
    """Yield the arms' findings part by part; what is the same in all arms is said once."""
    names = dict.fromkeys(finding.name for found in by_arm.values() for finding in found)
    for name in names:
        told: dict[Finding, list[str]] = {}
        for arm, found in by_arm.items():
            for finding in found:
                if finding.name == name:
                    told.setdefault(finding, []).append(arm)
        for finding, arms in told.items():
            yield finding if len(told) == 1 else replace(finding, name=f"{name} {', '.join(arms)}")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), f"{version} ({sys.executable})")


def _git() -> str:
    workspace.require_git()
    return shutil.which("git") or ""


def _agent(settings: Agent, box: SandboxKind) -> Finding:
    if settings.kind == "opencode":
        return _opencode(settings)

    def look() -> str:
        # These find what there is; only OpenCode would be installed.
        agents.prepare(settings, box, lambda _: None)
        return f"{settings.kind}, {settings.protocol}" if settings.kind == "builtin" else settings.kind

    return looked("agent", look)


def _opencode(settings: Agent) -> Finding:
    named = shutil.which(settings.binary or opencode_install.PROGRAM)
    if settings.binary and named is None:
        todo = "correct agent.binary, or leave it empty: then OpenCode is installed from npm"
        return Finding("agent", False, f"agent.binary: no program {settings.binary}", todo)
    if named:

        def probe() -> str:
            found = opencode_install.probe(Path(named), "PATH")
            if settings.version not in ("", found.version):
                raise UserError(f"agent.version: {named} is OpenCode {found.version}, not {settings.version}")
            return f"OpenCode {found.version}: {named}"

        return looked("agent", probe)
    kept = sorted(
        (engine.cache_dir() / "agents").glob(f"opencode-{settings.version or opencode_install.TRIED}-*/opencode")
    )
    if kept:
        return Finding("agent", True, f"OpenCode: {kept[0]}")
    if shutil.which("npm") is None:
        todo = "apt install npm, or name an existing opencode in agent.binary"
        return Finding("agent", False, "no opencode on PATH or in the cache, and no npm to install it with", todo)
    return Finding("agent", True, "no opencode yet", "the first run installs it with npm (60 MB)")


def _box(settings: Sandbox) -> Iterator[Finding]:
    if settings.kind is SandboxKind.NONE:
        todo = 'set sandbox.kind = "bwrap" to have model-written commands in a box'
        yield Finding("sandbox", True, "none: what the model writes runs loose on this machine", todo)
        return
    yield looked("sandbox", _bubblewrap)
    yield looked("sandbox python", sandbox.python)


def _bubblewrap() -> str:
    sandbox.require(SandboxKind.BWRAP)
    return f"bubblewrap {sandbox.describe(Sandbox())['bubblewrap']}"


def _ports() -> Finding:
    def look() -> str:
        workbench.require_short_scratch()
        return f"port {server.free_port()} of 127.0.0.1 can be bound, sockets fit below {tempfile.gettempdir()}"

    return looked("ports", look)


def disk(name: str, root: Path, needed: int, remedy: str) -> Finding:
    """Return whether `root` can be written and has `needed` bytes; `remedy` names what chooses another."""
    there = root.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return Finding(name, False, f"{root} cannot be written", f"name another directory with {remedy}")
    if free < needed:
        todo = f"make room, or name another directory with {remedy}"
        return Finding(name, False, f"{root}: {size(free)} are free, {size(needed)} are needed", todo)
    return Finding(name, True, f"{root}, {size(free)} free")


def _clock(pinned: str) -> Finding:
    """Compare the clock with our own files, which no right clock finds in the future."""

    def look() -> str:
        clock.prepare(pinned)
        written = max(file.stat().st_mtime for file in Path(agent_ab.__file__).parent.rglob("*.py"))
        if (behind := written - time.time()) > DAY_S:
            raise UserError(f"it is {behind / DAY_S:.0f} days behind our own files: set it (timedatectl set-ntp true)")
        how = f"the agent's is pinned to {pinned} UTC" if pinned else "the agent sees the real time"
        return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {how}"

    return looked("clock", look)


def _load() -> Finding:
    cores, load = os.cpu_count() or 1, psutil.getloadavg()[0]
    detail = f"load {load:.1f} on {cores} cores"
    return Finding(
        "load", True, detail, "end what else runs: it adds noise to the times" if load > QUIET_SHARE * cores else ""
    )
