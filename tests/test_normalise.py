"""What the named rules take out of a text, and what they must leave."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_ab.divergence.normalise import CALL_IDS, RULES, about, explaining, normalise, with_mapped_call_ids
from agent_ab.model import Json

relaxed = settings(max_examples=50)

EQUAL_BUT_FOR = [
    ("durations", "Ran 18 tests in 0.114s\n\nOK", "Ran 18 tests in 0.215s\n\nOK"),
    ("durations", "==== 18 passed in 9.99s ====", "=== 18 passed in 10.01s ==="),
    ("durations", "real\t0m1.234s", "real\t0m1.5s"),
    ("durations", "real 0.03", "real 0.11"),
    ("durations", "0.00123 usec per loop", "0.2 usec per loop"),
    ("durations", '{"duration_s": 0.5}', '{"duration_s": 0.61}'),
    ("times", "-rw-r--r-- 1 agent agent 12 Nov 30 17:20 a.py", "-rw-r--r-- 1 agent agent 12 Nov 30 17:21 a.py"),
    ("times", "Mon Nov 30 17:20:19 UTC 2026", "Tue Dec  1 00:00:03 UTC 2026"),
    ("times", "Date:   Mon Nov 30 17:20:19 2026 +0000", "Date:   Mon Nov 30 17:20:20 2026 +0000"),
    ("times", "at 2026-11-30T17:20:19.120+00:00", "at 2026-12-01T00:00:00.004+00:00"),
    ("times", "Mon, 30 Nov 2026 17:20:19 GMT", "Mon, 30 Nov 2026 17:21:00 GMT"),
    ("times", " 17:20:02 up", " 17:21:59 up"),
    ("dates", "Today's date: Mon Nov 30 2026", "Today's date: Tue Dec 01 2026"),
    ("dates", "since 2026-11-30.", "since 2026-12-01."),
    ("dates", "-rw-r--r-- 1 a a 1 Mar  1  2025 a", "-rw-r--r-- 1 a a 1 Mar 11  2025 a"),
    ("epochs", "1796050819", "1796050820"),
    ("epochs", "at 1796050819123 ms", "at 1796050820001 ms"),
    ("pids", "[1] 1234", "[1] 99"),
    ("pids", "killed process 1234", "killed process 77"),
    ("pids", "   1234 pts/0    00", "     77 pts/0    00"),
    ("temporary-paths", "no /tmp/tmpa1b2c3d4/x.db", "no /tmp/tmpz9y8x7w6/x.db"),
    ("temporary-paths", "tmpa1b2c3d4", "tmpz9y8x7w6"),
    ("addresses", "<Foo object at 0x7f12ab34cd56>", "<Foo object at 0x7fffffffcd56>"),
    ("generated-ids", "ses_01k2aaaaaaaabbbb", "ses_01k2aaaaaaaacccc"),
    ("generated-ids", "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("ports", "listening on http://127.0.0.1:34567", "listening on http://127.0.0.1:41111"),
    ("line-order", "b.py\na.py\n[exit status 0]", "a.py\nb.py\n[exit status 0]"),
]


@pytest.mark.parametrize(("rule", "left", "right"), EQUAL_BUT_FOR)
def test_one_rule_explains_what_no_two_runs_share(rule: str, left: str, right: str) -> None:
    assert explaining(left, right) == (rule,)
    assert explaining(right, left) == (rule,)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Ran 18 tests in 0.1s\n\nOK", "Ran 18 tests in 0.1s\n\nFAILED (failures=1)"),
        ("Ran 18 tests in 0.1s", "Ran 19 tests in 0.2s"),
        ("-rw-r--r-- 1 a a 12 Nov 30 17:20 a.py", "-rwxr-xr-x 1 a a 12 Nov 30 17:20 a.py"),
        ("-rw-r--r-- 1 a a 12 Nov 30 17:20 a.py", "-rw-r--r-- 1 a a 13 Nov 30 17:20 a.py"),
        ("balance 1200", "balance 1300"),
        ("[exit status 0]", "[exit status 1]"),
        ("wallet/a.py:12: error", "wallet/a.py:13: error"),
        ("wallet/a.py:12:30 x", "wallet/a.py:12:31 x"),
        ("one\ntwo", "one\ntwo\ntwo"),
        ("", "x"),
    ],
)
def test_no_rule_explains_what_matters(left: str, right: str) -> None:
    assert explaining(left, right) == ()


def test_the_fewest_rules_are_named() -> None:
    left = "started Nov 30 17:20, pid 12, took 0.1s"
    right = "started Nov 30 17:21, pid 13, took 0.1s"
    assert explaining(left, right) == ("times", "pids")
    assert about(explaining(left, right)) == "a time and a process id"


def test_an_order_of_lines_is_explained_in_a_tools_output_only() -> None:
    assert explaining("b\na", "a\nb", result=False) == ()


def test_a_text_without_anything_to_take_out_stays_as_it_is() -> None:
    text = "-rw-r-----   two  blanks\n====\n----------"
    assert normalise(text, [rule for rule in RULES if not rule.results_only]) == text


@relaxed
@given(st.text(max_size=200))
def test_a_text_needs_no_rule_to_equal_itself(text: str) -> None:
    assert explaining(text, text) == ()
    normalise(text)


def test_rules_have_names_of_their_own() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert CALL_IDS not in names


def with_ids(*ids: str, answered: tuple[str, ...] = ()) -> Json:
    calls = [{"id": name, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for name in ids]
    results = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in answered or ids]
    return {"messages": [{"role": "assistant", "content": "", "tool_calls": calls}, *results]}


def test_call_ids_count_by_their_order_of_appearance() -> None:
    assert with_mapped_call_ids(with_ids("zzlJ", "Qm3x")) == with_mapped_call_ids(with_ids("a", "b"))
    assert with_mapped_call_ids(with_ids("a"))["messages"][1]["tool_call_id"] == "<call 1>"


def test_answers_to_calls_in_another_order_stay_a_difference() -> None:
    swapped = with_ids("a", "b", answered=("b", "a"))
    assert with_mapped_call_ids(swapped) != with_mapped_call_ids(with_ids("a", "b"))


@pytest.mark.parametrize("request_", [None, [], {}, {"messages": None}, {"messages": ["x", {"tool_calls": [1, {}]}]}])
def test_a_request_of_another_shape_is_left_alone(request_: Json) -> None:
    assert with_mapped_call_ids(request_) == request_
