"""A verdict for GitHub, with names that somebody chose to do harm."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.observations import Observation
from agent_ab.gate.policy import Policy
from agent_ab.verdict.ci import annotations, markdown
from agent_ab.verdict.verdict import Verdict
from agent_ab.verdict.view import view
from tests import stored
from tests.command import here
from tests.verdicts import pair, pairs, run, side

POLICY = Policy()
HOSTILE = "x\n::set-output name=a::b\r##[command]%0A|<img src=http://e.example>`@everyone` [a](http://e.example)"


def judged(observations: list[Observation]) -> Verdict:
    return judge(run(observations), observations, Rules(POLICY, POLICY))


def hostile() -> list[Observation]:
    def renamed(o: Observation) -> Observation:
        left = side(10, checks={HOSTILE: True}, settings="a")
        right = side(9, checks={HOSTILE: False}, settings="b")
        return replace(o, task=HOSTILE, pair=f"{HOSTILE}{o.pair}", baseline=left, candidate=right)

    return [renamed(o) for o in pairs(8)]


def test_the_summary_says_the_word_the_reasons_and_the_numbers() -> None:
    text = markdown(judged(pairs(48)))
    assert text.startswith("## agent-ab: ADOPT\n")
    assert "| evidence | e (harm) 1.00, the mean of checks 1.00 and solved tasks 1.00; e (non-inferior) checks" in text
    assert "margin 0.1" in text


def test_a_flip_is_annotated_as_observed_and_a_regression_as_an_error() -> None:
    first, flip = annotations(judged([pair(0, 10, 9), *pairs(8)[1:]]))
    assert first.startswith("::warning title=agent-ab%3A INCONCLUSIVE::")
    assert flip == "::notice title=observed flip%3A build-planner/check-9::broken in 1 and fixed in 0 of 2 pairs"
    regressed = annotations(judged([pair(n, 10, 9) for n in range(48)]))
    assert regressed[1].startswith("::error title=regressed%3A build-planner/check-9::")


def test_no_more_annotations_than_github_shows() -> None:
    assert len(annotations(judged(pairs(8, 10, 1)))) == 10


def test_hostile_names_bring_no_workflow_command_into_an_annotation() -> None:
    for line in annotations(judged(hostile())):
        assert "\n" not in line and "\r" not in line
        assert line.count("::") == 2
        assert "##[" not in line


def test_hostile_names_are_text_in_the_summary() -> None:
    text = markdown(judged(hostile()))
    assert not [line for line in text.splitlines() if line.lstrip().startswith(("::", "##["))]
    # Inside a code span nothing is markup; outside of one it is escaped.
    outside = "".join(text.split("`")[::2]) if text.count("`") % 2 == 0 else text
    assert "<img" not in outside.replace("\\<", "")
    assert "http://" not in outside


def test_hostile_names_are_text_on_the_terminal() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view(judged(hostile())))
    shown = console.export_text()
    assert not [line for line in shown.splitlines() if line.lstrip().startswith(("::", "##["))]


def test_the_command_appends_to_the_step_summary_and_annotates_on_standard_error(tmp_path: Path) -> None:
    store = stored.database(tmp_path)
    stored.save(store, "r", [stored.pair("r", n, 10, 1) for n in range(8)])
    store.close()
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    done = here(tmp_path, "gate", "--json", env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert (done.status, done.data["verdict"]) == (1, "REJECT")
    assert summary.read_text(encoding="utf-8").startswith("before\n## agent-ab: REJECT\n")
    assert "::error title=agent-ab%3A REJECT::" in done.stderr


def test_a_file_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    store = stored.database(tmp_path)
    stored.save(store, "r", [stored.pair("r", n) for n in range(8)])
    store.close()
    done = here(tmp_path, "gate", "--junit", "nowhere/gate.xml")
    assert done.status == 2
    assert "--junit nowhere/gate.xml: cannot be written" in done.error


@pytest.mark.parametrize("policy", ["gone.toml"])
def test_a_policy_that_is_not_there_is_the_users_mistake(tmp_path: Path, policy: str) -> None:
    assert "--policy gone.toml: cannot be read" in here(tmp_path, "gate", "--policy", policy).error
