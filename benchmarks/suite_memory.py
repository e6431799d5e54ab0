"""How much memory the orchestrator holds through a long suite; its children are not counted.

    python -m benchmarks.suite_memory --pairs 200

Plays the small suite of tests/small_suite.py on real parts: llama-server with a scripted model, mitmproxy, bubblewrap, the
built-in agent. Prints the resident memory after so many pairs, and the greatest.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import psutil

from tests.command import ROOT
from tests.small_suite import SEEDS, small_suite

LOOK_S = 0.5
STEPS = 8
MIB = 1 << 20


def finished(database: Path) -> int:
    """Return how many pairs are in the database."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return int(connection.execute("select count(*) from pair").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def main() -> int:
    """Play and measure; return the suite's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    pairs = parser.parse_args().pairs
    # Short, because a unix socket's path is short.
    with tempfile.TemporaryDirectory(prefix="memory-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        given = small_suite(folder, 1)
        words = given.words("--repeats", pairs // len(SEEDS))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": name}
        argv = [sys.executable, "-m", "agent_ab", *words]
        with subprocess.Popen(argv, cwd=folder, env=environment, stderr=subprocess.DEVNULL, text=True) as running:
            greatest, told = 0, -1
            while running.poll() is None:
                try:
                    now = psutil.Process(running.pid).memory_info().rss
                except psutil.NoSuchProcess:
                    break
                greatest = max(greatest, now)
                done = finished(folder / "runs.db")
                if done * STEPS // pairs > told:
                    told = done * STEPS // pairs
                    sys.stdout.write(f"{done:>5} pairs  {now / MIB:6.1f} MiB now  {greatest / MIB:6.1f} MiB at most\n")
                    sys.stdout.flush()
                time.sleep(LOOK_S)
        sys.stdout.write(f"{finished(folder / 'runs.db'):>5} pairs, {greatest / MIB:.1f} MiB at most\n")
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
