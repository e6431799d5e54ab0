"""What works on this machine and what does not, each line with what to do about it. Changes nothing, builds nothing."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from agent_ab import build, build_steps, engine, proxy, sandbox, server, workspace
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Observer, SandboxKind

FREE_BYTES = 3 * 2**30
"""Enough for the build, the demo model and some runs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination."""

    name: str
    ok: bool
    detail: str
    """What was found, or what is wrong and what to do about it."""


def examine(binary: str, observer: Observer) -> tuple[Finding, ...]:
    """Return one finding for each part that a pair needs; `binary` is the profile's `server.binary`."""
    return (
        _python(),
        _try("git", _git),
        _engine(binary, observer),
        _try("proxy", lambda: proxy.find_mitmdump(os.environ)),
        _try("sandbox", _sandbox),
        _try("sandbox python", sandbox.python),
        _cache(),
        _try("loopback", lambda: f"port {server.free_port()} of 127.0.0.1 can be bound"),
    )


def _try(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, look())
    except ApparatusError as error:
        return Finding(name, False, error.message)
    except (UserError, OSError) as error:
        return Finding(name, False, str(error))


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), f"{version} ({sys.executable})")


def _git() -> str:
    workspace.require_git()
    return shutil.which("git") or ""


def _engine(binary: str, observer: Observer) -> Finding:
    named = binary or os.environ.get(engine.BINARY_VARIABLE) or shutil.which("llama-server")
    if named or build.present(engine.cache_dir()):
        return _try("engine", lambda: engine.describe(engine.find(binary, observer)))
    try:
        build_steps.require_tools()
    except UserError as error:
        return Finding("engine", False, f"no llama-server yet, and it cannot be built: {error}")
    return Finding("engine", True, "no llama-server yet; the first run builds it (about 7 minutes on 2 cores)")


def _sandbox() -> str:
    sandbox.require(SandboxKind.BWRAP)
    facts = sandbox.describe(Sandbox())
    return f"bubblewrap {facts['bubblewrap']}"


def _cache() -> Finding:
    root = engine.cache_dir()
    there = root
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return Finding("cache", False, f"{root} cannot be written; name another directory with {engine.CACHE_VARIABLE}")
    if free < FREE_BYTES:
        return Finding(
            "cache",
            False,
            f"{root}: only {free / 2**30:.1f} GiB are free; name another directory with {engine.CACHE_VARIABLE}",
        )
    return Finding("cache", True, f"{root}, {free / 2**30:.0f} GiB free")
