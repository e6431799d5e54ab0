"""Corrections for many checks, and pass@k. The golden values are in test_published.py."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from agent_ab.stats.correction import benjamini_hochberg, holm, pass_all_k, pass_at_k, unanimous_flips_needed

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(p_values)
@settings(max_examples=10)
def test_both_corrections_are_those_of_statsmodels(p: list[float]) -> None:
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


def test_no_p_values_are_no_p_values() -> None:
    assert (holm([]), benjamini_hochberg([])) == ((), ())


def test_the_flips_that_one_check_needs_are_the_fewest_that_holm_supports() -> None:
    for checks in (1, 10, 40):
        flips = unanimous_flips_needed(checks)
        others = [1.0] * (checks - 1)
        assert holm([2 * 0.5**flips, *others])[0] <= 0.05 < holm([2 * 0.5 ** (flips - 1), *others])[0]


@given(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_some_of_k_attempts_solve_at_least_as_often_as_all_of_them(drawn: tuple[int, int, int]) -> None:
    n, solved, k = drawn
    assert 0 <= pass_all_k(n, solved, k) <= pass_at_k(n, solved, 1) + 1e-12
    assert pass_at_k(n, solved, 1) <= pass_at_k(n, solved, k) + 1e-12
    assert pass_at_k(n, solved, 1) == pytest.approx(solved / n)


@pytest.mark.parametrize(("n", "solved", "k"), [(2, 1, 3), (2, 3, 1), (2, 1, 0), (0, 0, 1)])
def test_more_attempts_than_there_are_say_nothing(n: int, solved: int, k: int) -> None:
    with pytest.raises(ValueError, match="not possible"):
        pass_at_k(n, solved, k)
    with pytest.raises(ValueError, match="not possible"):
        pass_all_k(n, solved, k)
