"""A verdict as JUnit XML."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from agent_ab.gate.gate import Apparatus, Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.verdict.junit import junit
from agent_ab.verdict.verdict import Verdict, to_json
from tests.verdicts import TASKS, pair, pairs, run

POLICY = Policy()


def judged(observations: list, **apparatus: object) -> Verdict:  # type: ignore[type-arg]
    return judge(run(observations), observations, Rules(POLICY, POLICY, None, Apparatus(**apparatus)))  # type: ignore[arg-type]


def cases(verdict: Verdict) -> dict[str, ET.Element]:
    suite = ET.fromstring(junit(verdict))
    found = {f"{case.get('classname')}/{case.get('name')}": case for case in suite}
    assert suite.get("tests") == str(len(found)) == str(len(list(suite)))
    for kind in ("failures", "errors", "skipped"):
        tag = kind.rstrip("s") if kind != "skipped" else kind
        assert suite.get(kind) == str(len(suite.findall(f"testcase/{tag}"))), kind
    return found


def test_there_is_a_case_a_check_and_one_for_the_verdict() -> None:
    found = cases(judged(pairs(48)))
    assert len(found) == 41
    assert found["agent-ab/verdict"].find("failure") is None
    assert "Shown: that it loses less than 0.1" in "".join(found["agent-ab/verdict"].itertext())


def test_a_regressed_check_fails_and_an_observed_flip_does_not() -> None:
    regressed = cases(judged([pair(n, 10, 9) for n in range(48)]))
    failure = regressed["csv-ledger/check-9"].find("failure")
    assert failure is not None
    assert "broken in 12 and fixed in 0 of 12 pairs" in failure.get("message", "")
    observed = cases(judged([pair(0, 10, 9), *pairs(8)[1:]]))
    case = observed["build-planner/check-9"]
    assert case.find("failure") is None
    assert "observed, not more than that" in "".join(case.itertext())


def test_the_verdicts_case_fails_or_is_an_error_by_its_word() -> None:
    for observations, tag, word in (
        (pairs(8), "failure", "INCONCLUSIVE"),
        (pairs(8, 10, 1), "failure", "REJECT"),
        ([replace(o, candidate=None) for o in pairs(8)], "error", "INVALID"),
    ):
        told = cases(judged(observations))["agent-ab/verdict"].find(tag)
        assert told is not None
        assert told.get("type") == word


def test_a_quarantined_check_is_skipped() -> None:
    found = cases(judged(pairs(8), quarantined=frozenset({("csv-ledger", "check-0")})))
    assert found["csv-ledger/check-0"].find("skipped") is not None


def test_names_that_xml_cannot_hold_do_not_break_it() -> None:
    hostile = [replace(o, task=f"{o.task}\x00\x1b]</testcase>&\ufffe\ud800") for o in pairs(8)]
    assert any("</testcase>&" in name for name in cases(judged(hostile)))


def test_a_task_whose_name_holds_a_slash_keeps_its_checks() -> None:
    odd = [replace(o, task=f"team/{o.task}") for o in pairs(8)]
    verdict = judged(odd, quarantined=frozenset({("team/csv-ledger", "check-0")}))
    classes = {case.get("classname") for case in ET.fromstring(junit(verdict))}
    assert classes == {f"team/{name}" for name in TASKS} | {"agent-ab"}
    assert to_json(verdict)["quarantined"] == ["team/csv-ledger/check-0"]


def test_names_that_turn_the_direction_of_reading_are_made_visible() -> None:
    text = junit(judged([replace(o, task=f"{o.task}\u202e\u200b") for o in pairs(8)]))
    assert "\u202e" not in text and "\u200b" not in text
    assert "csv-ledger&lt;U+202E&gt;&lt;U+200B&gt;" in text
