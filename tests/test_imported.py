"""Results from elsewhere, brought in and judged."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_ab.errors import UserError
from agent_ab.gate import judged
from agent_ab.gate.imported import import_file
from agent_ab.store.store import Store
from agent_ab.verdict.verdict import Decision, Verdict
from tests.command import here

PUBLISHED = Path(__file__).parent.parent / "agent_ab" / "data" / "published_experiment.toml"
CSV = """task,seed,arm,checks_passed,checks_scored,wall_s,timed_out,first_arm
a,1,baseline,10,10,100,no,baseline
a,1,candidate,9,10,80,no,baseline
b,1,candidate,3,10,300,yes,candidate
b,1,baseline,3,10,200,no,candidate
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "p.db")
    yield found
    found.close()


def brought_in(store: Store, tmp_path: Path, name: str, content: str) -> Verdict:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return judged.verdict_of(store, import_file(path, store).run)


def result(passed: int = 10, wall_s: Any = 100.0, **more: Any) -> dict[str, Any]:
    return {"checks_passed": passed, "wall_s": wall_s, **more}


def pairs(**changes: Any) -> str:
    first = {"task": "a", "seed": 1, "baseline": result(), "candidate": result()} | changes
    return json.dumps(
        {"variable": "quantisation", "pairs": [first, {**first, "task": "b"} if not changes else _plain()]}
    )


def _plain() -> dict[str, Any]:
    return {"task": "b", "seed": 1, "baseline": result(), "candidate": result()}


def test_the_published_experiment_is_inconclusive_with_its_published_numbers(store: Store) -> None:
    imported = import_file(PUBLISHED, store)
    assert (imported.run, imported.pairs, imported.faults) == ("published_experiment", 8, ())
    verdict = judged.verdict_of(store)
    c, e = verdict.correctness, verdict.evidence
    assert c and e and verdict.needed and verdict.time
    assert verdict.decision is Decision.INCONCLUSIVE
    assert (c.passed_baseline, c.passed_candidate, c.checks) == (35, 26, 80)
    assert (c.mean, c.p_sign_flip, round(e.harm, 2)) == (-0.1125, 1.0, 1.45)
    assert (round(c.interval.low or 0, 4), round(c.interval.high or 0, 4)) == (-0.3785, 0.1535)
    assert (round(c.design_effect or 0, 4), round(c.effective_checks or 0, 3)) == (10.0141, 7.989)
    assert verdict.needed.pairs_fixed == 64
    assert (verdict.counts.unproven, verdict.kind) == (8, "import")
    assert (verdict.time.pairs, verdict.time.faster, verdict.time.censored_baseline) == (3, 3, 1)


def test_the_command_prints_them_and_exits_with_three(tmp_path: Path) -> None:
    shutil.copy(PUBLISHED, tmp_path / "results.toml")
    assert here(tmp_path, "import", "results.toml", "--db", "p.db").status == 0
    done = here(tmp_path, "gate", "--db", "p.db", "--junit", "gate.xml", "--markdown", "gate.md")
    assert done.status == 3
    text = " ".join(done.stdout.split())
    for expected in (
        "INCONCLUSIVE results",
        "mean -0.1125 per pair, 95 % t interval [-0.3785, 0.1535], sign-flip p 1.0",
        "e (harm) 1.45",
        "64 pairs for non-inferiority at margin 0.10, one-sided",
        "UNPROVEN",
    ):
        assert expected in text
    written = [done.stdout, *((tmp_path / name).read_text(encoding="utf-8") for name in ("gate.xml", "gate.md"))]
    assert not any("significan" in out.lower() for out in written)


def test_imported_attempts_can_be_looked_at_like_played_ones(store: Store) -> None:
    import_file(PUBLISHED, store)
    pair = store.load_pair("published_experiment/transfer-repair-second")
    assert (pair.outcome, pair.proven, pair.baseline.passed, pair.baseline.total) == ("BROKEN", False, 10, 10)
    assert "candidate: no production code was edited" in pair.findings
    assert store.run("published_experiment").plan["source"]["setup"]["gpu"] == "NVIDIA RTX 3090, 24 GB"


def test_a_file_imported_twice_is_two_runs(store: Store) -> None:
    assert [import_file(PUBLISHED, store).run for _ in range(2)] == ["published_experiment", "published_experiment-2"]


def test_a_csv_file_has_a_line_an_attempt(store: Store, tmp_path: Path) -> None:
    verdict = brought_in(store, tmp_path, "r.csv", CSV)
    assert verdict.correctness and verdict.time
    assert verdict.correctness.mean == pytest.approx(-0.05)
    assert (verdict.time.faster, verdict.time.slower, verdict.time.censored_candidate) == (1, 1, 1)
    assert verdict.correctness.order_effect == pytest.approx(-0.05)
    rows = CSV.splitlines()
    shuffled = "\n".join([rows[0], rows[4], rows[2], rows[1], rows[3]]) + "\n"
    other = brought_in(store, tmp_path, "s.csv", shuffled)
    assert (other.correctness, other.evidence, other.time) == (verdict.correctness, verdict.evidence, verdict.time)


def test_a_csv_file_may_name_its_checks(store: Store, tmp_path: Path) -> None:
    text = "task,seed,arm,check:x,check:y\na,1,baseline,pass,1\na,1,candidate,pass,fail\n"
    verdict = brought_in(store, tmp_path, "r.csv", text)
    assert [(f.check, f.broken) for f in verdict.flips] == [("y", True)]
    assert verdict.unchanged == ("a/x",)


def test_a_json_file_has_its_pairs(store: Store, tmp_path: Path) -> None:
    verdict = brought_in(store, tmp_path, "r.json", pairs())
    assert (verdict.decision, verdict.variable, verdict.counts.counted) == (Decision.INCONCLUSIVE, "quantisation", 2)
    named = pairs(baseline={"checks": {"x": True, "y": True}}, candidate={"checks": {"x": True, "y": False}})
    assert brought_in(store, tmp_path, "n.json", named).flips[0].check == "y"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"baseline": result(wall_s=float("nan"))}, "a-1-0: the wall time of the baseline is not a number"),
        ({"candidate": result(wall_s=-1)}, "a-1-0: the wall time of the candidate is -1.0: negative"),
        ({"candidate": None}, "a-1-0: the candidate has no attempt; a pair needs both arms"),
        ({"task": "b"}, "b-1-0: a duplicate attempt: task, seed and repeat occur twice"),
        ({"candidate": result(9, checks_scored=9)}, "a-1-0: the arms were judged by different check sets: 10 and 9"),
        ({"candidate": result(11)}, "a-1-0: 11 of 10 checks passed in the candidate"),
        ({"candidate": {"wall_s": 1.0}}, "a-1-0: the candidate has no result"),
    ],
)
def test_what_cannot_be_judged_is_imported_and_invalid_with_the_reason(
    store: Store, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    verdict = brought_in(store, tmp_path, "r.json", pairs(**changes))
    assert verdict.decision is Decision.INVALID
    assert reason in verdict.reasons[0]


def test_a_duplicate_line_of_a_csv_file_is_invalid(store: Store, tmp_path: Path) -> None:
    verdict = brought_in(store, tmp_path, "r.csv", CSV + CSV.splitlines()[1] + "\n")
    assert verdict.decision is Decision.INVALID
    assert "a duplicate attempt" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("r.txt", "", "the form is known by the ending"),
        ("r.json", "{", "cannot be parsed"),
        ("r.json", '{"pairs": []}', "key 'pairs'"),
        ("r.json", '{"pairs": [{"task": "a", "sede": 1}]}', "key 'pairs.0.sede'"),
        ("r.toml", "pairs = 3", "cannot be parsed|key 'pairs'"),
        ("r.toml", "= 3", "cannot be parsed"),
        ("r.csv", "task,seed\n", "missing: arm"),
        ("r.csv", "task,seed,arm\na,1,left\n", "line 2: arm 'left' is neither baseline nor candidate"),
        ("r.csv", "task,seed,arm,check:x\na,1,baseline,perhaps\n", "line 2: check:x: 'perhaps' is neither of"),
        ("r.csv", "task,seed,arm\na,1\n", "line 2: "),
    ],
)
def test_a_file_of_no_known_form_is_refused_with_its_place(
    store: Store, tmp_path: Path, name: str, content: str, reason: str
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=reason):
        import_file(path, store)
    assert store.runs() == ()


def test_a_file_that_is_not_there_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        import_file(tmp_path / "r.json", store)
