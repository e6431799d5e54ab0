"""The vocabulary's own arithmetic."""

from agent_ab.model import Arm, PairOutcome
from tests.builders import attempt, check, checks, pair


def test_probes_are_not_scored() -> None:
    made = attempt(Arm.BASELINE, checks=(*checks(3), check("a-probe", scored=False)))
    assert (made.passed, len(made.scored), len(made.checks)) == (3, 10, 11)


def test_a_pair_is_named_by_its_run_and_is_void_until_judged() -> None:
    made = pair()
    assert made.name == "20260101-000000/transfer-repair-4242-0"
    assert made.outcome is PairOutcome.VOID and not made.valid
    assert made.attempt(Arm.CANDIDATE).arm is Arm.CANDIDATE
