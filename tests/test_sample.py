"""The pairs that count, and the evidence at the block ends."""

from dataclasses import replace

import pytest

from agent_ab.gate.policy import Policy
from agent_ab.gate.sample import differs, evidence, sample, sides, times
from tests.verdicts import pair, pairs, side

POLICY = Policy()


def test_a_conversation_is_a_repeat_only_within_its_task_and_only_with_both_arms_known() -> None:
    first = pair(0)
    assert first.baseline and first.candidate
    again = replace(pair(4), baseline=first.baseline, candidate=first.candidate)
    elsewhere = replace(pair(5), baseline=first.baseline, candidate=first.candidate)
    assert sample([first, again, elsewhere], every_repeat_counts=False).repeated == (False, True, False)
    assert sample([first, again], every_repeat_counts=True).repeated == (False, False)
    half = replace(again, candidate=replace(first.candidate, conversation=""))
    assert sample([half, half], every_repeat_counts=False).repeated == (False, False)


def test_the_path_has_a_point_a_block_and_ends_with_what_decides() -> None:
    found = evidence(sample(pairs(12, 10, 1), every_repeat_counts=False), POLICY)
    assert [(point.block, point.pairs) for point in found.path] == [(0, 4), (1, 8), (2, 12)]
    assert found.path[-1].harm == found.now.harm


def test_a_long_path_is_thinned_and_keeps_its_end() -> None:
    found = evidence(sample(pairs(4000), every_repeat_counts=False), POLICY)
    assert len(found.path) == 200
    assert (found.path[0].block, found.path[-1].pairs) == (0, 4000)


def test_both_times_must_be_known_to_be_compared() -> None:
    seen = pair(0)
    assert times(seen) is not None
    assert times(replace(seen, candidate=side(10, seconds=None))) is None
    found = sample([replace(seen, candidate=side(10, seconds=None))], every_repeat_counts=False)
    assert evidence(found, POLICY).signs == (0,)
    assert sides(seen) == (seen.baseline, seen.candidate)


def test_a_difference_either_way_is_evidence_that_the_arms_differ() -> None:
    worse = differs(evidence(sample(pairs(8, 10, 1), every_repeat_counts=False), POLICY))
    better = differs(evidence(sample(pairs(8, 1, 10), every_repeat_counts=False), POLICY))
    assert worse.correctness == pytest.approx(better.correctness) and worse.correctness > 19
    assert differs(evidence(sample(pairs(8, ratio=1.0), every_repeat_counts=False), POLICY)).time == 1
