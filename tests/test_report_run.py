"""What a person reads of a run in a terminal, and what Markdown says."""

from io import StringIO

import pytest
from rich.console import Console

from agent_ab.report import run
from agent_ab.report.page.compose import Subject
from tests import hostile
from tests.page.runs import played, subject


def shown(found: Subject) -> str:
    console = Console(file=StringIO(), width=100, highlight=False)
    console.print(run.view(found))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_verdict_flips_and_price_come_first() -> None:
    lines = shown(subject([played(n, candidate=1, ratio=0.5) for n in range(8)])).splitlines()
    assert lines[0].startswith("REJECT   demo   20260101-000000   suite")
    assert "The candidate solves fewer tasks and passes fewer checks" in lines[1]
    text = "\n".join(lines[:20])
    for words in ("8 to 0", "72 broke", "50 % less", "8 pairs valid", "type none -> draft-mtp"):
        assert words in text


def test_flips_pairs_endings_and_commands_follow() -> None:
    text = shown(subject([played(0, candidate=9), played(1)]))
    for words in ("what flipped", "check-9", "pairs", "identical", "how they ended", "VOID tries", "agent-ab gate"):
        assert words in text


def test_many_pairs_and_flips_are_cut_and_say_so() -> None:
    text = shown(subject([played(n, candidate=1) for n in range(40)]))
    assert "and 24 more pairs" in text and "and 24 more checks" in text


def test_nothing_is_wider_than_the_terminal_whatever_was_written() -> None:
    for found in (subject([played(n, candidate=1) for n in range(4)]), hostile.subject()):
        assert max(map(len, shown(found).splitlines())) <= 100


@pytest.mark.parametrize("form", ("terminal", "markdown"))
def test_hostile_text_neither_steers_the_terminal_nor_commands_the_runner(form: str) -> None:
    found = hostile.subject()
    text = shown(found) if form == "terminal" else run.markdown(found)
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\u2066", "\x00"}
    assert "##[" not in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]


def test_markdown_is_tables_with_strangers_words_in_code() -> None:
    text = run.markdown(subject([played(n, candidate=9) for n in range(4)]))
    assert text.startswith("# INCONCLUSIVE (suite)\n")
    assert "| `check-9` | `build-planner` | 1 of 1 |  | 1 | `as the rule says` |" in text
    assert "| `type` | `none` | `draft-mtp` |" in text
    assert "| 1 | `build-planner` | 0 | BROKEN | 10 to 9 of 10 | 100.0 to 80.0 s | identical |  |" in text


def test_markdown_of_hostile_text_keeps_its_tables_and_has_no_html_outside_code() -> None:
    text = run.markdown(hostile.subject())
    for line in text.splitlines():
        outside = "".join(line.split("`")[::2]) if "``" not in line else ""
        assert "<script" not in outside and "](" not in outside
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in rows)
