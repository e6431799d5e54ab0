"""Small runs for the page's tests: pairs of the builders, judged by the real gate."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent_ab.divergence import divergence, parting, reply_diff
from agent_ab.gate import observations
from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.model import AgentEnd, AgentRun, Arm, ExchangeLog, Pair
from agent_ab.pair.pair import judge as judged
from agent_ab.report.page.compose import Subject
from agent_ab.report.page.contents import RunFacts
from agent_ab.verdict.verdict import Verdict
from tests import verdicts
from tests.builders import attempt, exchange, pair, timings

RUN = "20260101-000000"
TASKS = verdicts.TASKS


def drafted(index: int, prompt: int, arm: Arm, said: str) -> Any:
    """Return an exchange with so many prompt tokens; the candidate drafts."""
    extra = {"draft_n": 30, "draft_n_accepted": 21} if arm is Arm.CANDIDATE else {}
    return exchange(index, content=said, timings=timings(prompt_n=prompt, predicted_ms=100.0, **extra))


def played(number: int, baseline: int = 10, candidate: int = 10, ratio: float = 0.8, **changes: Any) -> Pair:
    """Return the pair `number` over four tasks, with a log of two exchanges an arm, 100 seconds in the baseline."""
    block, task = divmod(number, len(TASKS))
    arms = {}
    for arm, passed, wall in ((Arm.BASELINE, baseline, 100.0), (Arm.CANDIDATE, candidate, 100.0 * ratio)):
        log = ExchangeLog((drafted(0, 700, arm, f"reading {number}"), drafted(1, 3000, arm, "done")), ())
        arms[arm] = attempt(arm, passed, log=log, agent=AgentRun(AgentEnd.COMPLETED, 0, wall, 480.0))
    made = judged(pair(arms[Arm.BASELINE], arms[Arm.CANDIDATE]))
    first = Arm.BASELINE if block % 2 == 0 else Arm.CANDIDATE
    found = divergence.between(made.baseline, made.candidate, reply_diff.recorded({}))
    named: dict[str, Any] = {
        "id": f"{TASKS[task]}-{block}-0",
        "task": TASKS[task],
        "seed": block,
        "block": block,
        "first_arm": first,
    }
    return replace(made, divergence=parting.to_json(found), **(named | changes))


def verdict_of(pairs: Sequence[Pair]) -> Verdict:
    """Return what the gate says of `pairs`."""
    seen = [observations.observe(p) for p in pairs]
    return judge(verdicts.run(seen), seen, Rules(Policy(), Policy()))


def subject(pairs: Sequence[Pair], **changes: Any) -> Subject:
    """Return a finished suite of `pairs` with its verdict."""
    facts = RunFacts(
        id=RUN,
        created_at="2026-01-01T08:30:00+00:00",
        status="finished",
        note="",
        kind="suite",
        profile="demo",
        version="0.1.0",
        plan={"tasks": {task: "f" * 64 for task in TASKS}},
        plan_sha256="e" * 64,
        policy_sha256="d" * 64,
    )
    return Subject(replace(facts, **changes), tuple(pairs), verdict_of(pairs))
