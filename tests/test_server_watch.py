"""What holds for every server that we start."""

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from agent_ab import process
from agent_ab.errors import ApparatusError
from agent_ab.server import watch as server_watch
from agent_ab.server.watch import StallWatch, Usage


def test_a_free_port_is_free_and_a_taken_one_is_named() -> None:
    port = server_watch.free_port()
    server_watch.require_free(port)
    assert not server_watch.listening(port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert server_watch.listening(port)
        with pytest.raises(ApparatusError, match=f"port {port} is taken by another process"):
            server_watch.require_free(port)


def test_standing_still_is_told_by_log_memory_and_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a")
    now = [Usage(10 << 20, 1.0, 1)]
    watch = StallWatch(log, lambda: now[0])
    for change in (lambda: log.write_text("ab"), lambda: now.__setitem__(0, Usage(12 << 20, 1.0, 1)), None):
        time.sleep(server_watch.LOOK_S + 0.05)
        before = watch.still_s()
        if change is None:
            assert before > server_watch.LOOK_S
            break
        change()
        time.sleep(server_watch.LOOK_S + 0.05)
        assert watch.still_s() < before


def test_a_family_is_measured_with_its_children(tmp_path: Path) -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    argv = [sys.executable, "-c", nested]
    with process.started(argv, env={"PATH": os.defpath}, log=tmp_path / "log", name="x", patience_s=(1.0,)) as child:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            one, family = server_watch.usage_of(child.pid), server_watch.usage_of_family(child.pid)
            if one and family and family.threads > one.threads:
                break
            time.sleep(0.05)
        assert one and family and family.rss_bytes > one.rss_bytes
    assert server_watch.usage_of(child.pid) is None and server_watch.usage_of_family(child.pid) is None
    server_watch.require_gone(child, server_watch.free_port(), tmp_path / "log")
