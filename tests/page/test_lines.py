"""A run's flips, grid and pairs."""

from dataclasses import dataclass, replace

from agent_ab.divergence import parting
from agent_ab.model import AgentEnd, AgentRun, Arm, CheckCount, Outcome, PairOutcome
from agent_ab.pair.pair import judge
from agent_ab.report.page import lines
from agent_ab.report.summary import summarise
from tests.builders import attempt, pair
from tests.page.runs import TASKS, played, verdict_of


@dataclass(frozen=True)
class Said:
    pair_id: str
    check_id: str
    kind: str
    note: str = ""
    quarantined: bool = False
    reruns: dict[str, list[str]] | None = None


def test_a_flip_names_its_pairs_the_reason_and_what_a_person_said() -> None:
    pairs = [played(0, candidate=9), played(4, candidate=9), played(1)]
    marks = (Said(pairs[0].id, "check-9", "flaky check", "looks odd", True, {"baseline": ["pass", "fail"]}),)
    (flip,) = lines.flip_lines(summarise(pairs), lines.numbered(pairs), verdict_of(pairs), marks)
    assert [ref.number for ref in flip.broken] == [1, 2] and flip.fixed == () and flip.pairs == 2
    assert flip.example == "as the rule says"
    assert flip.notes == ("marked flaky check: looks odd; run again: baseline pass fail; quarantined",)


def test_only_a_supported_verdict_says_regressed() -> None:
    few = [played(n, candidate=9) for n in range(4)]
    many = [played(4 * n, candidate=9) for n in range(30)]
    for pairs, said in ((few, False), (many, True)):
        found = lines.flip_lines(summarise(pairs), lines.numbered(pairs), verdict_of(pairs), ())
        assert any(note.startswith("regressed") for note in found[0].notes) is said


def test_the_grid_has_a_cell_for_every_check_of_every_pair() -> None:
    invalid = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died", checks=())
    void = replace(judge(pair(candidate=invalid)), id="void", task=TASKS[0])
    (task,) = lines.grid(lines.numbered([played(0, candidate=9), void, played(4, baseline=9)]))
    assert [p.outcome for p in task.pairs] == ["BROKEN", "VOID", "FIXED"]
    by_id = {row.check_id: row for row in task.rows}
    assert by_id["check-9"].cells == ("pf", "p-", "fp") and by_id["check-9"].flipped
    assert by_id["check-0"].cells == ("pp", "p-", "pp") and not by_id["check-0"].flipped
    assert (by_id["check-9"].passed, by_id["check-9"].judged) == ((1, 1), 2)


def test_a_pair_is_one_line_with_its_walls_in_one_unit() -> None:
    cut = attempt(Arm.BASELINE, agent=AgentRun(AgentEnd.TIMEOUT, None, 480.1, 480.0))
    slow = attempt(Arm.CANDIDATE, agent=AgentRun(AgentEnd.COMPLETED, 0, 1186.0, 480.0))
    first, second = lines.pair_lines(lines.numbered([played(0, candidate=1), replace(judge(pair(cut, slow)), id="x")]))
    assert (first.outcome, first.tone, first.checks, first.wall, first.ratio) == (
        "BROKEN",
        "broken",
        "10 to 1 of 10",
        "100.0 to 80.0 s",
        "0.80 x",
    )
    assert (first.place, first.flips) == ("identical, 2 exchanges", 9)
    assert second.wall == "8 min 00 s (cut) to 19 min 46 s" and second.outcome == "BOTH PASS"


def test_a_void_pair_says_whose_fault_it_is() -> None:
    invalid = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died", agent=None)
    (line,) = lines.pair_lines(lines.numbered([judge(pair(candidate=invalid))]))
    assert (line.tone, line.note) == ("void", "candidate: server: died")


def test_counts_alone_are_shown_as_counts() -> None:
    bare = [
        attempt(arm, checks=(), counted=CheckCount(passed, 10), outcome=outcome, log=None, agent=None)
        for arm, passed, outcome in ((Arm.BASELINE, 10, Outcome.PASS), (Arm.CANDIDATE, 1, Outcome.FAIL))
    ]
    made = [replace(pair(*bare), outcome=PairOutcome.BROKEN, proven=False)]
    (line,) = lines.pair_lines(lines.numbered(made))
    assert (line.checks, line.wall, line.note) == ("10 to 1 of 10", "-", "unproven")
    assert lines.grid(lines.numbered(made))[0].rows == ()
    assert lines.side_of(made[0]) == "broken"


def test_places_are_told_in_a_few_words() -> None:
    found = parting.from_json(played(0).divergence).raw
    at = {
        "model: exchange 1, token 9 of the reply": replace(
            found, kind=parting.Kind.MODEL, where=parting.Where.REPLY, exchange=1, token=9
        ),
        "model: exchange 1, the reply": replace(found, kind=parting.Kind.MODEL, where=parting.Where.REPLY, exchange=1),
        "environment: exchange 2, messages[3]": replace(
            found, kind=parting.Kind.ENVIRONMENT, where=parting.Where.REQUEST, exchange=2, path="messages[3]"
        ),
        "environment: after 2 equal exchanges": replace(
            found, kind=parting.Kind.ENVIRONMENT, where=parting.Where.END, common=2
        ),
    }
    assert {lines.place_of(divergence) for divergence in at.values()} == set(at)


def test_the_proof_is_counted_line_by_line_and_its_failures_are_named() -> None:
    drift = replace(judge(pair(candidate=attempt(Arm.CANDIDATE, manifest_sha256="other"))), id="drift")
    rows = {row.name: row for row in lines.proof_rows(lines.numbered([played(0), drift]))}
    assert (rows["same start"].held, rows["same start"].of) == (1, 2)
    assert [ref.number for ref in rows["same start"].failed] == [2]
    assert rows["same start"].example.startswith("manifests") and rows["apparatus"].failed == ()


def test_bars_are_means_over_all_tasks_and_each_task() -> None:
    rows = lines.split_bars(lines.numbered([played(0), played(1)]))
    assert [(row.label, row.arm.value) for row in rows[:2]] == [("all tasks", "baseline"), ("all tasks", "candidate")]
    assert len(rows) == 6 and round(sum(rows[0].parts)) == 100
    assert lines.split_bars(lines.numbered([played(0, baseline=10)]))[0].label == TASKS[0]


def test_unequal_conditions_of_a_pair_are_told() -> None:
    found = lines.differences(lines.numbered([played(0, findings=("machine: the load was 1 and 9", "other"))]))
    assert [(told.ref.number, told.words) for told in found] == [(1, "the load was 1 and 9")]
