"""What holds for every server that we start: a free port, signs of work while it loads, and that it is gone at the end."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent_ab import process
from agent_ab.errors import ApparatusError
from agent_ab.model import Step

HOST = "127.0.0.1"
GONE_S = 3.0
BUSY_SHARE = 0.05
"""Below this share of one core a loading server is idle: answering our own polls takes about a hundredth."""
GROWTH_BYTES = 1 << 20
LOOK_S = 0.2
"""How often a server is looked at."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server's processes use."""

    rss_bytes: int
    cpu_s: float
    """User and system time since they started."""
    threads: int


def usage_of(pid: int) -> Usage | None:
    """Return what one process uses now, or None when it is gone."""
    try:
        handle = psutil.Process(pid)
        with handle.oneshot():
            times = handle.cpu_times()
            return Usage(handle.memory_info().rss, times.user + times.system, handle.num_threads())
    except psutil.Error:
        return None


def usage_of_family(pid: int) -> Usage | None:
    """Return what a process and all that it started use now, or None when it is gone."""
    try:
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return None
    seen = [found for found in map(usage_of, family) if found]
    return Usage(sum(u.rss_bytes for u in seen), sum(u.cpu_s for u in seen), sum(u.threads for u in seen))


class StallWatch:
    """Tells how long a loading server has shown no sign of work."""

    def __init__(self, log: Path, usage: Callable[[], Usage | None]) -> None:
        """Look for the first time."""
        self._log, self._usage = log, usage
        self._since = self._looked_at = time.monotonic()
        self._mark = self._look()

    def _look(self) -> tuple[int, int, float]:
        usage = self._usage() or Usage(0, 0.0, 0)
        return self._log.stat().st_size, usage.rss_bytes, usage.cpu_s

    def still_s(self) -> float:
        """Return for how many seconds log, memory and CPU time have stood still."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return now - self._since
        self._looked_at = now
        (log, rss, cpu), (log_then, rss_then, cpu_then) = self._look(), self._mark
        worked = cpu - cpu_then > max(0.1, BUSY_SHARE * (now - self._since))
        if log != log_then or abs(rss - rss_then) >= GROWTH_BYTES or worked:
            self._since, self._mark = now, (log, rss, cpu)
        return now - self._since


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listening(port: int) -> bool:
    """Return whether something accepts connections at `port`."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def unread(port: int) -> bool:
    """Return whether a client of 127.0.0.1:`port` leaves what it was sent unread: then the server waits for it.

    proc(5), /proc/net/tcp: local address, remote address, state, tx_queue:rx_queue.
    """
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}") and fields[3] == "01" and int(fields[4].partition(":")[0], 16):
            return True
    return False


def require_free(port: int) -> None:
    """Raise ApparatusError when another process has the port."""
    with socket.socket() as probe:
        # As the server does: a port of a closed connection may be used again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ApparatusError(Step.SERVER, f"port {port} is taken by another process: {error.strerror}") from None


def require_gone(child: process.Child, port: int, log: Path) -> None:
    """Raise ApparatusError when anything of a stopped server is still there."""
    deadline = time.monotonic() + GONE_S
    while _group_alive(child.pid) or listening(port):
        if time.monotonic() > deadline:
            what = f"process group {child.pid}" if _group_alive(child.pid) else f"port {port}"
            raise ApparatusError(Step.SERVER, f"{what} of {child.name} is still there after it was stopped", log)
        time.sleep(process.POLL_S)


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    # What is left may be a zombie that a container's first process never reaps.
    return any(_group_of(other.pid) == group and process.exists(other.pid) for other in psutil.process_iter())


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
