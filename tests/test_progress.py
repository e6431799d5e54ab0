"""Signs of life, on a terminal and elsewhere."""

from io import StringIO

from rich.console import Console

from agent_ab.model import Arm, Event, Step
from agent_ab.progress import Progress, describe


def test_the_agents_line_tells_turns_tokens_elapsed_and_what_is_left() -> None:
    line = describe(Event(Arm.CANDIDATE, Step.AGENT, turns=3, tokens=210, elapsed_s=20.0, limit_s=120.0))
    assert line.split() == ["candidate", "agent", "20.0", "s,", "100", "s", "left", "3", "turns,", "210", "tokens"]


def test_without_a_terminal_steps_are_plain_lines_without_colour() -> None:
    console = Console(file=StringIO(), force_terminal=False, width=40)
    with Progress(console) as show:
        show(Event(Arm.BASELINE, Step.AGENT, "begins", limit_s=120.0))
        show(Event(Arm.BASELINE, Step.AGENT, turns=1, tokens=5, elapsed_s=0.5, limit_s=120.0))
        show(Event(Arm.BASELINE, Step.AGENT, "ends", turns=1, tokens=5, elapsed_s=1.0, limit_s=120.0))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "baseline agent ... (limit 120 s)",
        "baseline agent 1.0 s",
    ]
    assert "\x1b" not in console.file.getvalue()


def test_preparations_are_shown_with_their_own_words() -> None:
    assert describe(Event(None, None, "building llama-server: 42 %", elapsed_s=61.0)) == (
        "building llama-server: 42 % (61 s)"
    )


def test_in_a_suite_only_what_lasts_is_a_line() -> None:
    console = Console(file=StringIO(), force_terminal=False, width=40)
    with Progress(console) as show:
        show.every_step = False
        show.say("pair 1 of 8 is done")
        show(Event(Arm.BASELINE, Step.SERVER, "ends", elapsed_s=1.0))
        show(Event(None, None, "something was tidied up", lasting=True))
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines() == ["pair 1 of 8 is done", "something was tidied up"]


def test_on_a_terminal_the_headline_stands_above_the_step() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=60)
    with Progress(console) as show:
        show.headline = "3 of 8 pairs done"
        show(Event(Arm.BASELINE, Step.AGENT, turns=1, tokens=5, elapsed_s=0.5, limit_s=120.0))
    assert isinstance(console.file, StringIO)
    assert "3 of 8 pairs done" in console.file.getvalue()
