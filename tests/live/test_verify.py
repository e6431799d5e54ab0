"""Each fault of a task, produced for real and found in the real box."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_ab import snapshot
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Event
from agent_ab.verify.rules import Fault, Limits
from agent_ab.verify.verify import TaskVerification, verify
from tests.tiny_task import CHECKS, INSTRUCTION, LIMITS, PUBLIC, REFERENCE, START, TASK, patch, tiny_task


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory for temporary files that, unlike pytest's own, the box's user can reach."""
    room = Path(tempfile.mkdtemp())
    room.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    yield room
    snapshot.remove(room)


def faults(tasks_dir: Path, changes: dict[str, str] | None = None, without: str = "") -> list[Fault]:
    found = verification(tasks_dir, changes, without=without)
    return [finding.fault for finding in found.findings]


def verification(
    tasks_dir: Path, changes: dict[str, str] | None = None, *, without: str = "", limits: Limits = LIMITS
) -> TaskVerification:
    task = tiny_task(tasks_dir, changes, without=without)
    return verify(task, Sandbox(), observer=lambda event: None, limits=limits)


def test_a_sound_task_has_no_fault_and_progress_names_every_variant(tmp_path: Path) -> None:
    events: list[Event] = []
    seen = verify(tiny_task(tmp_path), Sandbox(), observer=events.append, limits=LIMITS)
    assert (seen.findings, seen.ok) == ((), True)
    assert [run.variant.name for run in seen.evidence.runs] == [
        "the starting code",
        "the reference",
        "mutant adds-two",
        "mutant doubles-one",
    ]
    assert events[-1].message == "tiny: 4 of 4 variants judged"


def test_starting_code_that_is_solved_already_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, {"fixture/calc.py": REFERENCE}) == [Fault.STARTING_CODE]


def test_starting_code_that_passes_another_check_than_named_is_a_fault(tmp_path: Path) -> None:
    other = TASK.replace("doubles-one", "adds-two")
    assert faults(tmp_path, {"task.toml": other}) == [Fault.STARTING_CODE]


def test_a_reference_that_fails_a_check_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, {"solution/calc.py": REFERENCE.replace("a + b", "a + b % 3")}) == [Fault.REFERENCE]


def test_a_mutant_that_survives_is_a_fault(tmp_path: Path) -> None:
    harmless = patch(REFERENCE, REFERENCE + "# as before\n")
    assert faults(tmp_path, {"mutants/adds-two.patch": harmless}) == [Fault.MUTANT_SURVIVES]


def test_a_mutant_that_fails_too_many_other_checks_is_a_fault(tmp_path: Path) -> None:
    both = patch(REFERENCE, REFERENCE.replace("a + b", "a - b").replace("a * 2", "a ** 2"))
    found = verification(tmp_path, {"mutants/adds-two.patch": both}, limits=Limits(checks=2, probes=1, spill=0))
    assert [finding.fault for finding in found.findings] == [Fault.MUTANT_KILLS_MORE]


def test_a_mutant_that_does_not_apply_is_a_fault(tmp_path: Path) -> None:
    elsewhere = patch(START, START.replace("return a\n", "return b\n"))
    assert faults(tmp_path, {"mutants/adds-two.patch": elsewhere}) == [Fault.MUTANT_DOES_NOT_APPLY]


def test_a_mutant_that_the_public_tests_catch_is_a_fault(tmp_path: Path) -> None:
    obvious = patch(REFERENCE, REFERENCE.replace("a + b", "a + b + 1"))
    assert faults(tmp_path, {"mutants/adds-two.patch": obvious}) == [Fault.MUTANT_BREAKS_TESTS]


def test_a_check_without_a_mutant_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, without="mutants/adds-two.patch") == [Fault.CHECK_UNPROVEN]


def test_a_mutant_without_a_check_is_a_fault(tmp_path: Path) -> None:
    stray = patch(REFERENCE, REFERENCE.replace("a + b", "b + a"))
    assert faults(tmp_path, {"mutants/adds-three.patch": stray}) == [Fault.MUTANT_WITHOUT_CHECK]


def test_a_check_that_changes_its_mind_on_one_snapshot_is_flaky(tmp_path: Path) -> None:
    fickle = CHECKS.replace(
        "def doubles(candidate):\n",
        "def doubles(candidate):\n"
        f"    with open({str(tmp_path / 'count')!r}, 'a+') as count:\n"
        "        count.write('x')\n"
        "        number = 3 + count.tell() % 2\n",
    ).replace('"numbers": [4]', '"numbers": [number]')
    task = tiny_task(tmp_path, {"checks.py": fickle})
    seen = verify(task, Sandbox(), repeat=2, workers=1, observer=lambda event: None, limits=LIMITS)
    flaky = [finding.subject for finding in seen.findings if finding.fault is Fault.FLAKY]
    assert flaky and set(flaky) == {"doubles-one"}


def test_too_few_checks_and_probes_are_faults(tmp_path: Path) -> None:
    found = verification(tmp_path, limits=Limits())
    assert [finding.fault for finding in found.findings] == [Fault.CHECK_COUNT, Fault.PROBE_COUNT]


def test_public_tests_that_fail_on_the_starting_code_are_a_fault(tmp_path: Path) -> None:
    strict = PUBLIC.replace("calc.add(5, 0), 5", "calc.add(5, 1), 6")
    seen = verification(tmp_path, {"fixture/tests/test_calc.py": strict})
    # The mutant of add no longer passes them either.
    assert [finding.fault for finding in seen.findings] == [Fault.MUTANT_BREAKS_TESTS, Fault.PUBLIC_TESTS]
    assert "FAIL: test_calc" in seen.findings[-1].sentence


def test_public_tests_that_are_not_found_are_a_fault(tmp_path: Path) -> None:
    seen = verification(tmp_path, {"fixture/tests/test_calc.py": "import calc\n"})
    assert {finding.fault for finding in seen.findings} == {Fault.PUBLIC_TESTS, Fault.MUTANT_BREAKS_TESTS}


def test_an_instruction_that_is_silent_about_a_rule_and_gives_checks_away_has_each_of_these_faults(
    tmp_path: Path,
) -> None:
    text = INSTRUCTION.replace("twice the number", "the double")
    given_away = "\nThe check adds-two must pass, see checks.py. For example 7300021 and 3.\n"
    seen = verification(tmp_path, {"instruction.md": text + given_away})
    assert [(finding.fault, finding.subject) for finding in seen.findings] == [
        (Fault.RULE_NOT_STATED, "doubles-one"),
        (Fault.INSTRUCTION_LEAK, "adds-two"),
        (Fault.INSTRUCTION_LEAK, "checks.py"),
        (Fault.INSTRUCTION_LEAK, "adds-two"),
    ]
    assert "7300021" in seen.findings[-1].sentence


def test_a_fixture_that_changed_since_it_was_recorded_is_a_fault(tmp_path: Path) -> None:
    task = tiny_task(tmp_path)
    (task.root / "fixture" / "README.md").write_text("new\n")
    seen = verify(task, Sandbox(), observer=lambda event: None, limits=LIMITS)
    assert [finding.fault for finding in seen.findings] == [Fault.FIXTURE_CHANGED]
    assert task.fixture_commit not in seen.findings[0].sentence


def test_a_fixture_that_holds_the_solution_elsewhere_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, {"fixture/old/calc_new.txt": REFERENCE}) == [Fault.HISTORY_LEAK]


def test_a_judge_that_does_not_load_is_the_users_mistake(tmp_path: Path) -> None:
    task = tiny_task(tmp_path)
    (task.root / "checks.py").write_text("def broken(:\n")
    with pytest.raises(UserError, match=r"checks\.py does not load"):
        verify(task, Sandbox(), observer=lambda event: None)


def test_a_box_that_cannot_be_started_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny_task(tmp_path)
    monkeypatch.setenv("AGENT_AB_BWRAP", str(tmp_path / "nowhere"))
    with pytest.raises(ApparatusError, match="sandbox"):
        verify(task, Sandbox(), observer=lambda event: None)


def test_an_interrupted_verification_leaves_no_directory_behind(tmp_path: Path, temporary: Path) -> None:
    def interrupt(event: Event) -> None:
        if event.message.startswith("tiny: 1 of"):
            raise KeyboardInterrupt

    task = tiny_task(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        verify(task, Sandbox(), workers=1, observer=interrupt, limits=LIMITS)
    assert list(temporary.iterdir()) == []
