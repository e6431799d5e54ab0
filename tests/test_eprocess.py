"""Evidence that may be looked at after every block. The golden values are in test_published.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_ab.stats.eprocess import Side, bound, confidence_sequence, e_value, log_mean, tally, two_sided

differences = st.lists(st.integers(-10, 10).map(lambda tenths: tenths / 10), max_size=40)


@given(differences)
def test_swapping_the_arms_swaps_harm_and_gain(d: list[float]) -> None:
    swapped = [-x for x in d]
    assert e_value(d, 0.0, Side.HARM) == pytest.approx(e_value(swapped, 0.0, Side.GAIN))
    assert e_value(d, 0.0, Side.GAIN) == pytest.approx(e_value(swapped, 0.0, Side.HARM))


@given(differences, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_change_a_bit(d: list[float], random: object) -> None:
    shuffled = list(d)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert e_value(d, 0.0, Side.HARM) == e_value(shuffled, 0.0, Side.HARM)
    assert e_value(d, -0.1, Side.GAIN) == e_value(shuffled, -0.1, Side.GAIN)


@given(differences)
def test_an_identical_pair_leaves_harm_as_it_is_and_helps_non_inferiority(d: list[float]) -> None:
    assert e_value([*d, 0.0], 0.0, Side.HARM) == pytest.approx(e_value(d, 0.0, Side.HARM), rel=1e-12)
    assert e_value([*d, 0.0], 0.0, Side.GAIN) == pytest.approx(e_value(d, 0.0, Side.GAIN), rel=1e-12)
    assert e_value([*d, 0.0], -0.1, Side.GAIN) > e_value(d, -0.1, Side.GAIN)


@given(differences, differences)
def test_repeats_never_add_evidence(d: list[float], again: list[float]) -> None:
    marked = tally([*d, *again], [False] * len(d) + [True] * len(again))
    for side in Side:
        found = float(marked.e(0.0, side)[-1])
        assert found <= e_value(d, 0.0, side) * (1 + 1e-12)
        assert found <= e_value([*d, *again], 0.0, side) * (1 + 1e-12)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=3))
@settings(max_examples=30)
def test_one_more_pair_is_a_fair_bet_under_the_hypothesis(d: list[float]) -> None:
    now = e_value(d, 0.0, Side.HARM)
    fair = (e_value([*d, -1.0], 0.0, Side.HARM) + e_value([*d, 1.0], 0.0, Side.HARM)) / 2
    assert fair == pytest.approx(now, rel=1e-9)


def test_nothing_is_no_evidence() -> None:
    assert [e_value((), 0.0, side) for side in Side] == [1.0, 1.0]


def test_the_path_is_the_evidence_of_each_beginning() -> None:
    d = [0.0, -0.9, 0.3, 0.0, -0.5, 0.1]
    path = tally(d, ends=[2, 4, 6]).e(0.0, Side.HARM)
    assert list(path) == pytest.approx([e_value(d[:n], 0.0, Side.HARM) for n in (2, 4, 6)])


def test_evidence_beyond_all_bounds_is_a_finite_number() -> None:
    assert 1e290 < e_value([-1.0] * 5000, 0.0, Side.HARM) < float("inf")
    assert 0 <= e_value([1.0] * 5000, 0.0, Side.HARM) < 1e-3


def test_a_bound_is_where_the_evidence_is_just_enough() -> None:
    found = tally([0.0] * 60 + [-0.2] * 10 + [0.1] * 5)
    low, high = bound(found, Side.GAIN, 0.05), bound(found, Side.HARM, 0.05)
    assert low < -0.015 < high
    assert found.e(low, Side.GAIN)[-1] == pytest.approx(20, rel=1e-4)
    assert found.e(high, Side.HARM)[-1] == pytest.approx(20, rel=1e-4)
    wide = confidence_sequence(found, 0.05)
    assert wide[0] < low < high < wide[1]


def test_without_pairs_the_mean_may_be_anything() -> None:
    low, high = confidence_sequence(tally([]), 0.05)
    assert (round(low, 6), round(high, 6)) == (-1.0, 1.0)


def test_a_mean_outside_of_all_possible_ones_is_refused() -> None:
    with pytest.raises(ValueError, match="not between -1 and 1"):
        e_value([0.0], 1.0, Side.HARM)


def test_the_two_sided_evidence_is_the_mean_of_both_sides() -> None:
    assert two_sided(1.0, 3.0) == 2.0


def test_log_mean_does_not_overflow() -> None:
    assert log_mean(np.asarray([[1000.0, 1000.0]]))[0] == pytest.approx(1000.0)
