"""The verdict's sentences."""

from dataclasses import replace

import pytest

from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.verdict import reasons
from agent_ab.verdict.verdict import EValues, Interval, Needed, Verdict
from tests.verdicts import pairs, run

POLICY = Policy()


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    return judge(run(pairs(8)), pairs(8), Rules(POLICY, POLICY))


def needed(**changes: object) -> Needed:
    return replace(Needed(64, 110, 54, 102, 17.0, 0.37), **changes)  # type: ignore[arg-type]


def said(verdict: Verdict, found: Needed, *, hopeless: bool = False, unproven: bool = False) -> str:
    assert verdict.correctness and verdict.time
    return " ".join(
        reasons.still_needed(found, verdict.correctness, verdict.time, POLICY, hopeless=hopeless, unproven=unproven)
    )


def test_pairs_and_hours_still_needed_come_with_their_assumption(verdict: Verdict) -> None:
    text = said(verdict, needed())
    assert "about 102 (110 in all, about 17.0 hours), if in truth nothing differs" in text
    assert "64 pairs for non-inferiority at margin 0.10, one-sided" in text
    assert "about 54 pairs" in text
    assert "30 minutes" in said(verdict, needed(hours=0.5))
    assert "hours" not in said(verdict, needed(hours=None)).split("For comparison")[0]


def test_pairs_without_proof_are_not_among_those_still_needed(verdict: Verdict) -> None:
    text = said(verdict, needed(), unproven=True)
    assert "about 110 with proof, played here (`agent-ab run --profile ...`), about 18.3 hours" in text
    assert "in all" not in text and "so far, a decision" in text and "can only be REJECT" in text
    assert "64 pairs for non-inferiority at margin 0.10, one-sided" in text
    assert "about 8 with proof" in said(verdict, needed(more=0, hours=0.0), unproven=True)
    assert "more than can be played" in said(verdict, needed(more=None, hours=None), unproven=True)


def test_what_is_out_of_reach_is_said_to_be(verdict: Verdict) -> None:
    assert "more than can be played" in said(verdict, needed(more=None, pairs_anytime=None))
    assert said(verdict, needed(), hopeless=True).startswith("More pairs of these tasks do not help")


def test_pairs_that_say_that_something_differs_are_not_planned_as_if_nothing_did(verdict: Verdict) -> None:
    assert verdict.correctness
    worse = replace(verdict.correctness, always_valid=Interval(-0.99, -0.1, 0.95))
    text = said(replace(verdict, correctness=worse), needed(pairs_as_observed=9))
    assert "More pairs like these do not lead to ADOPT" in text and "about 9 pairs" in text
    assert "if in truth nothing differs" not in text and "For comparison" not in text


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
