"""What an A/A run says of the apparatus."""

from dataclasses import replace

import numpy as np
import pytest

from agent_ab.gate.noise import false_alarms, noise, to_json
from agent_ab.gate.observations import Observation
from agent_ab.gate.policy import Policy
from agent_ab.stats.walltime import TimePair, direction
from tests.verdicts import pair, pairs

POLICY = Policy()


def noisy(blocks: int = 8) -> list[Observation]:
    """Return A/A pairs of a model that solves half of the time, and takes as long in either arm."""
    rng = np.random.default_rng(4)
    solved = np.where(rng.random((4 * blocks, 2)) < 0.5, 10, 1)
    ratios = np.exp(rng.normal(0, 0.3, 4 * blocks))
    return [pair(n, int(solved[n, 0]), int(solved[n, 1]), float(ratios[n])) for n in range(4 * blocks)]


def test_the_spread_comes_with_how_little_is_known_of_it() -> None:
    found = noise(noisy(), POLICY)
    assert found.sd and found.sd_low and found.sd_high
    assert found.sd_low < found.sd < found.sd_high
    calm = noise(pairs(8), POLICY)
    assert (calm.sd, calm.sd_low) == (0.0, None)


def test_pairs_whose_conversations_are_the_same_are_counted() -> None:
    first, *rest = pairs(8)
    assert first.baseline and first.candidate
    same = replace(first, candidate=replace(first.candidate, conversation=first.baseline.conversation))
    assert noise([same, *rest], POLICY).identical == 1


def test_checks_are_told_by_how_often_they_flip_and_quarantined_for_their_own_disagreement() -> None:
    observations = pairs(8)
    observations[0] = pair(0, 10, 8)
    flaky = pair(4, 10, 9)
    assert flaky.baseline and flaky.candidate
    observations[4] = replace(
        flaky, baseline=replace(flaky.baseline, snapshot="s"), candidate=replace(flaky.candidate, snapshot="s")
    )
    rows = {row.check: row for row in noise(observations, POLICY).checks}
    assert [row.check for row in noise(observations, POLICY).checks] == ["check-9", "check-8"]
    assert (rows["check-9"].flips, rows["check-9"].pairs, rows["check-9"].share) == (2, 2, 1.0)
    assert (rows["check-9"].disagreements, rows["check-9"].quarantined) == (1, True)
    assert (rows["check-8"].disagreements, rows["check-8"].quarantined) == (0, False)
    assert 0.5 < rows["check-8"].high < 1
    assert not any(row.quarantined for row in noise(observations, Policy(quarantine_after=0)).checks)


def test_the_gate_errs_in_at_most_alpha_of_the_runs_that_are_paired_anew() -> None:
    found = noise(noisy(), POLICY).alarms
    assert found and found.repairings == 1000
    assert max(found.rejects, found.adopts) <= POLICY.alpha
    assert noise(noisy(), POLICY).alarms == found


def test_a_machine_that_always_does_the_same_never_errs() -> None:
    found = noise(pairs(16, ratio=1.0), POLICY).alarms
    assert found and (found.rejects, found.adopts) == (0, 0)


def test_pairs_that_are_too_few_for_a_verdict_are_not_said_to_be_without_false_alarms() -> None:
    few = noise([replace(o, task="one") for o in pairs(4)], POLICY).alarms
    assert few and (few.pairs, few.least_reject) == (4, 6)
    assert few.sentence.startswith(
        "REJECT is beyond 4 pairs, whatever they are: it takes 6 at the least, ADOPT is beyond"
    )
    enough = noise(noisy(), POLICY).alarms
    assert enough and f"REJECT in {100 * enough.rejects:.1f} % of 1000 runs paired anew, ADOPT in" in enough.sentence


def test_too_few_pairs_or_unequal_tasks_cannot_be_paired_anew() -> None:
    rng = np.random.default_rng(0)
    assert false_alarms(pairs(4), POLICY, rng) is None
    assert false_alarms(pairs(9), POLICY, rng) is None
    assert false_alarms(pairs(8), POLICY, rng, repairings=10) is not None


def test_new_pairs_point_to_the_faster_arm_as_played_ones_do() -> None:
    from agent_ab.gate.noise import _directions

    rng = np.random.default_rng(2)
    times = np.round(rng.uniform(1, 9, (5, 4, 8)))
    cut = rng.random((5, 4, 8)) < 0.3
    for ratio in (1.0, 0.8, 1.3):
        found = _directions(times, cut, ratio)
        for i, j, k in np.ndindex(found.shape):
            left, right = 2 * k, 2 * k + 1
            told = TimePair(times[i, j, left], times[i, j, right], bool(cut[i, j, left]), bool(cut[i, j, right]))
            assert found[i, j, k] == direction(told, ratio)
    unknown = np.full((1, 1, 2), np.nan)
    assert _directions(unknown, np.zeros((1, 1, 2), dtype=bool), 1.0)[0, 0, 0] == 0


def test_without_pairs_there_is_nothing_to_tell() -> None:
    with pytest.raises(ValueError, match="no differences"):
        noise([], POLICY)


def test_the_figures_are_data() -> None:
    data = to_json(noise(pairs(8), POLICY), "r", "")
    assert (data["schema"], data["run"], data["pairs"], data["alarms"]["repairings"]) == (1, "r", 8, 1000)
