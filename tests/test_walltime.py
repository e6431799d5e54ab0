"""Wall time of pairs. The golden values are in test_published.py."""

import math

import numpy as np
import pytest
from scipy import stats

from agent_ab.stats.walltime import (
    TimePair,
    censored_ratio,
    direction,
    geometric_ratio,
    hodges_lehmann,
    solved_per_hour,
    wilcoxon_p,
)


def test_a_pair_points_to_the_faster_arm() -> None:
    assert direction(TimePair(100, 80)) == 1
    assert direction(TimePair(100, 120)) == -1
    assert direction(TimePair(100, 100)) == 0


def test_an_arm_that_was_cut_at_its_limit_is_the_slower_one() -> None:
    assert direction(TimePair(480, 186, baseline_censored=True)) == 1
    assert direction(TimePair(186, 480, candidate_censored=True)) == -1
    assert direction(TimePair(480, 480, baseline_censored=True, candidate_censored=True)) == 0


def test_where_a_cut_time_leaves_it_open_the_candidate_gets_no_benefit_of_the_doubt() -> None:
    assert direction(TimePair(480, 470, baseline_censored=True), limit_ratio=0.9) == -1
    assert direction(TimePair(480, 400, baseline_censored=True), limit_ratio=0.9) == 1
    assert direction(TimePair(470, 480, candidate_censored=True), limit_ratio=1.2) == -1


def test_another_greatest_ratio_moves_the_line() -> None:
    assert direction(TimePair(100, 110), limit_ratio=1.2) == 1
    assert direction(TimePair(100, 95), limit_ratio=0.9) == -1


def test_the_ratio_turns_over_with_the_arms() -> None:
    pairs = [TimePair(100, 80), TimePair(200, 190), TimePair(50, 55)]
    swapped = [TimePair(p.candidate, p.baseline) for p in pairs]
    assert geometric_ratio(swapped).value == pytest.approx(1 / geometric_ratio(pairs).value)
    assert hodges_lehmann(swapped) == pytest.approx(1 / (hodges_lehmann(pairs) or math.nan))
    assert wilcoxon_p(swapped) == wilcoxon_p(pairs)


@pytest.mark.parametrize("size", [1, 5, 12, 20, 45])
def test_signed_ranks_come_out_as_scipys_exact_ones(size: int) -> None:
    logs = np.random.default_rng(size).normal(0.1, 0.3, size)
    pairs = [TimePair(100, 100 * math.exp(x)) for x in logs]
    assert wilcoxon_p(pairs) == pytest.approx(stats.wilcoxon(logs, method="exact").pvalue, rel=1e-9)


def test_ties_and_equal_times_come_out_as_every_sign_pattern_of_scipys_does() -> None:
    ratios = [0.5, 0.5, 0.8, 1.0, 1.25, 0.9, 0.9, 1.0, 0.7]
    found = wilcoxon_p([TimePair(100, 100 * ratio) for ratio in ratios])
    every = stats.PermutationMethod(n_resamples=np.inf)
    # Logs of 0.8 and 1.25 are equal but for rounding, which scipy does not see.
    logs = np.round(np.log(ratios), 12)
    assert found == pytest.approx(stats.wilcoxon(logs, method=every).pvalue, rel=1e-9)


def test_many_pairs_have_the_normal_approximation_and_no_jump_before_it() -> None:
    logs = np.random.default_rng(0).normal(0.02, 0.3, 401)
    pairs = [TimePair(100, 100 * math.exp(x)) for x in logs]
    assert wilcoxon_p(pairs) == pytest.approx(wilcoxon_p(pairs[:400]), abs=0.05)
    assert wilcoxon_p(pairs[:400]) == pytest.approx(stats.wilcoxon(logs[:400], method="asymptotic").pvalue, abs=1e-3)


def test_censoring_moves_the_ratio_away_from_one() -> None:
    pairs = [TimePair(100, 70), TimePair(100, 90), TimePair(100, 80)]
    cut = [*pairs, TimePair(480, 300, baseline_censored=True)]
    assert (censored_ratio(cut) or 1) < geometric_ratio(cut).value
    slower = [*pairs, TimePair(300, 480, candidate_censored=True)]
    assert (censored_ratio(slower) or 0) > geometric_ratio(slower).value


def test_where_too_little_is_known_nothing_is_fitted() -> None:
    both = TimePair(480, 480, baseline_censored=True, candidate_censored=True)
    assert censored_ratio([both, both]) is None
    assert censored_ratio([TimePair(100, 80), TimePair(480, 80, baseline_censored=True)]) is None
    assert wilcoxon_p([TimePair(1, 1)]) is None
    assert hodges_lehmann([]) is None
    assert hodges_lehmann([TimePair(2, 1)] * 1501) is None
    assert geometric_ratio([TimePair(2, 1)]).low is None


def test_pairs_that_are_all_alike_have_no_interval_of_no_width() -> None:
    alike = [TimePair(seconds, 0.8 * seconds) for seconds in (30.0, 70.0, 110.0, 333.3)]
    found = geometric_ratio(alike)
    assert found.value == pytest.approx(0.8) and found.low is found.high is None
    hourly = solved_per_hour([(True, True)] * 8, [(100.0, 80.0)] * 8)
    assert hourly.ratio == pytest.approx(1.25) and hourly.low is hourly.high is None


def test_an_arm_without_a_solved_task_has_no_ratio() -> None:
    found = solved_per_hour([(False, True), (False, True)], [(3600.0, 1800.0), (3600.0, 1800.0)])
    assert (found.baseline, found.candidate, found.ratio, found.low) == (0.0, 2.0, None, None)
