"""A pinned start time for an agent's processes, by the system's libfaketime.

Every process finds the same moment when it starts, and time passes from there. Files keep their real times: libfaketime
would move them by the distance to the process's real start, which differs between attempts. The monotonic clock, which
timers use, stays real as well.
"""

import hashlib
from datetime import datetime
from pathlib import Path

from agent_ab.errors import UserError
from agent_ab.model import Json

LIBRARY = "libfaketimeMT.so.1"
FOLDERS = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime")
"""Under /usr, which every box shows: Debian, Arch, Fedora, and one's own build."""


def environment(moment: str) -> dict[str, str]:
    """Return the variables that start a process at `moment` (UTC, "2026-03-01 12:00:00"); none for "". Raises UserError."""
    if not moment:
        return {}
    try:
        datetime.strptime(moment, "%Y-%m-%d %H:%M:%S")
    except ValueError as error:
        raise UserError(f"agent.clock: {moment}: {error}") from None
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME": f"@{moment}",
        "NO_FAKE_STAT": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def identity(moment: str) -> dict[str, Json]:
    """Return what a report says about the clock; nothing for the real one. Raises UserError."""
    if not moment:
        return {}
    return {"clock": moment, "libfaketime_sha256": hashlib.sha256(library().read_bytes()).hexdigest()}


def library(root: Path = Path("/")) -> Path:
    """Return the libfaketime of the system below `root`. Raises UserError."""
    for pattern in FOLDERS:
        for path in sorted(root.glob(f"{pattern[1:]}/{LIBRARY}")):
            return path
    raise UserError(
        f"agent.clock needs libfaketime ({LIBRARY}), which is missing: apt install faketime, or remove the key"
    )
