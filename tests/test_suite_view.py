"""A suite as people read it."""

from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from agent_ab.config import SeedOrder
from agent_ab.model import Arm, Outcome, PairOutcome
from agent_ab.pair.pair import judge
from agent_ab.schedule import Grid, Tried, standing
from agent_ab.store.store import PairState, RunRecord, RunSummary, VoidTry
from agent_ab.suite.view import (
    headline,
    opening,
    pair_line,
    plan_data,
    plan_view,
    run_data,
    run_view,
    runs_data,
    runs_view,
    void_lines,
)
from tests.builders import attempt, pair

ORDERS = (SeedOrder(seed=1, first=Arm.BASELINE), SeedOrder(seed=2, first=Arm.CANDIDATE))
GRID = Grid(("a", "b"), ORDERS, 1)
FIRST = GRID.block(0)[0]
ONE_DONE = standing(GRID, 2, [Tried(FIRST.place, 1, PairOutcome.BROKEN)], 2, {"a": [60.0]})
RECORD = RunRecord(
    id="20260101-000000",
    created_at="2026-01-01T00:00:00+00:00",
    ended_at=None,
    status="stopped",
    note="interrupted",
    kind="suite",
    profile="cpu-demo",
    version="0.1.0",
    plan={},
    plan_sha256="a" * 64,
    blocks=2,
    policy=None,
    policy_sha256=None,
)
STATE = PairState("a-1-0", "a", 1, 0, 0, 1, False, PairOutcome.BROKEN, "now")
VOIDS = (
    VoidTry("a-1-0", Arm.CANDIDATE, "server: died (log: x)"),
    VoidTry("a-1-0.2", Arm.CANDIDATE, "server: died (log: y)"),
    VoidTry("b-1-0", None, "same first request: differs"),
)


def text(view: RenderableType) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_headline_tells_what_is_done_what_is_left_and_what_is_played() -> None:
    line = headline(replace(GRID.block(0)[1], attempted=2), ONE_DONE)
    assert line == "1 of 4 pairs done (1 BROKEN), about 3 min 00 s left | block 1 of 2 | b-1-0.2, try 2"


def test_a_finished_pair_leaves_one_line_with_its_outcome_scores_and_times() -> None:
    line = pair_line(judge(pair(candidate=attempt(Arm.CANDIDATE, 3))), ONE_DONE)
    assert line.split()[:5] == ["1/4", "transfer-repair-4242-0", "BROKEN", "10/10", "3/10"]
    assert "12.0 s + 12.0 s" in line and "about 3 min 00 s left" in line


def test_a_finished_pair_names_the_candidate_where_there_are_several() -> None:
    line = pair_line(judge(pair(candidate=attempt(Arm.CANDIDATE, 3))), replace(ONE_DONE, name="accepts-all"))
    assert line.split()[:3] == ["accepts-all", "1/4", "transfer-repair-4242-0"]


def test_a_void_pair_says_why() -> None:
    broken = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died", checks=(), evidence=())
    line = pair_line(judge(pair(candidate=broken)), ONE_DONE)
    assert "VOID" in line and "candidate: server: died" in line and " - " in line


def test_a_sitting_begins_with_what_it_finds() -> None:
    new = standing(GRID, 2, [], 2, {})
    done = standing(GRID, 1, [Tried(p.place, 1, PairOutcome.BOTH_PASS) for p in GRID.block(0)], 2, {})
    assert opening("r", new) == "run r: 4 pairs in 2 blocks"
    assert opening("r", ONE_DONE) == "run r goes on: 1 of 4 pairs done, about 3 min 00 s left"
    assert "finished" in opening("r", done) and "--new" in opening("r", done)


def test_the_plan_names_each_block_its_arm_order_and_the_hours() -> None:
    shown = text(plan_view(GRID, ONE_DONE, 480.0))
    assert [line.split() for line in shown.splitlines()[1:3]] == [
        ["1", "1", "baseline", "2", "1"],
        ["2", "2", "candidate", "2", "2"],
    ]
    assert "2 tasks x 2 seeds x 1 repeat: 4 pairs, 1 done; 6 attempts to play" in shown
    assert "about 3 min 00 s" in " ".join(shown.split())


def test_without_measurements_the_plan_tells_the_longest_time() -> None:
    shown = " ".join(text(plan_view(GRID, standing(GRID, 2, [], 2, {}), 900.0)).split())
    assert "1 h 00 min if every attempt used up its time limit" in shown


def test_a_run_shows_its_pairs_and_its_voids_by_arm() -> None:
    shown = text(run_view(RECORD, ONE_DONE, [STATE], VOIDS))
    assert "stopped (interrupted)" in shown and "1 of 4 pairs done, 0 of 2 blocks" in shown
    assert "20260101-000000/a-1-0" in shown and "BROKEN" in shown
    assert "3 VOID tries: 0 by the baseline, 2 by the candidate, 1 by neither alone" in shown
    assert "b-1-0: the pair: same first request: differs" in shown


def test_no_voids_need_no_lines() -> None:
    assert void_lines(()) == []
    assert void_lines(VOIDS[:1])[0].strip().startswith("1 VOID try:")


def test_the_runs_are_a_table() -> None:
    summary = RunSummary("r1", "2026", "cpu-demo", 3, "suite", "stopped", 2, ((PairOutcome.VOID, 1),))
    assert "suite  cpu-demo  stopped" in text(runs_view([summary])) and "1 VOID" in text(runs_view([summary]))
    assert runs_data([summary])[0]["outcomes"] == {"VOID": 1}


def test_the_data_hold_what_the_views_show() -> None:
    data = run_data(RECORD, ONE_DONE, [STATE], VOIDS)
    assert (data["pairs"], data["done"], data["outcomes"], len(data["voids"])) == (4, 1, {"BROKEN": 1}, 3)
    assert run_data(RECORD, None, [], ())["pairs"] is None
    plan = plan_data(GRID, ONE_DONE, 10.0)
    assert [left["id"] for left in plan["left"]] == ["b-1-0", "a-2-0", "b-2-0"]
    assert (plan["estimate_s"], plan["at_most_s"]) == (180.0, 30.0)
