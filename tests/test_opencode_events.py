"""OpenCode's output, line by line."""

import pytest

from agent_ab.agents.opencode_events import LEFT, Story
from tests.fakes import opencode

BASH = opencode.tool("bash", command="ls")


def told(*lines: str) -> Story:
    story = Story()
    for line in lines:
        story.take(line)
    return story


def test_a_run_that_calls_a_tool_and_then_says_that_it_is_done_is_completed() -> None:
    story = told(*opencode.step("tool-calls", BASH), *opencode.step("stop", opencode.text("Done.")), opencode.LOOP_LEFT)
    assert story.finished
    assert story.words(cut_off=False) == "completed in step 2"


def test_a_reply_that_used_up_its_budget_is_named_although_opencode_ends_as_if_done() -> None:
    story = told(*opencode.step("length", opencode.text("I begin and")))
    assert story.words(cut_off=False) == "ended as if done in step 1, whose reply had used up its response budget"


@pytest.mark.parametrize("inner", [(), (opencode.text(" \n"),)])
def test_an_empty_last_reply_is_named(inner: tuple[str, ...]) -> None:
    assert (
        told(*opencode.step("stop", *inner)).words(cut_off=False) == "ended as if done in step 1, whose reply was empty"
    )


def test_a_run_that_is_cut_off_names_the_tool_that_ran() -> None:
    story = told(*opencode.step("tool-calls", BASH), opencode.ASKED, opencode.allowed("bash", 'sleep 99 & echo "a"'))
    assert story.words(cut_off=True) == 'cut off in step 1 while its tool ran: bash "sleep 99 & echo \\"a\\""'
    story.take(BASH)
    assert story.words(cut_off=True) == "cut off in step 1"


def test_a_run_that_is_cut_off_before_its_first_reply_says_so() -> None:
    assert told(opencode.ASKED).words(cut_off=True) == "cut off before its first reply"
    assert told().words(cut_off=False) == "ended without a reply"


def test_the_error_of_the_last_step_is_told_and_one_that_was_overcome_is_not() -> None:
    assert (
        told(opencode.ASKED, opencode.failure("no\nroom")).words(cut_off=False)
        == "error before its first reply: no room"
    )
    assert "error in step 1: broke" in told(*opencode.step("unknown"), opencode.failure("broke")).words(cut_off=False)
    story = told(opencode.failure("broke"), *opencode.step("stop", opencode.text("Done.")))
    assert story.words(cut_off=False) == "completed in step 1"


@pytest.mark.parametrize("error", [None, "text", {}, {"name": "Aborted"}, {"name": "E", "data": None}])
def test_an_error_of_any_shape_is_told_in_one_line(error: object) -> None:
    assert told(opencode.event("error", error=error)).words(cut_off=False).startswith("error before its first reply: ")


def test_a_step_after_which_opencode_goes_on_is_not_finished() -> None:
    assert not told(*opencode.step("tool-calls", BASH)).finished
    assert not told(*opencode.step("unknown")).finished


def test_a_compaction_after_the_last_step_means_that_it_goes_on() -> None:
    story = told(*opencode.step("stop", opencode.text("Done.")), opencode.COMPACTED)
    assert not story.finished and story.compactions == 1
    story.take(opencode.step("stop")[-1])
    assert "the conversation was compacted 1 times" in story.words(cut_off=False)


def test_what_was_left_running_is_named_at_most_three_times() -> None:
    story = told(*opencode.step("stop", opencode.text("Done.")), *(f"{LEFT}sleep {n} " for n in range(5)))
    assert story.words(cut_off=False) == "completed in step 1; left running: sleep 0, sleep 1, sleep 2"


def test_a_hang_is_named() -> None:
    story = told(*opencode.step("stop", opencode.text("Done.")))
    assert story.words(cut_off=False, hung=True) == "completed in step 1; OpenCode did not exit by itself and was ended"


@pytest.mark.parametrize(
    "line", ["", "{", '{"type":', '{"type":"step_start"', '{"type":null}', "words", '{"type":"new"}']
)
def test_lines_that_are_no_event_change_nothing_that_is_told(line: str) -> None:
    assert told(line).words(cut_off=False) == "ended without a reply"


def test_only_signs_of_work_count_as_moves() -> None:
    story = told(*opencode.step("stop"))
    before = story.moves
    story.take(opencode.LOOP_LEFT)
    story.take('timestamp=1 level=INFO message="project copy refresh done"')
    assert story.moves == before
