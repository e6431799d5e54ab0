"""A verdict on a terminal of 100 columns."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.observations import Observation, Side
from agent_ab.gate.policy import Policy
from agent_ab.verdict.verdict import Interval
from agent_ab.verdict.view import figures, interval, p_value, view
from tests.command import here
from tests.verdicts import pair, pairs, run

POLICY = Policy()


def shown(observations: list) -> str:  # type: ignore[type-arg]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view(judge(run(observations), observations, Rules(POLICY, POLICY))))
    return console.export_text()


def test_the_word_comes_first_then_why_then_the_numbers() -> None:
    text = shown(pairs(8))
    assert text.startswith("INCONCLUSIVE   20260101-000000   suite of demo   server.speculation")
    assert text.index("why") < text.index("Pairs still needed") < text.index("besides") < text.index("checks passed")
    assert "mean 0.0000 per pair, no interval, since all 8 pairs are alike" in text


def test_flips_are_called_observed_and_a_supported_one_regressed() -> None:
    few = shown([pair(0, 10, 9), *pairs(8)[1:]])
    assert "observed flips (one pair each: no regression by itself)" in few
    assert "build-planner-0-0  check-9  passed, then failed" in few
    assert "regressed" not in few
    many = shown([pair(n, 10, 9) for n in range(48)])
    assert "regressed" in many
    assert "and 38 more; --json has them" in many


def test_a_run_that_cannot_be_judged_shows_its_faults_and_no_numbers() -> None:
    text = shown([pair(0, 10, 10), pair(0, 10, 10)])
    assert text.startswith("INVALID")
    assert "mean" not in text


def test_one_pair_alone_is_told_as_such() -> None:
    assert "no interval of one pair" in shown(pairs(1))


def told(observations: list) -> dict[str, str]:  # type: ignore[type-arg]
    return dict(figures(judge(run(observations), observations, Rules(POLICY, POLICY))))


def test_pairs_that_are_all_alike_have_no_interval_of_time_either() -> None:
    lines = figures(judge(run(pairs(8)), pairs(8), Rules(POLICY, POLICY)))
    assert ("", "candidate / baseline 0.800 (geometric mean), no interval, since all 8 pairs are alike") in lines
    assert dict(lines)["solved per hour"].endswith("ratio 1.250, no interval, since all 8 pairs are alike")
    assert dict(lines)["over tasks"] == "no interval, since all tasks' means are alike"
    assert told([pair(0, ratio=1.0)])["wall time"] == "candidate faster in 0, slower in 0, equal in 1 of 1 pair"


def test_checks_that_offset_each_other_within_a_pair_are_not_said_to_be_more_than_they_are() -> None:
    offset = [replace(o, candidate=swapped(o)) for o in pairs(8, 5, 5)]
    offset[0] = pair(0, 5, 6)
    line = told(offset)["worth"]
    assert line.startswith("80 checks say no more than their number: within a pair they do not stand and fall together")
    assert told([pair(0, 10, 1), *pairs(8)[1:]])["worth"].startswith("80 checks say as much as 7.99 independent ones")


def swapped(o: Observation) -> Side:
    assert o.candidate
    checks = {name: not passed for name, passed in o.candidate.checks.items()}
    return replace(o.candidate, checks=checks)


def test_pass_at_k_is_told_with_its_k_and_a_simulated_p_as_simulated() -> None:
    text = shown(pairs(8))
    assert "pass@1/2, baseline" in text and "1.00/1.00" in text
    verdict = judge(run(pairs(8, 10, 9)), pairs(8, 10, 9), Rules(POLICY, POLICY))
    assert verdict.correctness
    drawn = replace(verdict, correctness=replace(verdict.correctness, sign_flip_exact=False))
    assert "by simulation, which shows none below 0.00005" in dict(figures(drawn))["difference"]
    assert "simulation" not in dict(figures(verdict))["difference"]


def test_both_orders_and_cut_times_are_told() -> None:
    lines = dict(figures(judge(run(pairs(8)), pairs(8), Rules(POLICY, POLICY))))
    assert lines["order of play"] == "+0.0000 when the baseline was first"
    assert lines["wall time"] == "candidate faster in 8, slower in 0 of 8 pairs"


@pytest.mark.parametrize(
    ("p", "text"), [(1.0, "1.0"), (0.350617, "0.351"), (0.5, "0.5"), (0.00039, "0.00039"), (None, "-")]
)
def test_p_values_are_short(p: float | None, text: str) -> None:
    assert p_value(p) == text


def test_an_interval_names_its_level() -> None:
    assert interval(Interval(-0.1, 0.2, 0.95), 2) == "95 % [-0.10, 0.20]"
    assert interval(Interval(None, None, 0.95)) == interval(None) == "-"


def test_a_ratio_of_times_that_were_all_cut_in_both_arms_is_not_known() -> None:
    def cut(o: Observation) -> Observation:
        assert o.baseline and o.candidate
        arms = (replace(o.baseline, censored=True), replace(o.candidate, censored=True, seconds=100.0))
        return replace(o, baseline=arms[0], candidate=arms[1])

    observations = [cut(o) for o in pairs(8)]
    text = shown(observations)
    assert "candidate / baseline not known: every pair was cut at the limit in both arms" in text
    assert "geometric mean" not in text and "mean 1 min 40 s and 1 min 40 s" in text
    assert "(geometric mean)" in shown([*observations[:7], pair(7)])


def test_a_policy_that_is_not_the_shipped_one_is_told_with_its_hash(tmp_path: Path) -> None:
    assert "policy" not in shown(pairs(8))
    (tmp_path / "r.csv").write_text("task,seed,arm,checks_passed\na,1,baseline,9\na,1,candidate,9\n", encoding="utf-8")
    (tmp_path / "pol.toml").write_text("margin = 0.2\n", encoding="utf-8")
    here(tmp_path, "import", "r.csv")
    hashed = Policy(margin=0.2).sha256()[:12]
    text = here(tmp_path, "gate", "--policy", "pol.toml").stdout
    assert f"pol.toml, chosen with --policy: margin 0.2, alpha 0.05, sha256 {hashed}" in text
    own = Policy(margin=0.2)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view(judge(run(pairs(8)), pairs(8), Rules(own, own))))
    assert f"the run's own: margin 0.2, alpha 0.05, sha256 {hashed}" in console.export_text()
