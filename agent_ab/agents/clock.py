"""A pinned start time for an agent's processes, by libfaketime: the Python package's, or the system's.

Every process finds the same moment when it starts, and time passes from there. Files keep their real times: libfaketime
would move them by the distance to the process's real start, which differs between attempts. The monotonic clock, which
timers use, stays real as well.
"""

import hashlib
import importlib.util
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from agent_ab import process
from agent_ab.errors import UserError
from agent_ab.model import Json
from agent_ab.sandbox import Box, Mount

SYSTEM = ("usr/lib/*/faketime", "usr/lib/faketime", "usr/lib64/faketime", "usr/local/lib/faketime")
"""Where Debian, Arch, Fedora and one's own build put it."""
IN_THE_BOX = "/opt/libfaketime.so.1"
REMEDY = "pip install libfaketime (it takes a C compiler), or remove the key"
PROBE_S = 10.0


def prepare(moment: str) -> None:
    """Refuse a moment that never is, and a libfaketime that is missing or breaks what it must leave alone. Raises UserError."""
    if not moment:
        return
    try:
        datetime.strptime(moment, "%Y-%m-%d %H:%M:%S")
    except ValueError as error:
        raise UserError(f"agent.clock: {moment}: {error}") from None
    found = library()
    # libfaketime 0.9.10 and older fail every sleep until a moment of the real monotonic clock, as Python's do.
    argv = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(0.001)"]
    done = process.run(argv, env=_variables(moment, str(found)), timeout_s=PROBE_S)
    if done.exit_code != 0:
        raise UserError(f"agent.clock: under {found} programs cannot sleep (fixed in libfaketime 0.9.11): {REMEDY}")


def environment(moment: str, box: Box | None = None) -> dict[str, str]:
    """Return the variables that start a process at `moment` (UTC, "2026-03-01 12:00:00"); none for "".

    Without a `box`, as they are in every box. Raises UserError.
    """
    if not moment:
        return {}
    return _variables(moment, box.inside(library()) if box else IN_THE_BOX)


def shown(moment: str, box: Box) -> Box:
    """Return `box` with the library in it, when there is a moment to start at. Raises UserError."""
    if not moment:
        return box
    return replace(box, mounts=(*box.mounts, Mount(library(), IN_THE_BOX)))


def identity(moment: str) -> dict[str, Json]:
    """Return what a report says about the clock; nothing for the real one. Raises UserError."""
    if not moment:
        return {}
    return {"clock": moment, "libfaketime_sha256": hashlib.sha256(library().read_bytes()).hexdigest()}


def library() -> Path:
    """Return the Python package's libfaketime, or else the system's. Raises UserError."""
    package = importlib.util.find_spec("libfaketime")
    for folder in package.submodule_search_locations or () if package else ():
        for path in sorted(Path(folder).rglob("libfaketime.so.1")):
            return path
    return of_the_system()


def of_the_system(root: Path = Path("/")) -> Path:
    """Return the libfaketime for programs with threads below `root`. Raises UserError."""
    for pattern in SYSTEM:
        for path in sorted(root.glob(f"{pattern}/libfaketimeMT.so.1")):
            return path
    raise UserError(f"agent.clock needs libfaketime, which is missing: {REMEDY}")


def _variables(moment: str, library: str) -> dict[str, str]:
    return {"LD_PRELOAD": library, "FAKETIME": f"@{moment}", "NO_FAKE_STAT": "1", "DONT_FAKE_MONOTONIC": "1"}
