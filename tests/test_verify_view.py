"""What a verification looks like."""

import io
import json
from dataclasses import replace

from rich.console import Console

from agent_ab.model import CheckStatus
from agent_ab.verify.rules import Evidence, Kind, VariantRun, judge
from agent_ab.verify.verify import TaskVerification
from agent_ab.verify.view import data, table
from tests.test_verify_rules import LIMITS, MUTANTS, REFERENCE, START, TASK, mutant


def verification(mutants: dict[str, VariantRun] = MUTANTS, repeat: int = 1) -> TaskVerification:
    evidence = Evidence(TASK, (START, REFERENCE, *mutants.values()), known_text="", fixture_paths=())
    return TaskVerification(TASK, evidence, judge(evidence, LIMITS), repeat, duration_s=2.5)


def shown(*verifications: TaskVerification) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table(verifications))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_check_is_shown_with_its_proof() -> None:
    lines = shown(verification()).splitlines()
    assert lines[0].startswith("tiny  5 variants, 2.5 s") and lines[0].endswith("sound")
    assert lines[2].split() == ["first-rule", "fail", "pass", "killed"]
    assert lines[4].split() == ["third-rule", "pass", "pass", "killed"]
    assert lines[5].split() == ["edge", "(probe)", "pass", "pass"]
    assert lines[-1].startswith("1 of 1 tasks are sound, 3 checks")


def test_what_else_a_mutant_fails_is_listed() -> None:
    seen = verification(MUTANTS | {"first-rule": mutant("first-rule", "first-rule", "second-rule")})
    assert shown(seen).splitlines()[2].split() == ["first-rule", "fail", "pass", "killed", "second-rule"]


def test_every_fault_is_a_line_and_the_last_line_counts_sound_tasks() -> None:
    bad = verification(MUTANTS | {"first-rule": mutant("first-rule", "second-rule")})
    lines = shown(verification(), bad).splitlines()
    assert any("survives" in line and "first-rule" in line for line in lines)
    assert "  - the mutant of first-rule survives: the check passes on it" in lines
    assert lines[-1].startswith("1 of 2 tasks are sound")


def test_repeated_rounds_are_counted() -> None:
    seen = verification(repeat=2)
    reference = replace(REFERENCE, rounds=(REFERENCE.rounds[0], START.rounds[0]))
    evidence = replace(seen.evidence, runs=(START, reference, *MUTANTS.values()))
    lines = shown(replace(seen, evidence=evidence)).splitlines()
    assert "5 variants, 2 times each" in lines[0]
    assert lines[2].split()[:3] == ["first-rule", "fail", "1/2"]


def test_data_says_the_same_and_is_plain_json() -> None:
    bad = verification({})
    seen = json.loads(json.dumps(data([verification(), bad])))
    assert seen["ok"] is False
    assert [task["ok"] for task in seen["tasks"]] == [True, False]
    assert seen["tasks"][1]["findings"][0]["fault"] == "check-unproven"
    reference = next(v for v in seen["tasks"][0]["variants"] if v["kind"] == Kind.REFERENCE.value)
    assert {c["status"] for c in reference["rounds"][0]} == {CheckStatus.PASS.value}
