"""What a person and what a program read of a pair."""

import json
from dataclasses import replace
from io import StringIO

from rich.console import Console

from agent_ab.model import AgentEnd, AgentRun, Arm, Outcome, Pair, Patch
from agent_ab.pair.pair import judge
from agent_ab.report.report import pair_data, pair_view
from tests.builders import attempt, pair


def shown(judged: Pair) -> str:
    console = Console(file=StringIO(), width=100, highlight=False)
    console.print(pair_view(judged, "runs/x"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_flips_are_listed_by_check_with_their_direction() -> None:
    text = shown(judge(pair(candidate=attempt(Arm.CANDIDATE, 9))))
    line = next(line for line in text.splitlines() if line.startswith("check-9"))
    assert line.split() == ["check-9", "pass", "fail", "broken"]
    assert "BROKEN" in text and "1 check flipped" in text and "10/10" in text and "9/10" in text


def test_the_proof_is_shown_line_by_line_and_a_fault_is_in_the_headline() -> None:
    text = shown(judge(pair(candidate=attempt(Arm.CANDIDATE, manifest_sha256="other"))))
    assert "VOID" in text.splitlines()[0]
    assert "same start" in text.splitlines()[0]
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("apparatus")]
    assert "same start          NO" in text


def test_nothing_is_wider_than_the_terminal() -> None:
    assert max(map(len, shown(judge(pair())).splitlines())) <= 100


def test_an_arm_that_was_never_played_is_shown_without_numbers() -> None:
    silent = attempt(
        Arm.CANDIDATE,
        0,
        outcome=Outcome.INVALID,
        invalid_reason="not played",
        checks=(),
        log=None,
        agent=None,
        server=None,
    )
    assert "not played" in shown(judge(pair(candidate=silent)))


def test_data_says_the_same_as_the_tables() -> None:
    judged = judge(pair(candidate=attempt(Arm.CANDIDATE, 1)))
    data = json.loads(json.dumps(pair_data(judged, "runs/x")))
    assert data["schema"] == 1 and data["valid"] is True
    assert data["pair"]["outcome"] == "BROKEN" and len(data["pair"]["flips"]) == 9
    assert data["metrics"]["baseline"]["tokens_per_s"] == 100.0
    assert data["evidence"] == "runs/x"


def test_the_data_of_an_agent_that_left_tens_of_thousands_of_files_stays_short() -> None:
    names = tuple(f"junk/{number}.txt" for number in range(20_000))
    litter = Patch("+junk\n" * 1_000_000, names, edited_production=False)
    judged = judge(pair(candidate=attempt(Arm.CANDIDATE, patch=litter)))
    data = pair_data(judged, "runs/x")
    assert data["pair"]["candidate"]["patch"]["files"][-1] == "and 19900 more"
    assert len(json.dumps(data)) < 200_000


def test_an_agents_last_words_neither_steer_the_terminal_nor_are_markup() -> None:
    words = "\x1b[31mred \x1b]8;;http://evil\x07link [bold]loud[/bold] [/nothing]"
    crashed = attempt(Arm.CANDIDATE, 1, agent=AgentRun(AgentEnd.CRASHED, 1, 10.0, 120.0, note=words))
    drifted = replace(crashed, world={"sandbox": {"kind": "bwrap"}, "workspace": "[/nothing]"})
    text = shown(judge(pair(candidate=drifted)))
    assert "\x1b" not in text and "\x07" not in text
    assert "[bold]loud[/bold] [/nothing]" in " ".join(text.split())
