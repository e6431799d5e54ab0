"""Endings, machine, settings, hashes and the commands to do it again."""

from dataclasses import replace

from agent_ab.model import Arm, Outcome, PairOutcome
from agent_ab.report.page import facts
from agent_ab.report.summary import summarise
from tests.builders import attempt, exchange, pair
from tests.page.runs import TASKS, played, subject

MACHINE = {"is": {"cpu": "x86", "gpus": [{"name": "RTX 3090"}]}, "start": {"load": 0.5}, "throttled": []}


def test_endings_are_counted_by_arm_and_marked_where_the_arms_differ() -> None:
    made = played(0)
    assert made.candidate.log
    cut = replace(made.candidate.log, exchanges=(exchange(0, finish_reason="length"), *made.candidate.log.exchanges))
    rows = {
        row.label: row
        for row in facts.endings(summarise([replace(made, candidate=replace(made.candidate, log=cut))])).rows
    }
    assert rows["budget stops"].cells == ("0", "1") and rows["budget stops"].tone == "differs"
    assert rows["replies ended (finish reasons)"].cells == ("stop 2", "stop 2, length 1")
    assert rows["HTTP errors"].tone == ""


def test_what_was_not_recorded_is_no_zero() -> None:
    bare = [attempt(arm, log=None, patch=None, agent=None) for arm in Arm]
    rows = facts.endings(summarise([replace(pair(*bare), outcome=PairOutcome.BOTH_PASS)])).rows
    assert {cell for row in rows for cell in row.cells} == {"-"}


def test_voids_are_counted_by_arm() -> None:
    broken = attempt(Arm.BASELINE, outcome=Outcome.INVALID, invalid_reason="server: died")
    table = facts.voids(summarise([played(0), pair(baseline=broken)]), None)
    assert [(row.label, row.cells[0], row.tone) for row in table.rows] == [
        ("baseline", "1", "bad"),
        ("candidate", "0", ""),
        ("the proof (both ran)", "0", ""),
    ]


def test_machine_facts_are_ranges_and_differences_are_marked() -> None:
    arms = [
        attempt(arm, machine=MACHINE | {"is": {"cpu": cpu, "gpus": []}, "start": {"load": load}})
        for arm, cpu, load in ((Arm.BASELINE, "x86", 0.5), (Arm.CANDIDATE, "arm", 1.5))
    ]
    table = facts.machine([pair(*arms), played(0)])
    assert table is not None
    rows = {row.label: row for row in table.rows}
    assert rows["is.cpu"].cells == ("x86", "arm") and rows["is.cpu"].tone == "differs"
    assert rows["start.load"].cells == ("0.5", "1.5") and rows["start.load"].tone == ""
    assert rows["box: sandbox.kind"].cells == ("bwrap", "bwrap")
    assert facts.machine([pair(*(replace(a, machine=None, world={}) for a in arms))]) is None


def test_lists_of_devices_are_flattened_and_many_values_are_counted() -> None:
    arms = [attempt(arm, machine=MACHINE) for arm in Arm]
    table = facts.machine([pair(*arms)])
    assert table is not None and "is.gpus.0.name" in {row.label for row in table.rows}
    many = [pair(*(attempt(arm, machine={"is": {"cpu": f"cpu {n}"}}) for arm in Arm)) for n in range(6)]
    table = facts.machine(many)
    assert table is not None and table.rows[0].cells[0] == "cpu 0, cpu 1, cpu 2, cpu 3, and 2 more"


def test_settings_that_differ_come_first() -> None:
    table = facts.settings([played(0)])
    assert [row.label for row in table.rows if row.tone] == [row.label for row in table.rows][:2]
    rows = {row.label: row for row in table.rows}
    assert rows["server.speculation.type"].cells == ("none", "draft-mtp")
    assert rows["command line"].cells[1].endswith("--spec-type draft-mtp --spec-draft-n-max 3")


def test_hashes_pin_the_run_down() -> None:
    found = subject([played(0)])
    rows = {row.label: row.cells[0] for row in facts.hashes(found.run, found.pairs, None).rows}
    assert rows["plan, sha256"] == "e" * 64 and rows["policy, sha256"] == "d" * 64
    assert rows["model file, sha256"] == "model" and rows[f"fixture of {TASKS[0]}, commit"] == "c" * 40
    assert rows[f"task {TASKS[0]}, sha256"] == "f" * 64


def test_the_source_of_imported_results_is_quoted() -> None:
    source = {"setup": {"gpu": "RTX 3090"}, "pairs": [1], "probes": [{"task": "a", "finding": "b"}]}
    table = facts.stated(subject([played(0)], plan={"source": source}).run)
    assert table is not None
    assert [(row.label, row.cells[0]) for row in table.rows] == [("setup.gpu", "RTX 3090"), ("probes", "a; b")]
    assert facts.stated(subject([played(0)]).run) is None


def test_commands_play_again_and_name_where_things_are() -> None:
    made = [played(0), played(1, candidate=9)]
    words = [c.text for c in facts.commands(subject(made).run, made, "my db", "runs")]
    assert words[0] == "agent-ab run --new --profile demo"
    assert "agent-ab gate 20260101-000000 --db 'my db'" in words
    assert f"agent-ab diff 20260101-000000/{TASKS[1]}-0-0 --db 'my db'" in words
    one = [c.text for c in facts.commands(subject(made, kind="pair").run, made, "runs.db", "elsewhere")]
    assert one[0] == f"agent-ab pair --task {TASKS[0]} --seed 0 --profile demo"
    assert one[2].endswith("--runs-dir elsewhere")
    imported = [c.text for c in facts.commands(subject(made, kind="import").run, made, "runs.db", "runs")]
    assert [text.split()[1] for text in imported] == ["gate", "report"]
