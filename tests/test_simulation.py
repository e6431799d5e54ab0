"""How often the gate errs, by simulation with a fixed seed; benchmarks/simulation.py prints a longer one."""

import pytest

from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.stats.eprocess import Side
from tests import simulated
from tests.simulated import Truth, draw, shares
from tests.verdicts import run

POLICY = Policy()
RUNS, BLOCKS = 1000, 30
AT_THE_MARGIN = {
    "all tasks alike": Truth((0.5,) * 4, (0.1 / 0.45,) * 4, log_ratio=-0.7),
    "one task bears it all": Truth((0.5, 0.5, 0.5, 0.5), (0.4 / 0.45, 0, 0, 0), log_ratio=-0.7),
    "mostly the same": Truth((0.5,) * 4, (0.1 / 0.45,) * 4, identical=0.7, log_ratio=-0.7),
}


@pytest.mark.parametrize("identical", [0.0, 0.7])
def test_the_same_setting_twice_is_falsely_rejected_or_adopted_in_at_most_alpha_of_the_runs(identical: float) -> None:
    found = draw(Truth(identical=identical), RUNS, BLOCKS, seed=1)
    said = shares(found, POLICY)
    assert max(said.reject, said.adopt, said.reject_at_end, said.adopt_at_end) <= POLICY.alpha


@pytest.mark.parametrize("truth", AT_THE_MARGIN.values(), ids=AT_THE_MARGIN)
def test_a_loss_of_the_margin_is_falsely_adopted_in_at_most_alpha_of_the_runs(truth: Truth) -> None:
    assert truth.difference == pytest.approx(-POLICY.margin)
    said = shares(draw(truth, RUNS, BLOCKS, seed=2), POLICY)
    assert max(said.adopt, said.adopt_at_end) <= POLICY.alpha


def test_an_equally_fast_candidate_is_falsely_adopted_in_at_most_alpha_of_the_runs() -> None:
    said = shares(draw(Truth((1.0,) * 4, identical=1.0), RUNS, BLOCKS, seed=3), POLICY)
    assert max(said.adopt, said.adopt_at_end) <= POLICY.alpha


def test_a_faster_candidate_that_loses_nothing_is_found() -> None:
    said = shares(draw(Truth((0.9,) * 4, identical=0.9, log_ratio=-0.5), RUNS, BLOCKS, seed=4), POLICY)
    assert said.adopt > 0.9


def test_mcnemar_on_single_checks_raises_a_false_alarm_in_a_third_of_the_runs_and_more() -> None:
    found = draw(Truth(), RUNS, BLOCKS, seed=1)
    for blocks in (2, 10, 30):
        assert simulated.mcnemar_on_checks(found, blocks) > 1 / 3


def test_repeats_that_are_dropped_would_break_the_level_and_repeats_that_are_capped_keep_it() -> None:
    assert simulated.repeating(500, BLOCKS, 5, capped=False) > 0.9
    assert simulated.repeating(500, BLOCKS, 5, capped=True) <= POLICY.alpha


def test_the_simulated_evidence_is_the_gates_own() -> None:
    found = draw(Truth(breaks=(0.5, 0.2, 0.1, 0.0), log_ratio=-0.2), 3, 5, seed=6)
    harm = [simulated.tally(values).e(0.0, Side.HARM).reshape(3, 5) for values in (found.d, found.solved)]
    e = [(harm[0] + harm[1]) / 2, simulated.tally(found.d).e(-0.1, Side.GAIN)]
    for i in range(3):
        observations = simulated.observations(found, i, 5)
        verdict = judge(run(observations), observations, Rules(POLICY, POLICY))
        assert [point.harm for point in verdict.path] == pytest.approx(list(e[0][i]))
        assert verdict.evidence and verdict.evidence.noninferior == pytest.approx(e[1].reshape(3, 5)[i, -1])
