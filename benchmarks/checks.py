"""Ten checks on a solved workspace: wall time with the sandbox on, against the same ten without, interleaved.

python benchmarks/checks.py [ROUNDS]
"""

import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from agent_ab import checks, sandbox, snapshot, tasks, workspace
from agent_ab.config import Sandbox
from agent_ab.model import SandboxKind, Task

ROOT = Path(__file__).parent.parent


def seconds(task: Task, frozen: Path, kind: SandboxKind) -> float:
    """Return the wall time of one round; every check must pass. Raises AssertionError."""
    begin = time.perf_counter()
    results = checks.run(task, frozen, Sandbox(kind=kind))
    took = time.perf_counter() - begin
    assert all(r.status == "pass" for r in results if r.scored)
    return took


def main(rounds: int) -> None:
    """Print a line a task."""
    sandbox.require(SandboxKind.BWRAP)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {rounds} rounds, medians; the ten checks, no probes")
    for name in tasks.names(ROOT / "tasks"):
        with tempfile.TemporaryDirectory(prefix="agent-ab-bench-") as room:
            task = tasks.load(name, ROOT / "tasks")
            tree, frozen = Path(room) / "tree", Path(room) / "frozen"
            workspace.lay(task, tree, solved=True)
            snapshot.freeze(tree, frozen, Path(room) / "frozen.tar")
            times: dict[SandboxKind, list[float]] = {kind: [] for kind in SandboxKind}
            for _ in range(rounds):
                for kind in SandboxKind:
                    times[kind].append(seconds(without_probes(task, Path(room)), frozen, kind))
            boxed, loose = (statistics.median(times[kind]) for kind in (SandboxKind.BWRAP, SandboxKind.NONE))
            print(f"{name:<18} with the box {boxed:5.2f} s   without {loose:5.2f} s   ratio {boxed / loose:4.2f}")
            snapshot.remove(frozen)


def without_probes(task: Task, room: Path) -> Task:
    """Return `task` with a root that has no probes.py."""
    root = room / "task"
    if not root.exists():
        root.mkdir()
        for entry in task.root.iterdir():
            if entry.name not in ("probes.py", "__pycache__"):
                (root / entry.name).symlink_to(entry)
    return replace(task, root=root)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
