"""A verdict on a terminal of 100 columns."""

import io

import pytest
from rich.console import Console

from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.verdict.verdict import Interval
from agent_ab.verdict.view import figures, interval, p_value, view
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
    assert "mean 0.0000 per pair, no t interval, since all pairs are alike" in text


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
    assert "no t interval of one pair" in shown(pairs(1))


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
