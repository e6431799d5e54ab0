"""Differences of pairs. The golden values are in test_published.py."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_ab.stats import paired

differences = st.lists(st.integers(-10, 10).map(lambda tenths: tenths / 10), min_size=2, max_size=12)


@given(differences)
def test_swapping_the_arms_negates_the_mean_and_keeps_the_p_values(d: list[float]) -> None:
    swapped = [-x for x in d]
    there, back = paired.mean_difference(d), paired.mean_difference(swapped)
    assert back.mean == -there.mean
    assert (back.low, back.high) == (
        None if there.high is None else -there.high,
        None if there.low is None else -there.low,
    )
    assert paired.sign_flip(swapped).two_sided == pytest.approx(paired.sign_flip(d).two_sided)


@given(differences, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(d: list[float], random: object) -> None:
    shuffled = list(d)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert paired.mean_difference(shuffled) == paired.mean_difference(d)
    assert paired.sign_flip(shuffled) == paired.sign_flip(d)


def test_equal_differences_have_no_t_and_no_fake_interval_is_trusted() -> None:
    found = paired.mean_difference([0.0] * 8)
    assert (found.sd, found.t, found.p, found.low, found.high) == (0.0, None, None, None, None)
    guarded = paired.lower_bound([0.0] * 8, 0.05)
    assert guarded.guarded
    assert guarded.value == pytest.approx(-0.3123, abs=5e-5)
    assert paired.noninferiority_p([-0.1] * 8, 0.2) is None
    assert paired.lower_bound([-0.9] * 8, 0.05).value == pytest.approx(-0.9 - 0.1 * 0.3123, abs=5e-5)


def test_differences_that_are_equal_but_for_rounding_have_no_interval_either() -> None:
    found = paired.mean_difference([0.1 + 0.2, 0.3, 0.3])
    assert (found.sd, found.low, found.high) == (0.0, None, None)
    assert paired.lower_bound([0.1 + 0.2, 0.3, 0.3], 0.05).guarded


def test_the_guard_holds_until_three_pairs_differ() -> None:
    two = [0.0] * 58 + [-0.01, 0.01]
    assert paired.lower_bound(two, 0.05).guarded
    three = [0.0] * 57 + [-0.01, 0.01, 0.01]
    assert not paired.lower_bound(three, 0.05).guarded


def test_one_difference_bounds_nothing_and_none_is_refused() -> None:
    one = paired.mean_difference([0.5])
    assert (one.mean, one.sd, one.low) == (0.5, None, None)
    assert paired.lower_bound([0.5], 0.05).value == pytest.approx(0.5 - 0.95 * 1.5)
    with pytest.raises(ValueError, match="no differences"):
        paired.mean_difference([])


def every_pattern(d: list[float]) -> tuple[float, float]:
    sums = np.zeros(1)
    for x in d:
        sums = np.concatenate([sums - x, sums + x])
    return float(np.mean(abs(sums) >= abs(sum(d)) - 1e-9)), float(np.mean(sums <= sum(d) + 1e-9))


@pytest.mark.parametrize("seed", range(6))
def test_beyond_sixteen_differences_the_exact_p_is_that_of_every_sign_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    checks = (10, 10, 10, 9, 7, 8)[seed]
    passed = rng.integers(1, 7, 18) * rng.choice((-1, 1), 18)
    d = [round(int(k) / n, 12) for k, n in zip(passed, [10] * 9 + [checks] * 9, strict=True)]
    found = paired.sign_flip(d)
    assert found.exact
    assert (found.two_sided, found.one_sided) == pytest.approx(every_pattern(d), rel=1e-9)
    assert found == paired.sign_flip(d[::-1])


def test_thirty_of_eighty_pairs_that_lose_one_check_of_ten_have_the_p_of_thirty_coins() -> None:
    found = paired.sign_flip([-0.1] * 30 + [0.0] * 50)
    assert (found.two_sided, found.one_sided) == pytest.approx((2 / 2**30, 1 / 2**30), rel=1e-9)
    assert paired.sign_flip([-1.0] * 400).two_sided == pytest.approx(2 / 2**400, rel=1e-9)
    assert paired.sign_flip([0.3, -0.3] * 20).two_sided == 1.0
    alike = [-0.1] * 1200 + [0.1] * 1100
    exact = sum(math.comb(2300, k) for k in range(1101)) / 2**2300
    assert paired.sign_flip(alike).one_sided == pytest.approx(exact, rel=1e-9)


def test_differences_without_a_common_unit_are_drawn_and_it_is_said() -> None:
    d = [-0.1 - n / 1e7 for n in range(12)] + [0.1 + n / 1e7 for n in range(5)]
    drawn = paired.sign_flip(d, np.random.default_rng(1))
    exact = every_pattern(d)[0]
    assert not drawn.exact
    assert drawn.two_sided == pytest.approx(exact, abs=0.01)
    many = paired.sign_flip([-0.9] * 50_000)
    assert not many.exact and many.two_sided == 1 / 20_001


def test_a_sixteenth_difference_is_still_exact() -> None:
    found = paired.sign_flip([-0.1] * 16)
    assert found.exact
    assert found.two_sided == pytest.approx(2 / 2**16)


def test_the_design_effect_needs_something_that_varies() -> None:
    assert paired.design_effect([0.0] * 8, 0, 0, 80) is None
    assert paired.design_effect([0.1], 0, 1, 10) is None
    offset = paired.design_effect([-0.1, 0.1, 0.0, 0.0], 9, 9, 40)
    assert offset and offset.effect < 1 and offset.effective == 40
    independent = paired.design_effect([-0.1, 0.1] * 20, 20, 20, 400)
    assert independent and independent.effect == pytest.approx(1.0, rel=0.05)


def test_the_order_effect_needs_both_orders() -> None:
    assert paired.order_effect([0.1, 0.3], [True, True]) is None
    assert paired.order_effect([0.3, 0.3, -0.1, -0.1], [True, True, False, False]) == pytest.approx(0.2)
