"""The published experiment and the other golden data: every number that docs/statistics.md quotes, worked out here.

What the package computes is asked of the package; what it deliberately does not compute, of scipy and statsmodels.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats import multitest, proportion
from statsmodels.stats.contingency_tables import mcnemar as sm_mcnemar

from agent_ab.stats import correction, eprocess, paired, power
from agent_ab.stats.eprocess import Side, e_value, tally
from agent_ab.stats.mcnemar import durkalski, mcnemar, obuchowski, share_interval, yang
from agent_ab.stats.walltime import (
    TimePair,
    censored_ratio,
    geometric_ratio,
    hodges_lehmann,
    solved_per_hour,
    wilcoxon_p,
)
from tests.betting import by_quadrature

D = (0.0,) * 7 + (-0.9,)
TASKS = ("cache", "cache", "csv", "csv", "planner", "planner", "wallet", "wallet")
BROKEN, FIXED, SIZES = (0,) * 7 + (9,), (0,) * 8, (10,) * 8
CHECKS = np.asarray([-1.0] * 9 + [0.0] * 71)
ROW = (10, 10, 1, 1, 1, 1, 1, 10)
"""Checks passed by the baseline."""
SD = 0.31819805


def close(value: float | None, expected: float, tolerance: float = 6e-7) -> bool:
    return value is not None and math.isclose(value, expected, rel_tol=0, abs_tol=tolerance)


def test_the_paired_t_interval_over_pairs() -> None:
    found = paired.mean_difference(D)
    assert close(found.mean, -0.1125) and close(found.sd, 0.318198) and close(found.se, 0.1125)
    assert close(found.t, -1.0) and close(found.p, 0.350617)
    assert close(found.low, -0.378520) and close(found.high, 0.153520)
    ninety = paired.mean_difference(D, 0.9)
    assert close(ninety.low, -0.325640) and close(ninety.high, 0.100640)


def test_the_paired_t_interval_over_task_means() -> None:
    found = paired.mean_difference(list(paired.means_by(D, TASKS).values()))
    assert (found.n, found.t) == (4, -1.0)
    assert close(found.p, 0.391002) and close(found.low, -0.470525) and close(found.high, 0.245525)


def test_the_sign_flip_test_is_exact_and_agrees_with_scipy() -> None:
    found = paired.sign_flip(D)
    assert (found.two_sided, found.one_sided, found.exact) == (1.0, 0.5, True)
    scipys = stats.permutation_test((np.asarray(D),), np.mean, permutation_type="samples", n_resamples=1000)
    assert scipys.pvalue == 1.0
    assert len(scipys.null_distribution) == 256


def test_the_clustered_mcnemar_tests_over_pairs_and_over_tasks() -> None:
    expected = {
        8: ((0.875, 0.349575), (1.0, 0.317311), (0.933333, 0.333998)),
        4: ((0.75, 0.386476), (1.0, 0.317311), (0.857143, 0.354540)),
    }
    for clusters, numbers in expected.items():
        broken, fixed, sizes = (0,) * (clusters - 1) + (9,), (0,) * clusters, (80 // clusters,) * clusters
        tests = (obuchowski(broken, fixed), durkalski(broken, fixed, sizes), yang(broken, fixed, sizes))
        for found, (statistic, p) in zip(tests, numbers, strict=True):
            assert found and close(found.statistic, statistic) and close(found.p, p)


BH = (0, 1, 1, 1, 0, 3, 3, 3, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0)
CH = (4, 2, 3, 2, 1, 3, 0, 2, 2, 4, 2, 4, 3, 2, 1, 3, 1, 2, 0, 0, 0, 2, 1, 2, 2, 0, 0, 1, 1)
NH = (7, 6, 7, 6, 4, 6, 5, 8, 4, 7, 3, 6, 7, 6, 5, 4, 6, 5, 4, 3, 5, 4, 4, 2, 3, 2, 2, 3, 1)


def test_the_psychiatry_data_of_rs_clust_bin_pair() -> None:
    naive = (sum(BH) - sum(CH)) ** 2 / (sum(BH) + sum(CH))
    assert close(naive, 11.8451, 5e-5)
    assert sm_mcnemar([[0, sum(BH)], [sum(CH), 0]], exact=False, correction=False).statistic == pytest.approx(naive)
    tests = (obuchowski(BH, CH), durkalski(BH, CH, NH), yang(BH, CH, NH))
    for found, expected in zip(tests, (7.1858, 7.5423, 8.4286), strict=True):
        assert found and close(found.statistic, expected, 5e-5)


def test_the_traps_of_the_published_data_say_what_they_are_quoted_with() -> None:
    wrong = mcnemar(9, 0)
    assert (wrong.exact, close(wrong.mid, 0.001953125)) == (0.00390625, True)
    table = [[26, 9], [0, 45]]
    assert close(sm_mcnemar(table, exact=False, correction=False).pvalue, 0.00269980)
    assert close(sm_mcnemar(table, exact=False, correction=True).pvalue, 0.00766076)
    assert close(stats.ttest_1samp(CHECKS, 0).pvalue, 0.0022063)


def test_the_unpaired_tests_of_the_published_data() -> None:
    table = [[35, 45], [26, 54]]
    assert close(stats.fisher_exact(table).pvalue, 0.192671)
    plain, yates = (stats.chi2_contingency(table, correction=flag) for flag in (False, True))
    assert close(plain.statistic, 2.146051) and close(plain.pvalue, 0.142937)
    assert close(yates.statistic, 1.695645) and close(yates.pvalue, 0.192859)
    assert close(proportion.proportions_ztest([35, 26], [80, 80])[0], 1.464941)
    by_arm = [[35, 26], [45, 54]]
    assert close(stats.boschloo_exact(by_arm).pvalue, 0.151424, 5e-6)
    assert close(stats.barnard_exact(by_arm).pvalue, 0.151503, 5e-6)
    low, high = proportion.confint_proportions_2indep(26, 80, 35, 80, compare="diff", method="newcomb")
    assert close(low, -0.255564) and close(high, 0.037421)


def test_clustered_standard_errors_of_the_published_data() -> None:
    for clusters, se, p in (([str(i) for i in range(8)], 0.105234, 0.285049), (TASKS, 0.097428, 0.248213)):
        found = paired.clustered_se(D, clusters)
        assert close(found, se)
        assert close(2 * stats.norm.sf(0.1125 / found), p)


def test_regressions_of_the_published_data() -> None:
    passed = [(*(1.0,) * n, *(0.0,) * (10 - n)) for n in (*ROW, *ROW[:7], 1)]
    y = np.asarray(passed).ravel()
    x = sm.add_constant(np.repeat([0.0, 1.0], 80))
    pair_of = np.tile(np.repeat(np.arange(8), 10), 2)
    for groups, robust, reduced in ((pair_of, 0.10523, 0.12027), (pair_of // 2, 0.09743, 0.12990)):
        model = sm.GEE(y, x, groups=groups, cov_struct=sm.cov_struct.Exchangeable())
        assert close(model.fit().params[1], -0.1125)
        assert close(model.fit(cov_type="robust").bse[1], robust, 5e-6)
        assert close(model.fit(cov_type="bias_reduced").bse[1], reduced, 5e-6)
    clustered = sm.OLS(y, x).fit(cov_type="cluster", cov_kwds={"groups": pair_of})
    assert close(clustered.bse[1], 0.112855) and close(clustered.pvalues[1], 0.318837, 5e-6)


def test_rank_tests_and_bootstraps_of_the_published_data() -> None:
    for method in ("wilcox", "pratt", "zsplit"):
        assert stats.wilcoxon(D, zero_method=method).pvalue == 1.0
    for method, ends in (("BCa", (-0.45, 0.0)), ("basic", (-0.225, 0.1125))):
        found = stats.bootstrap((np.asarray(D),), np.mean, method=method, rng=1).confidence_interval
        assert (found.low, found.high) == pytest.approx(ends)
    assert stats.binomtest(1, 1).pvalue == 1.0
    share = stats.binom(8, 1 / 8)
    assert close(1 - share.pmf(0), 0.656391)
    assert (close(-0.9 * share.ppf(0.975) / 8, -0.3375), -0.9 * share.ppf(0.025) / 8 == 0) == (True, True)
    assert close(share_interval(1, 8)[0], 0.003160) and close(share_interval(1, 8)[1], 0.526510)


def test_non_inferiority_of_the_published_data() -> None:
    for margin, p in ((0.05, 0.7021), (0.10, 0.5427), (0.20, 0.2311), (0.40, 0.0189)):
        assert close(paired.noninferiority_p(D, margin), p, 5e-5)
    assert close(paired.lower_bound(D, 0.05).value, -0.325640)
    assert close(paired.lower_bound(D, 0.025).value, -0.378520)


def test_the_evidence_of_the_published_data() -> None:
    # One differing pair: the capital is 1 + 0.9 x the mean bet, 0.79 x 1.5 / 3.5 + 0.21 for harm, 2 / 3 for gain.
    harm = 1 + 0.9 * (0.79 * 1.5 / 3.5 + 0.21)
    assert close(e_value(D, 0.0, Side.HARM), harm, 1e-4)
    assert close(e_value(D, 0.0, Side.GAIN), 1 - 0.9 * 2 / 3, 1e-3)
    for margin, e in ((0.05, 0.4810), (0.10, 0.5952), (0.20, 1.0102)):
        assert close(e_value(D, -margin, Side.GAIN), e, 5e-4)
    low, high = eprocess.confidence_sequence(tally(D), 0.05)
    for end, side in ((low, Side.GAIN), (high, Side.HARM)):
        assert close(by_quadrature(D, end, side), 40, 0.1)


def test_with_block_means_as_observations_the_evidence_would_be_less() -> None:
    assert close(e_value((0.0, -0.225), 0.0, Side.HARM), 1 + 0.225 * (0.79 * 1.5 / 3.5 + 0.21), 1e-4)


def test_the_asymptotic_confidence_sequence_of_the_published_data() -> None:
    n, alpha, best_at = len(D), 0.05, 20
    scale = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / best_at
    inner = n * scale + 1
    half = float(np.std(D)) * math.sqrt(2 * inner / (n**2 * scale) * math.log(math.sqrt(inner) / alpha))
    assert close(-0.1125 - half, -0.4412, 5e-5) and close(-0.1125 + half, 0.2162, 5e-5)


def test_power_and_smallest_effect_of_the_published_data() -> None:
    assert close(power.power_of(8, 0.1125, SD), 0.1399, 5e-5)
    assert close(power.smallest_effect(8, SD), 0.3678, 5e-5)


def test_one_check_that_broke_once_supports_nothing() -> None:
    p = [mcnemar(1, 0).exact] * 9
    assert set(p) == set(correction.holm(p)) == set(correction.benjamini_hochberg(p)) == {1.0}


def test_the_design_effect_of_the_published_data() -> None:
    naive = float(CHECKS.std(ddof=1)) / math.sqrt(80)
    assert close(naive, 0.0355506, 5e-8)
    found = paired.design_effect(D, 9, 0, 80)
    assert found and close(found.effect, 10.0141, 5e-5) and close(found.effective, 7.989, 5e-4)


def test_the_sample_size_of_miller() -> None:
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert close(z**2 * (1 / 9) / 0.03**2, 968.9975, 5e-5)


def test_the_share_bound_and_the_pairs_that_it_takes() -> None:
    for n, bound in ((8, 0.3123), (20, 0.1391), (29, 0.0981), (59, 0.0495)):
        assert close(paired.share_bound(n, 0.05), bound, 5e-5)
    assert paired.share_bound(28, 0.05) > 0.10 > paired.share_bound(29, 0.05)


OFF = (600, 900, 1200, 450, 1500, 700, 1000, 800)
ON = (480, 760, 1100, 300, 1260, 735, 790, 640)
TIMES = [TimePair(a, b) for a, b in zip(OFF, ON, strict=True)]


def test_the_toy_wall_times() -> None:
    found = geometric_ratio(TIMES)
    assert close(found.value, 0.8322348) and close(found.t, -3.98877, 5e-6) and close(found.p, 0.00526469)
    assert close(found.low, 0.7463903) and close(found.high, 0.9279525)
    assert wilcoxon_p(TIMES) == 0.015625
    assert stats.wilcoxon([pair.log_ratio for pair in TIMES]).statistic == 1
    assert close(hodges_lehmann(TIMES), 0.8219219)
    assert close(sum(ON) / sum(OFF), 0.8482517)
    assert close(float(np.mean(np.asarray(ON) / np.asarray(OFF))), 0.8384722)


def test_the_toy_wall_times_with_one_cut_at_its_limit() -> None:
    cut = [*TIMES[:4], TimePair(1800, 1260, baseline_censored=True), *TIMES[5:]]
    assert close(geometric_ratio(cut).value, 0.8134825)
    assert close(censored_ratio(cut), 0.8053475, 5e-5)


def test_the_toy_solved_tasks_an_hour() -> None:
    solved = [(bool(a), bool(b)) for a, b in zip((1, 0, 0, 1, 0, 0, 1, 1), (1, 0, 0, 1, 0, 0, 1, 0), strict=True)]
    seconds = [(float(a), float(b)) for a, b in zip(OFF, ON, strict=True)]
    found = solved_per_hour(solved, seconds)
    assert close(found.baseline, 2.013986) and close(found.candidate, 1.780709) and close(found.ratio, 0.8841715)
    assert close(found.low, 0.42155, 5e-6) and close(found.high, 1.85450, 5e-6)
    jackknife = [_rate_ratio([i for i in range(8) if i != out], solved, seconds) for out in range(8)]
    se = math.sqrt(7 / 8 * sum((x - sum(jackknife) / 8) ** 2 for x in jackknife))
    assert close(se, 0.3350897)


def _rate_ratio(
    kept: Sequence[int], solved: Sequence[tuple[bool, bool]], seconds: Sequence[tuple[float, float]]
) -> float:
    rates = [sum(solved[i][arm] for i in kept) / sum(seconds[i][arm] for i in kept) for arm in (0, 1)]
    return math.log(rates[1] / rates[0])


def test_the_toy_p_values_corrected() -> None:
    p = [0.001, 0.008, 0.012, 0.03, 0.04, 0.2, 0.5, 0.6, 0.8, 1]
    assert correction.holm(p) == pytest.approx([0.01, 0.072, 0.096, 0.21, 0.24, 1, 1, 1, 1, 1])
    expected = [0.01, 0.04, 0.04, 0.075, 0.08, 0.3333, 0.7143, 0.75, 0.8889, 1]
    assert correction.benjamini_hochberg(p) == pytest.approx(expected, abs=5e-5)
    for ours, method in ((correction.holm, "holm"), (correction.benjamini_hochberg, "fdr_bh")):
        assert ours(p) == pytest.approx(multitest.multipletests(p, method=method)[1])


def test_pass_at_k_and_pass_all_k() -> None:
    assert correction.pass_at_k(2, 1, 1) == 0.5
    assert correction.pass_at_k(2, 1, 2) == 1.0
    assert close(correction.pass_at_k(10, 3, 5), 0.9166667)
    assert close(correction.pass_at_k(200, 12, 10), 0.46932365, 5e-9)
    assert close(correction.pass_all_k(10, 3, 2), 0.0666667)


def test_the_table_of_pairs() -> None:
    expected = {0.05: (320, 252), 0.10: (82, 64), 0.15: (38, 30), 0.20: (22, 18), 0.30: (11, 9)}
    for delta, (two_sided, noninferior) in expected.items():
        assert power.pairs_for_difference(delta, SD) == two_sided
        assert power.pairs_for_noninferiority(delta, SD) == noninferior
    low, high = power.sd_interval(SD, 8)
    assert close(low, 0.2104, 5e-5) and close(high, 0.6476, 5e-5)


def test_pairs_that_the_evidence_takes_when_all_are_alike() -> None:
    nothing = tally(())
    for alpha, numbers in ((0.05, (74, 36, 24, 17)), (0.025, (89, 44, 28, 21))):
        for margin, pairs in zip((0.05, 0.10, 0.15, 0.20), numbers, strict=True):
            assert power.more_pairs(nothing, -margin, Side.GAIN, alpha, power.as_observed((0.0,))) == pairs
            assert (
                e_value((0.0,) * pairs, -margin, Side.GAIN)
                >= 1 / alpha
                > e_value((0.0,) * (pairs - 1), -margin, Side.GAIN)
            )
    for d, pairs in ((-1.0, 6), (-0.9, 7), (-0.5, 10)):
        assert power.more_pairs(nothing, 0.0, Side.HARM, 0.05, power.as_observed((d,))) == pairs


def test_flips_of_one_direction_that_one_check_needs() -> None:
    assert [correction.unanimous_flips_needed(checks) for checks in (1, 10, 40)] == [6, 9, 11]


def test_the_least_p_of_an_exact_test_over_four_tasks_and_over_six() -> None:
    assert (2 / 2**4, 2 / 2**6) == (0.125, 0.03125)
    assert paired.sign_flip((-0.5,) * 4).two_sided == 0.125
    assert paired.sign_flip((-0.5,) * 6).two_sided == 0.03125
    assert len(list(product((1, -1), repeat=6))) == 64


def test_the_guards_that_the_share_of_checks_lacks() -> None:
    small_losses = (-0.1,) * 30 + (0.0,) * 50
    assert close(e_value(small_losses, -0.1, Side.GAIN), 76.2, 0.05)
    assert close(e_value(small_losses, 0.0, Side.HARM), 7.1, 0.05)
    assert close(e_value((0.0,) * 36, -0.1, Side.GAIN), 20.4, 0.05)
