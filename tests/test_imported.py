"""Results from elsewhere, brought in and judged."""

import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

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
    assert (imported.run, imported.pairs, imported.of, imported.faults) == ("published_experiment", 8, 8, ())
    verdict = judged.verdict_of(store)
    c, e = verdict.correctness, verdict.evidence
    assert c and e and verdict.needed and verdict.time
    assert verdict.decision is Decision.INCONCLUSIVE
    assert (c.passed_baseline, c.passed_candidate, c.checks) == (35, 26, 80)
    assert (c.mean, c.p_sign_flip, round(e.harm, 2)) == (-0.1125, 1.0, 1.52)
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
        "e (harm) 1.52",
        "64 pairs for non-inferiority at margin 0.10, one-sided",
        "such pairs never lead to ADOPT, however many they are: that takes pairs with proof, played here (`agent-ab run",
        "Pairs still needed if in truth nothing differs: about 146 with proof, run here (`agent-ab run --profile ...`), about 2",
        "Pairs still needed if it goes on as it did so far: about 36 (28 to 56, about 5.7 hours), then REJECT.",
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


def documented(form: str) -> str:
    """Return the example of a form in docs/verdict.md."""
    page = (Path(__file__).parent.parent / "docs" / "verdict.md").read_text(encoding="utf-8")
    lines = page.split(f"**{form}**", 1)[1].split("\n\n", 1)[1].splitlines()
    return "".join(f"{line[4:]}\n" for line in itertools.takewhile(lambda line: line.startswith("    "), lines))


@pytest.mark.parametrize("form", ["CSV", "JSON"])
def test_a_documented_form_is_imported_and_judged_without_faults(store: Store, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"results.{form.lower()}"
    path.write_text(documented(form), encoding="utf-8")
    assert import_file(path, store).faults == ()
    assert judged.verdict_of(store).decision is Decision.INCONCLUSIVE


def test_different_check_sets_say_which_arm_lacks_what(store: Store, tmp_path: Path) -> None:
    both = {"checks": {"exact-amounts": True, "read-failure": True}}
    other = {"checks": {"exact-amounts": True, "retry": True}}
    for candidate, told in (
        (result(1, checks_scored=2), "the candidate lacks exact-amounts, read-failure."),
        (other, "the baseline lacks retry; the candidate lacks read-failure."),
    ):
        verdict = brought_in(store, tmp_path, "r.json", pairs(baseline=both, candidate=candidate))
        assert verdict.reasons[0] == f"a-1-0: the arms were judged by different check sets: {told}"


def test_the_number_of_checks_is_shown_wherever_a_pair_is(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(CSV, encoding="utf-8")
    assert here(tmp_path, "import", "r.csv", "--db", "runs.db").status == 0
    assert re.search(r"r/a-1-0 +BROKEN +10/10 +9/10 +- *\n", here(tmp_path, "pairs").stdout)
    assert here(tmp_path, "pairs", "--json").data[0]["flips"] is None
    shown = here(tmp_path, "show", "r/a-1-0").stdout
    assert re.search(r"passed +10/10 +9/10", shown)
    assert "which checks flipped is not known" in shown and "no check flipped" not in shown


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
    assert verdict.unchanged == (("a", "x"),)


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
        (
            {"candidate": result(9, checks_scored=9)},
            "a-1-0: the arms were judged by different check sets: 10 in the baseline, 9 in the candidate",
        ),
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
    assert "line 6 is a duplicate attempt of the baseline, which line 2 has" in verdict.reasons[0]


@pytest.mark.parametrize(("name", "content"), [("r.json", "[1]"), ("r.csv", CSV + "a,x,baseline,1,10,1,no,\n")])
def test_a_file_that_is_refused_leaves_nothing(store: Store, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=name):
        import_file(tmp_path / name, store)
    assert store.runs() == ()


@pytest.mark.parametrize("name", ["r.toml", "r.json", "r.csv"])
def test_a_byte_order_mark_is_no_part_of_a_file(store: Store, tmp_path: Path, name: str) -> None:
    content = {"r.toml": PUBLISHED.read_text(encoding="utf-8"), "r.json": pairs(), "r.csv": CSV}[name]
    assert brought_in(store, tmp_path, name, "\ufeff" + content).decision is Decision.INCONCLUSIVE


def test_what_toml_can_say_and_json_cannot_is_kept_with_the_run(store: Store, tmp_path: Path) -> None:
    told = f"day = 2026-10-02\nodd = nan\nbig = 0x{'f' * 4000}\n"
    brought_in(store, tmp_path, "r.toml", told + PUBLISHED.read_text(encoding="utf-8"))
    source = store.run("r").plan["source"]
    assert (source["day"], source["odd"], source["big"]) == ("2026-10-02", "nan", "0x" + "f" * 4000)


def test_an_import_that_breaks_off_leaves_nothing(store: Store, tmp_path: Path) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("broke off")

    path = tmp_path / "r.json"
    path.write_text(pairs(), encoding="utf-8")
    with mock.patch("agent_ab.store.store.attempt_rows", broken), pytest.raises(RuntimeError):
        import_file(path, store)
    assert store.runs() == () and store.pair_names() == ()


def test_pairs_of_one_name_are_told_apart_or_invalid(store: Store, tmp_path: Path) -> None:
    two = [{**_plain(), "seed": seed, "label": "same"} for seed in (1, 2)]
    verdict = brought_in(store, tmp_path, "r.json", json.dumps({"pairs": two}))
    assert verdict.decision is Decision.INVALID
    assert "b-same: a duplicate attempt: two pairs have this name" in verdict.reasons[0]
    slashes = [{**_plain(), "task": task} for task in ("../../a", "..\\../a")]
    brought_in(store, tmp_path, "s.json", json.dumps({"pairs": slashes}))
    names = [name.removeprefix("s/") for name in store.pair_names() if name.startswith("s/")]
    assert len(set(names)) == 2 and not any("/" in name or "\\" in name for name in names)


def test_every_fault_that_the_gate_will_name_is_told_when_importing(tmp_path: Path) -> None:
    odd = {
        "pairs": [
            {**_plain(), "candidate": result(11)},
            {**_plain(), "task": "c", "baseline": result(wall_s=-1)},
            {**_plain(), "task": "d", "candidate": result(9, checks_scored=9)},
            {**_plain(), "task": "e", "candidate": None},
        ]
    }
    (tmp_path / "r.json").write_text(json.dumps(odd), encoding="utf-8")
    done = here(tmp_path, "import", "r.json", "--db", "p.db")
    assert done.status == 0
    assert "imported 3 of 4 pairs as run r, UNPROVEN" in done.stdout
    assert "the gate will say INVALID, of 4 faults:" in done.stdout
    told = [line.removeprefix("  - ") for line in done.stdout.splitlines() if line.startswith("  - ")]
    verdict = here(tmp_path, "gate", "--db", "p.db", "--json")
    assert verdict.status == 4
    assert [f"{line}." for line in told] == verdict.data["reasons"]
    assert here(tmp_path, "import", "r.json", "--db", "p.db", "--json").data["faults"] == told


def test_every_fault_of_a_pair_is_told_of_both_arms(store: Store, tmp_path: Path) -> None:
    neither = {"wall_s": math.nan}
    path = tmp_path / "r.json"
    path.write_text(
        json.dumps(
            {
                "pairs": [
                    {**_plain(), "baseline": neither, "candidate": neither},
                    {"task": "c"},
                    {"task": "d", "baseline": result(11, wall_s=-1.0)},
                    *(
                        {**_plain(), "task": "e", "seed": seed, "candidate": result(9, checks_scored=9)}
                        for seed in (1, 2)
                    ),
                ]
            }
        ),
        encoding="utf-8",
    )
    assert import_file(path, store).faults == (
        "b-1-0: the wall time of the baseline is not a number",
        "b-1-0: the baseline has no result: neither checks nor checks_passed",
        "b-1-0: the wall time of the candidate is not a number",
        "b-1-0: the candidate has no result: neither checks nor checks_passed",
        "c-0-0: the baseline has no attempt; a pair needs both arms",
        "c-0-0: the candidate has no attempt; a pair needs both arms",
        "d-0-0: the candidate has no attempt; a pair needs both arms",
        "d-0-0: 11 of 10 checks passed in the baseline, which is not possible",
        "d-0-0: the wall time of the baseline is -1.0: negative",
        *(
            f"e-{n}-0: the arms were judged by different check sets: 10 in the baseline, 9 in the candidate"
            for n in (1, 2)
        ),
    )


def test_of_many_faults_the_first_are_printed(tmp_path: Path) -> None:
    lines = "".join(f"task-{n},1,baseline,3\n" for n in range(30))
    (tmp_path / "r.csv").write_text(f"task,seed,arm,checks_passed\n{lines}", encoding="utf-8")
    done = here(tmp_path, "import", "r.csv", "--db", "p.db")
    assert "imported 0 of 30 pairs" in done.stdout and "and 10 more; --json has them" in done.stdout


def test_names_from_a_file_steer_neither_terminal_nor_ci_log(tmp_path: Path) -> None:
    name = "[/x] ::error::boom \u202e ##[command]rm :warning:"
    side = {"checks": {f"[bold]{name}": True}, "wall_s": 1.0}
    odd = {**side, "checks": {f"[bold]{name}": False}}
    one = {"task": name, "label": name, "seed": 1, "baseline": side, "candidate": odd}
    content = {"variable": name, "pairs": [one, {"task": name, "seed": 3, "baseline": side}]}
    (tmp_path / f"r {name.replace('/', '')}.json").write_text(json.dumps(content), encoding="utf-8")
    shown = [here(tmp_path, "import", f"r {name.replace('/', '')}.json", "--db", "p.db").stdout]
    run = here(tmp_path, "runs", "--db", "p.db", "--json").data[0]["run"]
    shown += [here(tmp_path, word, "--db", "p.db").stdout for word in ("gate", "runs", "pairs", "show")]
    shown.append(here(tmp_path, "show", run, "--db", "p.db").stdout)
    (tmp_path / "s.json").write_text(json.dumps({**content, "pairs": [one]}), encoding="utf-8")
    here(tmp_path, "import", "s.json", "--db", "s.db")
    shown += [here(tmp_path, word, "--db", "s.db").stdout for word in ("gate", "show")]
    for text in shown:
        assert text and "::error" not in text and "##[" not in text and "\u202e" not in text
    assert "[bold][/x] : :error: :boom" in shown[-1] and ":warning:" in shown[-1]


def test_a_pair_is_counted_as_one(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"pairs": [_plain()]}), encoding="utf-8")
    shown = here(tmp_path, "import", "r.json", "--db", "p.db").stdout + here(tmp_path, "gate", "--db", "p.db").stdout
    assert "imported 1 pair as run r" in shown and "1 of 1 pair comes without a proof" in " ".join(shown.split())
    assert not re.search(r"\b1 (pairs|checks|tasks|blocks|minutes)\b", shown)


def test_a_file_that_is_not_there_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        import_file(tmp_path / "r.json", store)


@pytest.mark.parametrize(("candidate", "decision"), [("mtp  OFF ", "INVALID"), ("mtp on", "INCONCLUSIVE")])
def test_two_arms_that_the_file_calls_the_same_are_no_comparison(
    store: Store, tmp_path: Path, candidate: str, decision: str
) -> None:
    rows = "".join(
        f"[[pairs]]\ntask = 't{n}'\nbaseline = {{checks_passed = 10}}\ncandidate = {{checks_passed = 10}}\n"
        for n in (1, 2)
    )
    text = f"[setup]\nbaseline = 'mtp off'\ncandidate = '{candidate}'\n{rows}"
    verdict = brought_in(store, tmp_path, "arms.toml", text)
    assert verdict.decision == decision
    said = "setup: both arms are 'mtp off': nothing differed that could be compared."
    assert (said in verdict.reasons) == (decision == "INVALID")


def limited(candidate_s: float) -> str:
    """Return 50 pairs whose candidates were all cut at `candidate_s`, and whose baselines took 100 seconds."""
    rows = [f"a,{n},baseline,10,100,no\na,{n},candidate,10,{candidate_s},yes" for n in range(50)]
    return "task,seed,arm,checks_passed,wall_s,timed_out\n" + "\n".join(rows)


def test_an_arm_with_a_shorter_time_limit_is_no_saving_but_invalid(store: Store, tmp_path: Path) -> None:
    verdict = brought_in(store, tmp_path, "limits.csv", limited(30))
    assert verdict.decision is Decision.INVALID and verdict.time is None
    assert verdict.reasons[0] == (
        "a-0-0: the candidate was cut at its time limit after 30.0 s, and the baseline ran for 100.0 s on the same task"
        " (a-9-0): the arms had different time limits."
    )


def test_cut_candidates_are_never_a_saving_where_the_limits_may_have_been_equal(store: Store, tmp_path: Path) -> None:
    verdict = brought_in(store, tmp_path, "limits.csv", limited(90))
    assert verdict.decision is Decision.INCONCLUSIVE and verdict.time
    assert verdict.time.ratio == pytest.approx(0.9) and verdict.time.known_ratio is None


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "device"])
def test_what_is_no_regular_file_is_not_waited_for(store: Store, tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "results.csv")
    with pytest.raises(UserError, match=r"results\.csv: cannot be read: is no regular file"):
        import_file(tmp_path / "results.csv", store)


@pytest.mark.parametrize(("name", "most"), [("results.csv", 64), ("results.json", 64), ("results.toml", 4)])
def test_a_file_that_is_too_large_is_refused_unread(store: Store, tmp_path: Path, name: str, most: int) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 1 << 40)
    with pytest.raises(UserError, match=rf"cannot be read: is larger than {most} MB"):
        import_file(tmp_path / name, store)


def test_an_attempt_with_more_checks_than_any_has_is_refused(store: Store, tmp_path: Path) -> None:
    checks = {"checks": {f"check-{number}": True for number in range(10_001)}}
    with pytest.raises(UserError, match=r"key 'pairs\.0\.baseline\.checks': must have at most 10 000 entries"):
        brought_in(store, tmp_path, "many.json", pairs(baseline=checks))
