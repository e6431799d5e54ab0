"""McNemar's test and its clustered forms. The golden values are in test_published.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as theirs

from agent_ab.stats.mcnemar import durkalski, mcnemar, obuchowski, share_interval, yang

count = st.integers(0, 30)


@given(count, count)
def test_the_exact_test_is_that_of_statsmodels_and_the_mid_p_is_never_above_it(broken: int, fixed: int) -> None:
    found = mcnemar(broken, fixed)
    assert found.exact == pytest.approx(float(theirs([[0, broken], [fixed, 0]], exact=True).pvalue))
    assert 0 < found.mid <= found.exact <= 1


@given(count, count)
def test_swapping_the_arms_changes_no_p(broken: int, fixed: int) -> None:
    assert mcnemar(broken, fixed) == mcnemar(fixed, broken)


def test_where_nothing_differs_nothing_is_claimed() -> None:
    assert (mcnemar(0, 0).exact, mcnemar(0, 0).mid) == (1.0, 1.0)
    nothing = (0, 0, 0)
    assert obuchowski(nothing, nothing) is None
    assert durkalski(nothing, nothing, (10, 10, 10)) is None
    assert yang(nothing, nothing, (10, 10, 10)) is None


def test_a_share_of_none_and_of_all_still_has_an_interval() -> None:
    assert share_interval(0, 29)[1] == pytest.approx(1 - 0.025 ** (1 / 29))
    assert share_interval(5, 5)[1] == 1.0
