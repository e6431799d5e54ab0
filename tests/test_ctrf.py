"""A CTRF report fails only what the candidate broke."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent_ab.export import ctrf
from agent_ab.model import Arm, CheckCount, CheckStatus, Outcome, Pair
from agent_ab.pair.pair import judge
from tests.builders import attempt, check, pair

Status = Literal["passed", "failed", "skipped", "pending", "other"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Tool(Strict):
    name: str = Field(min_length=1)
    version: str


class Summary(Strict):
    tests: int
    passed: int
    failed: int
    skipped: int
    pending: int
    other: int
    start: int
    stop: int


class Case(Strict):
    name: str = Field(min_length=1)
    status: Status
    duration: int
    suite: list[str] = Field(min_length=1)
    message: str = ""
    labels: dict[str, str | int | float | bool]


class Results(Strict):
    tool: Tool
    summary: Summary
    tests: list[Case]


class Report(Strict):
    """The keys and types of CTRF's own schema, as far as we use them; it allows no others."""

    reportFormat: Literal["CTRF"]
    specVersion: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    generatedBy: str
    results: Results


def report(*pairs: Pair) -> Report:
    return Report.model_validate(ctrf.report("run", pairs))


def judged(baseline: dict[str, CheckStatus], candidate: dict[str, CheckStatus], **changes: Any) -> Pair:
    arms = [
        attempt(arm, 1, checks=tuple(check(name, status) for name, status in statuses.items()))
        for arm, statuses in ((Arm.BASELINE, baseline), (Arm.CANDIDATE, candidate))
    ]
    return replace(judge(pair(*arms)), **changes)


PASS, FAIL = CheckStatus.PASS, CheckStatus.FAIL


def test_what_the_candidate_broke_fails_and_nothing_else() -> None:
    made = report(judged({"a": PASS, "b": FAIL, "c": FAIL, "d": PASS}, {"a": FAIL, "b": FAIL, "c": PASS, "d": PASS}))
    assert {case.name.split()[0]: case.status for case in made.results.tests} == {
        "a": "failed",
        "b": "other",
        "c": "passed",
        "d": "passed",
    }
    assert made.results.summary.model_dump(exclude={"start", "stop"}) == {
        "tests": 4,
        "passed": 2,
        "failed": 1,
        "skipped": 0,
        "pending": 0,
        "other": 1,
    }
    assert made.results.summary.stop - made.results.summary.start == 12_000


def test_a_void_pair_is_skipped_with_the_reason() -> None:
    broke = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, checks=(), invalid_reason="server: gone")
    made = report(judge(pair(candidate=broke)))
    assert {case.status for case in made.results.tests} == {"skipped"}
    assert "server: gone" in made.results.tests[0].message


def test_a_check_that_one_arm_lacks_is_neither_passed_nor_failed() -> None:
    assert [case.status for case in report(judged({"a": PASS}, {"b": PASS})).results.tests] == ["other", "other"]


def test_untrusted_text_cannot_steer_a_terminal() -> None:
    made = judged({"a": PASS}, {"a": FAIL})
    hostile = replace(made.candidate, checks=(replace(made.candidate.checks[0], reason="\x1b[31mred"),))
    assert "\x1b" not in report(replace(made, candidate=hostile)).results.tests[0].message


def test_a_run_without_pairs_is_a_report_without_tests() -> None:
    assert report().results.summary.tests == 0


def test_a_pair_of_which_only_the_number_of_checks_is_known_is_one_case() -> None:
    def counted(mine: int, theirs: int) -> Case:
        arms = (attempt(arm, checks=(), counted=CheckCount(n, 10)) for arm, n in zip(Arm, (mine, theirs), strict=True))
        (case,) = report(judge(pair(*arms))).results.tests
        return case

    assert counted(10, 9).message == "10 of 10 checks passed in the baseline, 9 of 10 in the candidate"
    assert [counted(*n).status for n in ((10, 9), (10, 10), (3, 4))] == ["failed", "passed", "other"]
