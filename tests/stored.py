"""Runs in a database, as a suite would have left them, so that a test names only what it is about."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, Attempt, FileDigest, Json, Pair
from agent_ab.pair.pair import judge
from agent_ab.store.store import Store
from tests import builders
from tests.verdicts import TASKS

TIME_RATIO = 0.5


def plan(tasks: Sequence[str] = TASKS, seeds: int = 2, **profile: Any) -> Json:
    """Return a suite's plan, with what names its baseline, model, binary and tasks."""
    return {
        "format": 1,
        "profile": {
            "name": "demo",
            "variable": "server.speculation",
            "server": {"context": 8192},
            "candidate": {"server": {"speculation": {"type": "draft-mtp"}}},
            **profile,
        },
        "grid": {"tasks": list(tasks), "seeds": [{"seed": s, "first": "baseline"} for s in range(seeds)], "repeats": 1},
        "tasks": dict.fromkeys(tasks, "t" * 64),
        "engines": {arm.value: "e" * 64 for arm in Arm},
        "models": {arm.value: dict.fromkeys(tasks, "m" * 64) for arm in Arm},
        "agents": {arm.value: {"kind": "builtin"} for arm in Arm},
    }


def attempt(arm: Arm, number: int, passed: int, **changes: Any) -> Attempt:
    """Return the attempt of pair `number`; its conversation and its snapshot are its own."""
    made = builders.attempt(arm, passed)
    assert made.agent and made.log
    said = (replace(made.log.exchanges[0], content=f"{arm} {number} {passed}"), *made.log.exchanges[1:])
    seconds = made.agent.duration_s * (TIME_RATIO if arm is Arm.CANDIDATE else 1.0)
    made = replace(
        made,
        log=replace(made.log, exchanges=said),
        agent=replace(made.agent, duration_s=seconds),
        evidence=(*made.evidence, FileDigest("snapshot.tar", f"{arm} {number}".encode().hex().rjust(64, "0"), 9)),
    )
    return replace(made, **changes)


def pair(run: str, number: int, baseline: int = 10, candidate: int = 10, **changes: Any) -> Pair:
    block, task = divmod(number, len(TASKS))
    made = judge(
        replace(
            builders.pair(attempt(Arm.BASELINE, number, baseline), attempt(Arm.CANDIDATE, number, candidate)),
            run=run,
            id=f"{TASKS[task]}-{block}-0",
            task=TASKS[task],
            seed=block,
            block=block,
        )
    )
    assert made.valid, made.proof
    return replace(made, **changes)


def save(
    store: Store, run: str, pairs: Sequence[Pair], *, kind: str = "suite", blocks: int = 2, **options: Any
) -> None:
    """Store a finished run with its pairs; options: `plan`, `policy`."""
    policy = options.get("policy", Policy())
    store.save_run(
        run,
        "demo",
        "0.1",
        options.get("plan") or plan(),
        kind=kind,
        blocks=blocks,
        policy=None if policy is None else policy.to_json(),
    )
    for one in pairs:
        store.save_pair(one)
    store.end_run(run, "finished")


def database(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.db")
