"""Pairs still needed if the run goes on as it did so far."""

from dataclasses import replace

import numpy as np
import pytest

from agent_ab.gate import outlook
from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.observations import Observation
from agent_ab.gate.policy import Policy
from agent_ab.gate.sample import evidence, sample
from agent_ab.verdict.reasons import as_so_far
from agent_ab.verdict.verdict import Decision, Forecast, Verdict
from tests import simulated
from tests.simulated import Truth
from tests.verdicts import pair, pairs, run

POLICY = Policy()
SEEN = 3
"""Blocks before the forecast."""
TRUTHS = {
    "breaks half of the solved": Truth((0.9,) * 4, (0.5,) * 4, log_ratio=-0.5),
    "breaks a fifth": Truth((0.9,) * 4, (0.2,) * 4, identical=0.9, log_ratio=-0.5),
    "all pairs are equal, always faster": Truth((1.0,) * 4, identical=1.0, log_ratio=-1.5),
    "loses nothing, 40 % faster": Truth((0.9,) * 4, identical=0.9, log_ratio=-0.5),
    "two tasks of four break": Truth((0.9,) * 4, (0.6, 0.6, 0, 0), identical=1.0, log_ratio=-0.5),
}


def forecast(observations: list[Observation]) -> Forecast | None:
    found = sample(observations, every_repeat_counts=False)
    return outlook.forecast(found, evidence(found, POLICY), POLICY)


def judged(observations: list[Observation]) -> Verdict:
    return judge(run(observations), observations, Rules(POLICY, POLICY))


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_the_forecast_is_about_right(truth: Truth) -> None:
    drawn = simulated.draw(truth, 50, 80, seed=5)
    words = simulated.first_words(drawn, POLICY)
    ratios = []
    for i in np.flatnonzero((words > SEEN) & (words < simulated.NEVER)):
        found = forecast(simulated.observations(drawn, int(i), SEEN))
        assert found
        ratios.append((found.more or outlook.MOST) / (simulated.TASKS * (words[i] - SEEN)))
    assert len(ratios) >= 20
    assert 0.7 <= np.median(ratios) <= 1.4


def test_four_broken_pairs_of_four_are_rejected_after_two_more_and_nothing_else_is_planned() -> None:
    for observations in (pairs(4, 10, 1), [pair(4 * n, 10, 1) for n in range(4)]):
        verdict = judged(observations)
        assert verdict.decision is Decision.INCONCLUSIVE and verdict.needed
        assert as_so_far(verdict.needed) == "about 2 (about 20 minutes), then REJECT."
        assert verdict.needed.contradicted
        assert not any("nothing differs" in line for line in verdict.reasons)


def test_one_block_of_unlike_pairs_foretells_nothing() -> None:
    verdict = judged([pair(0, 10, 1), *pairs(4)[1:]])
    assert verdict.needed and verdict.needed.as_observed is None
    assert as_so_far(verdict.needed) == "cannot be said from fewer than two whole blocks."


def test_equal_pairs_foretell_adoption_if_the_candidate_is_faster_and_nothing_if_it_is_not() -> None:
    faster = judged(pairs(8)).needed
    assert faster and as_so_far(faster) == "about 28 (about 4.7 hours), then ADOPT."
    slower = judged(pairs(8, ratio=1.1)).needed
    assert slower and as_so_far(slower) == "more than 1,000; no decision is in sight."


def test_what_is_foretold_for_repeated_equal_pairs_is_what_the_gate_then_says() -> None:
    found = forecast(pairs(8))
    assert found and found.more is not None
    assert judged(pairs(8 + found.more)).decision is found.decision is Decision.ADOPT
    assert judged(pairs(8 + found.more - 4)).decision is Decision.INCONCLUSIVE


def test_pairs_without_proof_never_foretell_adoption() -> None:
    found = forecast([replace(o, proven=False) for o in pairs(8)])
    assert found == Forecast(Decision.INCONCLUSIVE, 1.0, None, None, None)


def test_the_order_of_the_pairs_changes_no_forecast() -> None:
    mixed = [pair(n, 10, 1 if n % 5 == 0 else 10) for n in range(16)]
    assert judged(mixed).needed == judged(mixed[::-1]).needed
