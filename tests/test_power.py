"""How many pairs a question takes. The golden values are in test_published.py."""

from itertools import pairwise

import numpy as np
import pytest

from agent_ab.stats import power
from agent_ab.stats.eprocess import Side, e_value, tally


def test_more_pairs_find_smaller_effects() -> None:
    effects = [power.smallest_effect(n, 0.3) for n in (2, 5, 20, 120, 5000)]
    assert all(a and b and a > b for a, b in pairwise(effects))


def test_a_number_of_pairs_is_the_least_that_reaches_the_power() -> None:
    n = power.pairs_for_difference(0.1, 0.3)
    assert n
    assert power.power_of(n, 0.1, 0.3) >= 0.8 > power.power_of(n - 1, 0.1, 0.3)


def test_huge_effects_and_huge_numbers_give_no_nan() -> None:
    assert power.power_of(1000, 1.0, 0.01) == 1.0
    assert power.pairs_for_noninferiority(0.5, 0.001) == 2
    assert power.power_of(120, 0.9, 0.3) == pytest.approx(1.0)


def test_without_variation_or_out_of_reach_there_is_no_number() -> None:
    assert power.pairs_for_noninferiority(0.1, 0.0) is None
    assert power.pairs_for_difference(0.0001, 1.0) is None
    assert power.smallest_effect(1, 0.3) is None
    assert power.smallest_effect(8, 0.0) is None


def test_pairs_that_never_favour_the_claim_never_show_it() -> None:
    assert power.more_pairs(tally([]), 0.0, Side.HARM, 0.05, power.as_observed([0.0, 0.1])) is None


def test_what_is_already_shown_takes_no_more_pairs() -> None:
    shown = tally([-1.0] * 8)
    assert power.more_pairs(shown, 0.0, Side.HARM, 0.05, power.as_observed([-1.0])) == 0


def test_the_typical_path_is_about_the_median_of_real_ones() -> None:
    expected = power.more_pairs(tally([]), -0.1, Side.GAIN, 0.05, power.of_sd(0.3))
    assert expected
    rng = np.random.default_rng(3)
    reached = []
    for _ in range(60):
        d = rng.choice([-1.0, 0.0, 1.0], p=[0.045, 0.91, 0.045], size=400)
        path = tally(list(d), ends=list(range(5, 401, 5))).e(-0.1, Side.GAIN)
        reached.append(int(5 * (1 + np.argmax(path >= 20))) if (path >= 20).any() else 400)
    assert np.median(reached) == pytest.approx(expected, rel=0.4)


def test_an_outlook_without_difference_is_symmetric_and_keeps_the_spread() -> None:
    outlook = power.no_difference([0.0, 0.0, -0.9])
    assert sum(v * s for v, s in zip(outlook.values, outlook.shares, strict=True)) == pytest.approx(0)
    assert sum(v * v * s for v, s in zip(outlook.values, outlook.shares, strict=True)) == pytest.approx(0.27)
    assert sum(power.of_sd(0.3).shares) == pytest.approx(1)


def test_the_interval_of_a_standard_deviation_narrows_with_its_pairs() -> None:
    few, many = power.sd_interval(0.3, 8), power.sd_interval(0.3, 100)
    assert few[0] < many[0] < 0.3 < many[1] < few[1]


def test_the_least_number_that_is_enough_is_found() -> None:
    assert power.least(0, lambda n: n >= 0) == 0
    assert power.least(2, lambda n: n >= 77) == 77
    assert power.least(2, lambda n: n >= power.FAR) == power.FAR
    assert power.least(2, lambda n: False) is None


def test_the_thirty_sixth_identical_pair_is_the_first_that_is_enough() -> None:
    assert e_value([0.0] * 35, -0.1, Side.GAIN) < 20 <= e_value([0.0] * 36, -0.1, Side.GAIN)
