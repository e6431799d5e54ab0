"""Small builders of observations, so that a test names only what it is about."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent_ab.gate.observations import Observation, RunFacts, Side
from agent_ab.model import Arm, PairOutcome

TASKS = ("build-planner", "csv-ledger", "expiring-cache", "transfer-repair")


def side(passed: int = 10, of: int = 10, **changes: Any) -> Side:
    checks = {f"check-{i}": i < passed for i in range(of)}
    return replace(Side(passed, of, checks, seconds=100.0), **changes)


def pair(number: int = 0, baseline: int = 10, candidate: int = 10, ratio: float = 0.8, **changes: Any) -> Observation:
    """Return the pair `number` of a run over four tasks: block number // 4; each conversation is its own."""
    block, task = divmod(number, len(TASKS))
    made = Observation(
        pair=f"{TASKS[task]}-{block}-0",
        task=TASKS[task],
        seed=block,
        repeat=0,
        block=block,
        first_arm=Arm.BASELINE if block % 2 == 0 else Arm.CANDIDATE,
        outcome=outcome(baseline, candidate),
        baseline=side(baseline, settings="a", conversation=f"b{number}"),
        candidate=side(candidate, seconds=100.0 * ratio, settings="b", conversation=f"c{number}"),
    )
    return replace(made, **changes)


def pairs(count: int, baseline: int = 10, candidate: int = 10, ratio: float = 0.8) -> list[Observation]:
    return [pair(n, baseline, candidate, ratio) for n in range(count)]


def outcome(baseline: int, candidate: int, of: int = 10) -> PairOutcome:
    match baseline == of, candidate == of:
        case True, True:
            return PairOutcome.BOTH_PASS
        case True, False:
            return PairOutcome.BROKEN
        case False, True:
            return PairOutcome.FIXED
    return PairOutcome.BOTH_FAIL


def run(observations: Sequence[Observation], **changes: Any) -> RunFacts:
    """Return the facts of a run whose blocks are just those that were played."""
    planned: dict[int, int] = {}
    for o in observations:
        planned[o.block] = planned.get(o.block, 0) + 1
    made = RunFacts("20260101-000000", "suite", "demo", "server.speculation", planned, pair_s=600.0)
    return replace(made, **changes)
