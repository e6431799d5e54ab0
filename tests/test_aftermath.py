"""How two arms went on after they parted."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_ab.divergence.aftermath import (
    Aftermath,
    ToolCall,
    calls_of,
    edit_distance,
    follow,
    from_json,
    loops,
    runs_tests,
    to_json,
)
from agent_ab.model import AgentEnd, AgentRun, Arm, Exchange, ExchangeLog, Json, Patch
from tests.builders import attempt, exchange
from tests.conversations import golden

relaxed = settings(max_examples=50)


def call(name: str, arguments: Json) -> Json:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": text}}


def turn(index: int, *calls: Json, **changes: Any) -> Exchange:
    reason = "tool_calls" if calls else "stop"
    return exchange(index, **{"tool_calls": calls, "content": "", "finish_reason": reason, **changes})


def log(*turns: Exchange) -> ExchangeLog:
    return ExchangeLog(turns, ())


def followed(left: ExchangeLog, right: ExchangeLog, common: int = 0) -> Aftermath:
    return follow(attempt(Arm.BASELINE, log=left), attempt(Arm.CANDIDATE, log=right), common)


def test_a_course_counts_from_the_first_exchange_that_is_not_equal() -> None:
    left = log(
        turn(0, call("bash", {"command": "ls"})),
        turn(1, call("edit", {"path": "a.py"}), call("write", {"filePath": "/workspace/b.py"})),
        turn(2, call("bash", {"command": "python3 -m pytest -q"}), finish_reason="length"),
        turn(3, content="Done."),
    )
    found = followed(left, log(turn(0, call("bash", {"command": "ls"})), turn(1, content="Done.")), 1)
    course = found.baseline
    assert (course.turns, course.turns_in_all) == (3, 4)
    assert course.tools == ("edit", "write", "bash")
    assert course.touched == ("a.py", "b.py")
    assert course.changed == ("wallet/transfers.py",)
    assert course.test_runs == 1
    assert course.finish_reasons == {"length": 1, "stop": 1, "tool_calls": 1}
    assert (course.budget_stops, course.malformed_calls, course.repeated_turns) == (1, 0, 1)
    assert (found.candidate.turns, found.candidate.tools, found.tool_distance) == (1, (), 3)


def test_malformed_calls_are_those_whose_arguments_are_no_object_and_those_that_the_server_could_not_parse() -> None:
    unparsed = "The model produced output that does not match the expected peg-native format"
    left = log(
        turn(0, call("bash", "{"), call("bash", "[]"), call("bash", "")),
        turn(1, call("bash", "{"), finish_reason=None, error=unparsed),
        turn(2, call("bash", "{"), finish_reason=None, error="client closed"),
    )
    assert followed(left, log()).baseline.malformed_calls == 3


def test_turns_that_ask_for_the_same_again_are_a_run() -> None:
    same = call("bash", {"command": "ls"})
    left = log(turn(0, call("read", {"path": "a"})), turn(1, same), turn(2, same), turn(3, same), turn(4, content="x"))
    assert followed(left, log(turn(0, content="x"), turn(1, content="y"))).baseline.repeated_turns == 3
    assert followed(log(), log(turn(0, content="x"), turn(1, content="y"))).candidate.repeated_turns == 1
    assert followed(log(), log()).baseline.repeated_turns == 0


def test_an_agent_that_did_not_run_has_an_end_too() -> None:
    left = attempt(Arm.BASELINE, log=None, agent=None, patch=None, invalid_reason="server: died")
    right = attempt(
        Arm.CANDIDATE, log=log(), agent=AgentRun(AgentEnd.TIMEOUT, None, 9.0, 9.0), patch=Patch("", (), False)
    )
    found = follow(left, right, 0)
    assert (found.baseline.ended, found.candidate.ended) == ("server: died", "timeout")
    assert found.baseline.changed == ()


def test_a_json_action_is_a_call_and_other_json_is_not() -> None:
    action = exchange(0, content='{"tool": "edit", "path": "a.py", "old": "x", "new": "y"}')
    assert calls_of(action) == (
        ToolCall("edit", {"path": "a.py", "old": "x", "new": "y"}, '{"path": "a.py", "old": "x", "new": "y"}'),
    )
    assert calls_of(exchange(0, content='{"answer": 42}')) == ()
    assert calls_of(exchange(0, content="plain")) == ()


def test_calls_of_another_shape_are_calls_without_a_name() -> None:
    assert calls_of(exchange(0, tool_calls=(None, {"function": 1}))) == (ToolCall("", {}, ""),) * 2


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python3 -m unittest discover -s tests", True),
        ("cd x && pytest -q", True),
        ("make test", True),
        ("cat tests/test_a.py", False),
        ("echo contest", False),
    ],
)
def test_commands_that_run_tests_are_told_by_their_words(command: str, expected: bool) -> None:
    assert runs_tests(ToolCall("bash", {"command": command}, "")) is expected


def test_other_calls_run_no_tests() -> None:
    assert not runs_tests(ToolCall("read", {"path": "pytest"}, ""))
    assert not runs_tests(ToolCall("bash", None, "{"))


# Kitten and sitting are the textbook's pair: two replacements and an insertion.
@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "abc", 0), ("abc", "", 3), ("flaw", "lawn", 2)],
)
def test_edit_distances_agree_with_hand_worked_ones(left: str, right: str, distance: int) -> None:
    assert edit_distance(left, right) == distance


sequences = st.lists(st.sampled_from(["bash", "edit", "read"]), max_size=8)


@relaxed
@given(sequences, sequences, sequences)
def test_the_edit_distance_is_a_distance(a: list[str], b: list[str], c: list[str]) -> None:
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, b) == edit_distance(b, a)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Let me look again. " * 10, True),
        ("Well. " + "I will fix it now.\n\n" * 6, True),
        ("a" * 64, True),
        ("Let me look again. " * 2, False),
        ("Then " + ", ".join(f"step {i}" for i in range(40)), False),
        (" " * 100, False),
        ("ha ha ha ha", False),
        ("", False),
    ],
)
def test_a_reply_that_ends_in_one_passage_over_and_over_loops(text: str, expected: bool) -> None:
    assert loops(text) is expected


def test_the_real_known_bad_candidate_repeats_itself_until_it_gives_up() -> None:
    found = followed(*golden("known-bad"), 1)
    assert (found.candidate.malformed_calls, found.candidate.repeated_turns) == (3, 3)
    assert found.candidate.finish_reasons == {"error": 3}
    assert found.candidate.tools == ("read", "read", "read")
    assert from_json(json.loads(json.dumps(to_json(found)))) == found
