"""100,000 pairs: read from a database, and judged. Wall time and CPU time of both.

python benchmarks/gate.py [PAIRS]
"""

import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from agent_ab.gate import gate
from agent_ab.gate.gate import Rules
from agent_ab.gate.observed import observed
from agent_ab.gate.policy import Policy
from agent_ab.store.store import Store

TASKS = tuple(f"task-{n}" for n in range(20))
CHECKS = 10


def fill(path: Path, pairs: int) -> None:
    """Write a run of `pairs` into the database, past the store: playing them would take a year."""
    rng = random.Random(1)
    attempts, checks, rows, evidence = [], [], [], []
    for n in range(pairs):
        block, task = divmod(n, len(TASKS))
        name = f"{TASKS[task]}-{block}-0"
        baseline = rng.choice((10, 10, 1, 3))
        candidate = baseline if rng.random() < 0.9 else rng.choice((10, 9, 1))
        outcome = ("BOTH_FAIL", "FIXED", "BROKEN", "BOTH_PASS")[2 * (baseline == 10) + (candidate == 10)]
        rows.append(("r", name, TASKS[task], block, 0, block, ("baseline", "candidate")[block % 2], outcome))
        for arm, passed in (("baseline", baseline), ("candidate", candidate)):
            seconds = rng.uniform(50, 480) * (1.0 if arm == "baseline" else 0.8)
            settings = json.dumps({"settings": {"server.speculation.type": arm}})
            attempts.append(("r", name, arm, seconds, passed, f"{arm}{n}", settings))
            checks += [("r", name, arm, f"check-{i}", "pass" if i < passed else "fail", i) for i in range(CHECKS)]
            evidence.append(("r", name, arm, f"{arm}{n}"))
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "insert into pair (run_id, id, task, seed, repeat, block, first_arm, outcome, variable, proof, flips, findings,"
            " saved_at) values (?, ?, ?, ?, ?, ?, ?, ?, 'server.speculation', '[]', '[]', '[]', '')",
            rows,
        )
        connection.executemany(
            "insert into attempt (run_id, pair_id, arm, agent_s, passed, conversation_sha256, body, outcome, position,"
            " started_at, duration_s, agent_end, scored, invalid_reason)"
            " values (?, ?, ?, ?, ?, ?, ?, 'FAIL', 0, '', 100.0, 'completed', 10, '')",
            attempts,
        )
        connection.executemany(
            "insert into check_result (run_id, pair_id, arm, check_id, status, ordinal, scored, reason, rule, duration_s)"
            " values (?, ?, ?, ?, ?, ?, 1, 'as the rule says', 'It works.', 0.1)",
            checks,
        )
        connection.executemany(
            "insert into evidence (run_id, pair_id, arm, sha256, path, size, mode) values (?, ?, ?, ?, 'snapshot.tar', 1, 420)",
            evidence,
        )


def main(pairs: int) -> None:
    """Print how long reading and judging took."""
    with tempfile.TemporaryDirectory(prefix="agent-ab-bench-") as room:
        path = Path(room) / "runs.db"
        store = Store(path)
        blocks = pairs // len(TASKS)
        grid = {"tasks": list(TASKS), "seeds": [{"seed": n} for n in range(blocks)], "repeats": 1}
        policy = Policy(max_pairs=pairs)
        store.save_run("r", "demo", "0", {"grid": grid}, kind="suite", blocks=blocks, policy=policy.to_json())
        fill(path, blocks * len(TASKS))
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {path.stat().st_size / 1e6:.0f} MB of database")
        marks = [(time.perf_counter(), time.process_time())]
        found = observed(store, store.run("r"))
        marks.append((time.perf_counter(), time.process_time()))
        verdict = gate.judge(found.run, found.observations, Rules(policy, policy))
        marks.append((time.perf_counter(), time.process_time()))
        store.close()
    for what, begin, end in zip(("read", "judged"), marks, marks[1:], strict=False):
        print(f"{what:<7} {end[0] - begin[0]:6.2f} s wall, {end[1] - begin[1]:6.2f} s CPU")
    print(f"both    {marks[2][0] - marks[0][0]:6.2f} s wall, {marks[2][1] - marks[0][1]:6.2f} s CPU")
    print(f"{verdict.decision}: {verdict.counts.counted} pairs, {verdict.reasons[0]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
