"""Observations -> numbers: what must hold whatever the data are."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_ab.gate import estimates
from agent_ab.gate.observations import Observation
from agent_ab.gate.policy import Policy
from agent_ab.gate.sample import differs, evidence, sample
from tests.verdicts import pair, pairs, run, side

POLICY = Policy()
counts = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=24)


def observed(drawn: list[tuple[int, int]]) -> list[Observation]:
    return [pair(n, left, right) for n, (left, right) in enumerate(drawn)]


@given(counts)
@settings(max_examples=25)
def test_swapping_the_arms_negates_the_mean_and_swaps_harm_and_gain(drawn: list[tuple[int, int]]) -> None:
    there = sample(observed(drawn), every_repeat_counts=False)
    back = sample(observed([(right, left) for left, right in drawn]), every_repeat_counts=False)
    mine, theirs = evidence(there, POLICY), evidence(back, POLICY)
    forward = estimates.correctness(there, mine.differences, POLICY)
    backward = estimates.correctness(back, theirs.differences, POLICY)
    assert backward.mean == pytest.approx(-forward.mean)
    assert (backward.broken, backward.fixed) == (forward.fixed, forward.broken)
    assert backward.always_valid.low == pytest.approx(-(forward.always_valid.high or 0), abs=1e-6)
    assert differs(mine).correctness == pytest.approx(differs(theirs).correctness)


@given(counts, st.integers(0, 10))
@settings(max_examples=25)
def test_an_identical_pair_leaves_the_evidence_of_harm_as_it_is(drawn: list[tuple[int, int]], passed: int) -> None:
    before = evidence(sample(observed(drawn), every_repeat_counts=False), POLICY)
    after = evidence(sample(observed([*drawn, (passed, passed)]), every_repeat_counts=False), POLICY)
    assert after.now.harm == pytest.approx(before.now.harm, rel=1e-12)


def test_counts_alone_change_as_few_checks_as_account_for_them() -> None:
    bare = [replace(o, baseline=side(10, checks={}), candidate=side(7, checks={})) for o in pairs(4)]
    found = sample(bare, every_repeat_counts=False)
    c = estimates.correctness(found, evidence(found, POLICY).differences, POLICY)
    assert c.design_effect is None
    assert {test.name for test in c.clustered} == {"Obuchowski 1998", "Durkalski 2003", "Yang 2010"}
    assert estimates.checks(found, frozenset(), POLICY, fixed_size=True).differing == ()


def test_one_task_and_one_pair_have_no_interval_over_tasks() -> None:
    found = sample(pairs(1), every_repeat_counts=False)
    c = estimates.correctness(found, evidence(found, POLICY).differences, POLICY)
    assert (c.task_interval, c.sd, c.interval.low, c.clustered) == (None, None, None, ())


def test_tasks_are_told_with_pass_at_k_up_to_their_pairs() -> None:
    found = sample([pair(0, 10, 1), pair(4, 1, 1), pair(8, 10, 10)], every_repeat_counts=False)
    (task,) = estimates.tasks(found)
    assert (task.pairs, task.baseline.solved, task.candidate.solved) == (3, 2, 1)
    assert task.baseline.pass_at == pytest.approx((2 / 3, 1.0, 1.0))
    assert task.baseline.pass_all == pytest.approx((2 / 3, 1 / 3, 0.0))


def test_an_unplayed_order_has_no_effect_to_tell() -> None:
    both = sample(pairs(8), every_repeat_counts=False)
    assert estimates.correctness(both, evidence(both, POLICY).differences, POLICY).order_effect == 0
    unknown = sample([replace(o, first_arm=None) for o in pairs(8)], every_repeat_counts=False)
    assert estimates.correctness(unknown, evidence(unknown, POLICY).differences, POLICY).order_effect is None


def test_hours_are_those_of_the_pairs_still_needed() -> None:
    found = sample(pairs(8), every_repeat_counts=False)
    needed = estimates.needed(found, evidence(found, POLICY), run(pairs(8), pair_s=360.0), POLICY)
    assert (needed.more, needed.hours, needed.pairs_fixed) == (35, 3.5, None)
    unknown = estimates.needed(found, evidence(found, POLICY), run(pairs(8), pair_s=None), POLICY)
    assert unknown.hours is None
