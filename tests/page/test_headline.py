"""The answer, and the four numbers that a reader takes away."""

from dataclasses import replace
from typing import Any

from agent_ab.model import Arm, CheckCount, Outcome, PairOutcome
from agent_ab.report.page import headline
from agent_ab.report.page.contents import Head, Tile
from agent_ab.report.summary import summarise
from agent_ab.verdict.verdict import Interval, Time
from tests.builders import attempt, pair
from tests.page.runs import played, subject


def head(pairs: list, **changes: object) -> Head:  # type: ignore[type-arg]
    found = subject(pairs, **changes)
    return headline.head(found.run, pairs, summarise(pairs), found.verdict)


def test_the_first_reason_leads_and_the_rest_follows() -> None:
    found = head([played(n, candidate=1) for n in range(8)])
    assert (found.decision, found.tone) == ("REJECT", "reject")
    assert found.lead.startswith("The candidate solves fewer tasks and passes fewer checks")
    assert found.labels == ("suite",) and found.created_at == "2026-01-01 08:30 UTC"
    assert found.change == (("type", "none", "draft-mtp"),) and found.variable == "server.speculation"


def test_what_is_still_needed_is_told_in_a_few_words() -> None:
    found = head([played(n) for n in range(8)])
    assert (
        found.decision == "INCONCLUSIVE"
        and found.still.startswith("Pairs still needed if it goes on as it did so far: about ")
        and "then ADOPT" in found.still
    )


def test_imported_and_unfinished_runs_say_so() -> None:
    found = head([played(n, proven=False) for n in range(8)], kind="import", status="running")
    assert found.labels == ("imported", "UNPROVEN", "not finished")
    assert found.tiles[3].value == "UNPROVEN" and found.tiles[3].tone == "void"


def test_the_tiles_of_a_run_that_broke_things() -> None:
    solved, flipped, wait, proven = head([played(n, candidate=1, ratio=0.5) for n in range(4)]).tiles
    assert (solved.value, solved.detail, solved.tone) == ("4 to 0", "4 pairs broke, 0 fixed", "broken")
    assert [(bar.arm, bar.share, bar.words) for bar in flipped.bars] == [
        (Arm.BASELINE, 1.0, "40 of 40"),
        (Arm.CANDIDATE, 0.1, "4 of 40"),
    ]
    assert (flipped.value, flipped.detail) == ("36 broke", "0 fixed")
    assert wait.value == "50 % less" and wait.tone == "good" and wait.bars[1].share == 0.5
    assert (proven.value, proven.tone) == ("4 pairs valid", "good")


def test_the_tiles_of_a_run_in_which_nothing_changed() -> None:
    solved, flipped, wait, _ = head([played(n, ratio=1.0) for n in range(4)]).tiles
    assert (solved.value, flipped.value, flipped.tone, wait.value, wait.tone) == (
        "4, equal",
        "none",
        "good",
        "equal",
        "",
    )


def test_voids_are_told_by_arm() -> None:
    broken = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died")
    void = replace(pair(candidate=broken), id="void")
    tile = head([*(played(n) for n in range(4)), void]).tiles[3]
    assert tile.detail.endswith("1 VOID: 0 by the baseline, 1 by the candidate, 0 by the proof") and tile.tone == ""


def test_counts_alone_do_not_say_which_checks_flipped() -> None:
    arms = [
        attempt(arm, checks=(), counted=CheckCount(passed, 10), outcome=outcome)
        for arm, passed, outcome in ((Arm.BASELINE, 10, Outcome.PASS), (Arm.CANDIDATE, 1, Outcome.FAIL))
    ]
    tiles = headline.tiles(summarise([replace(pair(*arms), outcome=PairOutcome.BROKEN)]), None)
    assert (tiles[1].value, tiles[1].bars[1].words) == ("not known", "1 of 10")
    assert tiles[2].value == "-"


def test_the_numbers_behind_the_verdict_have_a_line_each() -> None:
    table = headline.numbers(subject([played(n, candidate=9 - n % 2) for n in range(8)]).verdict)
    assert table is not None
    lines = {row.label: row.cells for row in table.rows}
    assert lines["pairs that count"][0] == "8 of 8"
    assert lines["share of checks passed, mean difference"][0] == "-0.1500"
    assert lines["solved in both, broken, fixed, neither"][0] == "0, 8, 0, 0"
    assert lines["McNemar over checks, by pair"][1].startswith("Obuchowski 1998")
    assert lines["time ratio, geometric mean"][0] == "0.80 x"
    assert headline.numbers(None) is None and headline.controls(None) is None


def test_an_open_end_of_an_interval_is_called_open() -> None:
    assert headline.interval(Interval(0.25, None, 0.9)) == "90 % interval 0.25 to open"
    assert headline.interval(None) == "-"


def test_settings_are_shown_as_people_write_them() -> None:
    shown = [headline.shown(v) for v in (None, "", True, False, 0.95, 8192, [1.0, 1.0], "q8_0")]
    assert shown == ["not set", "not set", "on", "off", "0.95", "8192", "1, 1", "q8_0"]


def waited(**changes: Any) -> Tile:
    time = Time(9, 0, 9, 0, 0, 0, 0, ratio=0.5, mean_baseline_s=100.0, mean_candidate_s=50.0)
    verdict = subject([played(n) for n in range(4)]).verdict
    assert verdict
    return headline.tiles(summarise([]), replace(verdict, time=replace(time, **changes)))[2]


def test_a_time_that_was_cut_is_no_saving_in_the_headline() -> None:
    assert waited().value == "50 % less"
    cut = waited(censored_candidate=3)
    assert (cut.value, cut.tone) == ("not known", "")
    assert cut.detail.startswith("3 of 9 pairs had the candidate cut at the limit")
    fitted = waited(censored_candidate=3, ratio_censored=0.9)
    assert fitted.value == "10 % less" and "3 of 9 pairs had the candidate cut" in fitted.detail
    assert waited(censored_candidate=3, ratio=1.5).value == "50 % more"
    assert waited(censored_baseline=3, ratio_censored=0.3).value == "50 % less"
