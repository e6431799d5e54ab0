"""The judgement on a task, on runs made up for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.model import CheckResult, CheckStatus, Json, Task
from agent_ab.verify.rules import (
    Evidence,
    Fault,
    Kind,
    Limits,
    PublicTests,
    Variant,
    VariantRun,
    judge,
    leaked,
    literals,
)

LIMITS = Limits(checks=3, probes=1, spill=1)
RULES = {"first-rule": "It adds.", "second-rule": "It doubles.", "third-rule": "It halves."}
TASK = Task(
    id="tiny",
    title="Tiny",
    root=Path("tiny"),
    instruction="It adds. It doubles.\nIt\n  halves.",
    fixture_commit="",
    fixture_manifest="",
    import_path=".",
    production=("*",),
    public_tests=("true",),
    check_timeout_s=10.0,
    starting_passes="third-rule",
)


def results(*failing: str, sent: Json = None) -> tuple[CheckResult, ...]:
    def result(check_id: str, rule: str, scored: bool) -> CheckResult:
        status = CheckStatus.FAIL if check_id in failing else CheckStatus.PASS
        return CheckResult(check_id, status, "it is 4; expected 5", rule, scored, 0.1, [{"call": sent}])

    return (*(result(check_id, rule, True) for check_id, rule in RULES.items()), result("edge", "An edge.", False))


def run(kind: Kind, *rounds: tuple[CheckResult, ...], mutant: str = "", tests: bool = True) -> VariantRun:
    return VariantRun(Variant(kind, mutant), rounds, PublicTests(tests, "OK" if tests else "FAIL: test_it"))


def mutant(check_id: str, *failing: str) -> VariantRun:
    return run(Kind.MUTANT, results(*(failing or (check_id,))), mutant=check_id)


START = run(Kind.START, results("first-rule", "second-rule"))
REFERENCE = run(Kind.REFERENCE, results())
MUTANTS = {check_id: mutant(check_id) for check_id in RULES}


def faults(
    start: VariantRun = START,
    reference: VariantRun = REFERENCE,
    mutants: dict[str, VariantRun] = MUTANTS,
    task: Task = TASK,
) -> list[tuple[Fault, str]]:
    evidence = Evidence(task, (start, reference, *mutants.values()), known_text="", fixture_paths=("calc.py",))
    return [(finding.fault, finding.subject) for finding in judge(evidence, LIMITS)]


def test_a_sound_task_has_no_findings() -> None:
    assert faults() == []


@pytest.mark.parametrize("failing", [(), ("first-rule",), ("first-rule", "third-rule"), tuple(RULES)])
def test_the_starting_code_passes_exactly_the_named_check(failing: tuple[str, ...]) -> None:
    assert faults(start=run(Kind.START, results(*failing))) == [(Fault.STARTING_CODE, "the starting code")]


def test_a_start_that_passes_another_check_only_sometimes_is_flaky_and_not_at_one() -> None:
    start = run(Kind.START, results("first-rule", "second-rule"), results("second-rule"))
    assert faults(start=start) == [(Fault.STARTING_CODE, "the starting code"), (Fault.FLAKY, "first-rule")]


def test_the_named_check_must_exist() -> None:
    found = faults(task=replace(TASK, starting_passes="fourth-rule"))
    assert found == [(Fault.STARTING_CODE, "task.toml"), (Fault.STARTING_CODE, "the starting code")]


def test_a_reference_that_fails_once_in_five_rounds_is_not_ten_of_ten() -> None:
    reference = run(Kind.REFERENCE, *[results()] * 4, results("second-rule"))
    assert faults(reference=reference) == [(Fault.REFERENCE, "second-rule"), (Fault.FLAKY, "second-rule")]


def test_a_mutant_that_survives_one_round_survives() -> None:
    lucky = run(Kind.MUTANT, results("first-rule"), results(), mutant="first-rule")
    found = faults(mutants=MUTANTS | {"first-rule": lucky})
    assert found == [(Fault.MUTANT_SURVIVES, "first-rule"), (Fault.FLAKY, "first-rule")]


def test_a_mutant_may_fail_so_many_other_checks_and_no_more() -> None:
    one, two = mutant("first-rule", "first-rule", "second-rule"), mutant("first-rule", *RULES)
    assert faults(mutants=MUTANTS | {"first-rule": one}) == []
    assert faults(mutants=MUTANTS | {"first-rule": two}) == [(Fault.MUTANT_KILLS_MORE, "first-rule")]


def test_a_mutant_that_could_not_be_built_is_named_with_its_reason() -> None:
    broken = VariantRun(Variant(Kind.MUTANT, "first-rule"), (), None, "does not apply")
    assert faults(mutants=MUTANTS | {"first-rule": broken}) == [(Fault.MUTANT_DOES_NOT_APPLY, "first-rule")]


def test_a_check_needs_a_mutant_of_its_own() -> None:
    mutants = {name: made for name, made in MUTANTS.items() if name != "second-rule"}
    mutants["first-rule"] = mutant("first-rule", "first-rule", "second-rule")
    assert faults(mutants=mutants) == [(Fault.CHECK_UNPROVEN, "second-rule")]


def test_public_tests_must_pass_everywhere() -> None:
    start = run(Kind.START, results("first-rule", "second-rule"), tests=False)
    assert faults(start=start) == [(Fault.PUBLIC_TESTS, "starting code")]
    assert faults(reference=run(Kind.REFERENCE, results(), tests=False)) == [(Fault.PUBLIC_TESTS, "reference")]
    caught = replace(MUTANTS["first-rule"], tests=PublicTests(False, "FAIL: test_it"))
    assert faults(mutants=MUTANTS | {"first-rule": caught}) == [(Fault.MUTANT_BREAKS_TESTS, "first-rule")]


def test_a_rule_may_break_its_line_anywhere_but_not_change_a_word() -> None:
    assert faults(task=replace(TASK, instruction="It adds. It\ndoubles. It halves.")) == []
    changed = replace(TASK, instruction="It adds. It doubles. It halved.")
    assert faults(task=changed) == [(Fault.RULE_NOT_STATED, "third-rule")]


@pytest.mark.parametrize("word", ["first-rule", "edge", "checks.py", "solution/calc.py", "mutants/"])
def test_ids_and_file_names_of_the_judge_do_not_belong_into_the_instruction(word: str) -> None:
    found = faults(task=replace(TASK, instruction=f"{TASK.instruction} See {word}."))
    assert [fault for fault, _ in found] == [Fault.INSTRUCTION_LEAK]


@pytest.mark.parametrize("word", ["first-ruler", "my-first-rule", "edges", "resolution/", "mychecks.py"])
def test_longer_words_that_contain_an_id_or_a_name_are_no_leak(word: str) -> None:
    assert faults(task=replace(TASK, instruction=f"{TASK.instruction} See {word}.")) == []


def test_a_file_of_the_fixture_may_be_named_like_one_of_the_judge() -> None:
    task = replace(TASK, instruction=f"{TASK.instruction} See db/driver.py.")
    evidence = Evidence(task, (START, REFERENCE, *MUTANTS.values()), "", fixture_paths=("db/driver.py",))
    assert judge(evidence, LIMITS) == ()


def test_an_input_of_a_check_in_the_instruction_is_a_leak_of_that_check() -> None:
    reference = run(Kind.REFERENCE, results(sent={"do": "add", "numbers": [7300021]}))
    task = replace(TASK, instruction=f"{TASK.instruction} As in 7300021.")
    assert set(faults(reference=reference, task=task)) == {(Fault.INSTRUCTION_LEAK, check_id) for check_id in RULES}


def test_literals_are_numbers_strings_and_their_parts_of_six_characters_or_more() -> None:
    sent = {"account:7": [123456, -1234567, 12345, 3.14159265, True, None, "a,b2b2b2b2;'quoted'\nx", 10**5000]}
    assert list(literals(sent)) == [
        "account:7",
        "123456",
        "-1234567",
        "3.14159265",
        "a,b2b2b2b2;'quoted'\nx",
        "b2b2b2b2",
        "quoted",
    ]


def test_a_plain_word_gives_a_check_away_only_as_code_or_in_quotes() -> None:
    assert leaked("Pencils are sold.", ["Pencils"], "") == ()
    assert leaked("An entry `Pencils` is kept.", ["Pencils"], "") == ("Pencils",)
    assert leaked('An entry "red Pencils" is kept.', ["Pencils"], "") == ("Pencils",)
    assert leaked("For example:\n\n    add Pencils 5\n", ["Pencils"], "") == ("Pencils",)


def test_anything_but_a_plain_word_gives_a_check_away_anywhere() -> None:
    assert leaked("On 2023-02-29 it fails.", ["x,2023-02-29,y"], "") == ("2023-02-29",)
    assert leaked("On 2023-02-299 it fails.", ["2023-02-29"], "") == ()


def test_what_the_candidate_may_see_anyway_gives_nothing_away() -> None:
    assert leaked("Use `assets:bank`.", ["assets:bank"], known_text="post to assets:bank") == ()
