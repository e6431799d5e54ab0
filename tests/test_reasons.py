"""The verdict's sentences."""

from dataclasses import replace

import pytest

from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.verdict import reasons
from agent_ab.verdict.verdict import Decision, EValues, Forecast, Interval, Needed, Verdict
from tests.verdicts import pair, pairs, run

POLICY = Policy()


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    return judge(run(pairs(8)), pairs(8), Rules(POLICY, POLICY))


def needed(**changes: object) -> Needed:
    soon = Forecast(Decision.REJECT, 0.7, 46, 30, 80)
    return replace(Needed(64, 110, soon, 600.0, False, 102, 17.0, 0.37), **changes)  # type: ignore[arg-type]


def said(verdict: Verdict, found: Needed, *, hopeless: bool = False, unproven: bool = False) -> str:
    assert verdict.correctness and verdict.time
    return " ".join(
        reasons.still_needed(found, verdict.correctness, verdict.time, POLICY, hopeless=hopeless, unproven=unproven)
    )


def test_pairs_and_hours_still_needed_come_with_their_assumption(verdict: Verdict) -> None:
    text = said(verdict, needed())
    assert text.startswith(
        "Pairs still needed if it goes on as it did so far: about 46 (30 to 80, about 7.7 hours), then REJECT in 70.0 % of the"
        " simulated continuations. Pairs still needed if in truth nothing differs: about 102 (110 in all, about 17.0 hours),"
    )
    assert "64 pairs for non-inferiority at margin 0.10, one-sided" in text
    assert "30 minutes" in said(verdict, needed(hours=0.5))
    assert "hours" not in said(verdict, needed(hours=None, pair_s=None)).split("For comparison")[0]
    unknown = said(verdict, needed(as_observed=Forecast(Decision.INCONCLUSIVE, 0.9, None, None, None)))
    assert "so far: more than 1,000; no decision is in sight. Pairs" in unknown


def test_pairs_without_proof_are_not_among_those_still_needed(verdict: Verdict) -> None:
    text = said(verdict, needed(), unproven=True)
    assert "about 110 with proof, run here (`agent-ab run --profile ...`), about 18.3 hours" in text
    assert "in all" not in text and "Without proof it can only be REJECT." in text
    assert "64 pairs for non-inferiority at margin 0.10, one-sided" in text
    assert "about 8 with proof" in said(verdict, needed(more=0, hours=0.0), unproven=True)
    assert "more than can be run" in said(verdict, needed(more=None, hours=None), unproven=True)


def test_what_is_out_of_reach_is_said_to_be(verdict: Verdict) -> None:
    assert "more than can be run" in said(verdict, needed(more=None, pairs_anytime=None))
    assert said(verdict, needed(), hopeless=True).startswith("More pairs of these tasks do not help")


def test_pairs_that_say_that_something_differs_are_not_planned_as_if_nothing_did(verdict: Verdict) -> None:
    assert verdict.correctness
    worse = replace(verdict.correctness, always_valid=Interval(-0.99, -0.1, 0.95))
    text = said(replace(verdict, correctness=worse), needed())
    assert "More pairs like these do not lead to ADOPT" in text and "about 46 (30 to 80" in text
    assert "if in truth nothing differs" not in text and "For comparison" not in text
    text = said(verdict, needed(contradicted=True))
    assert "if in truth nothing differs" not in text and "For comparison" not in text


def test_tasks_that_always_come_out_alike_are_named_with_their_share_of_the_time() -> None:
    observations = [pair(n, 1 if n % 4 == 0 else 10 - n % 3, 1 if n % 4 == 0 else 10) for n in range(12)]
    verdict = judge(run(observations), observations, Rules(POLICY, POLICY))
    (line,) = (text for text in verdict.warnings if text.startswith("Tasks without information"))
    assert "build-planner (10.0 % of the checks) came out alike in every attempt of both arms" in line
    assert "took 25.0 % of the time" in line and "Leaving them out of the next plan would save that" in line
    assert [task.constant for task in verdict.tasks] == [True, False, False, False]
    equal = judge(run(pairs(12)), pairs(12), Rules(POLICY, POLICY))
    assert not any(text.startswith("Tasks without") for text in equal.warnings)


def test_evidence_is_named_with_what_it_is_for_and_what_it_takes(verdict: Verdict) -> None:
    assert verdict.correctness
    e = EValues(1.45, 0.9, 2.0, 25.0, 19.0, 3e9, 20.0)
    harm, fit, solved, fast = reasons.evidence(e, verdict.correctness, POLICY)
    assert harm == (
        "Not shown: that the candidate passes fewer checks or solves fewer tasks; evidence 1.45 (the mean of checks 0.90"
        " and solved tasks 2.00), 20 needed."
    )
    assert solved.startswith("Not shown: that it loses fewer than 10 solved tasks in a hundred (between -")
    assert fit.startswith("Shown: that it loses less than 0.1 of the checks per pair (mean difference +0.0000")
    assert fast == "Shown: that it takes less wall time than the baseline; evidence over 1,000,000, 20 needed."
    slow = reasons.evidence(e, verdict.correctness, Policy(max_time_ratio=1.2))[3]
    assert "less than 1.2 times the baseline's wall time" in slow
