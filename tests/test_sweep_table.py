"""What a sweep says, in a table and in words."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from agent_ab.model import Arm, ExchangeLog, Outcome, Pair, PairOutcome, Patch
from agent_ab.suite.sweep_table import At, data, row, sign_test, view, words
from tests.builders import attempt, exchange, pair

B, C = Arm.BASELINE, Arm.CANDIDATE


def played(baseline: bool, candidate: bool, seed: int = 1, stops: int = 0) -> Pair:
    def side(arm: Arm, solved: bool) -> object:
        log = ExchangeLog(tuple(exchange(i, finish_reason="length") for i in range(stops)), ())
        return attempt(arm, 10 if solved else 1, log=log, patch=Patch("", (), solved))

    made = replace(pair(), baseline=side(B, baseline), candidate=side(C, candidate), seed=seed)  # type: ignore[arg-type]
    return replace(made, outcome=PairOutcome.BOTH_PASS)


def at(value: str, *pairs: Pair) -> At:
    return At(value, f"run-{value}", tuple(replace(p, seed=i) for i, p in enumerate(pairs)))


def test_a_row_counts_solved_checks_length_stops_edits_and_time() -> None:
    found = row(at("1024", played(False, False, stops=2), played(True, False, stops=1)))
    assert (found.baseline.solved, found.candidate.solved, found.gap) == (1, 0, -1)
    assert (found.baseline.passed, found.baseline.scored) == (11, 20)
    assert (found.baseline.length_stops, found.baseline.edited, found.candidate.edited) == (3, 1, 0)
    assert found.baseline.seconds == 10.0
    assert played(True, True).baseline.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ((True, False), (True, True), "The gap closes"),
        ((True, True), (True, False), "A gap opens"),
        ((True, False), (True, False), "The gap stays"),
        ((True, False), (False, True), "The gap turns round"),
        ((False, False), (True, True), "No gap at any value"),
    ],
)
def test_words_say_whether_the_gap_closes(first: tuple[bool, bool], last: tuple[bool, bool], said: str) -> None:
    lines = words("agent.response_budget", [at("1024", played(*first)), at("4096", played(*last))])
    assert lines[0].startswith(said)
    assert "at 1024" in lines[0] and "at 4096" in lines[0]


def test_a_gap_that_only_becomes_smaller_narrows() -> None:
    before = at("1", played(True, False), played(True, False))
    assert words("x", [before, at("2", played(True, False), played(True, True))])[0].startswith("The gap narrows")
    assert words("x", [at("2", played(True, False), played(True, True)), before])[0].startswith("The gap widens")


def test_a_change_that_chance_can_make_is_called_that() -> None:
    one = words("x", [at("1", played(True, False)), at("2", played(True, True))])
    assert one[-1].endswith("that may be chance.")
    many = [at("1", *[played(True, False)] * 8), at("2", *[played(True, True)] * 8)]
    assert words("x", many)[-1].endswith("more than chance.")


def test_length_stops_are_told_and_whether_both_arms_had_them_alike() -> None:
    lines = words("x", [at("1", played(False, False, stops=2)), at("2", played(True, True))])
    assert "in both arms alike: 2 to 0 in the baseline, 2 to 0 in the candidate" in lines[1]
    assert "attempts that edited: 0 to 1, and 0 to 1" in lines[1]


def test_without_two_values_there_is_nothing_to_say() -> None:
    assert words("x", [at("1", played(True, True)), at("2")]) == [
        "Fewer than two values have a valid pair: there is nothing to compare."
    ]


def test_the_sign_test_is_exact() -> None:
    assert (sign_test(0, 0), sign_test(1, 0), sign_test(6, 0)) == (1.0, 1.0, 2 / 64)


def test_table_and_data_hold_the_same() -> None:
    found = [at("1024", played(False, False, stops=2)), at("4096", played(True, True))]
    console = Console(width=120, file=StringIO(), record=True)
    console.print(view("agent.response_budget", found))
    assert "No gap at any value" in console.export_text()
    values = data("agent.response_budget", found)["values"]
    assert [(v["value"], v["baseline"]["solved"], v["candidate"]["length_stops"]) for v in values] == [
        ("1024", 0, 2),
        ("4096", 1, 0),
    ]
