"""Where two requests part, what the likely cause is, and which requests are no turn of the conversation."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_ab.divergence.request_diff import (
    Leaf,
    Oddity,
    as_sent,
    differences,
    explain_first,
    first_difference,
    odd_requests,
)
from agent_ab.model import ExchangeLog, Json
from tests.conversations import PINNED, SYSTEM, TOOLS, asked, conversation

relaxed = settings(max_examples=50)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def leaves(left: Json, right: Json) -> list[tuple[str, Json, Json]]:
    return [(leaf.path, leaf.left, leaf.right) for leaf in differences(left, right)]


def test_every_difference_is_named_by_its_path_with_both_values() -> None:
    assert leaves({"a": [1, {"b": 2}], "c": 1}, {"a": [1, {"b": 3}]}) == [("$.a[1].b", 2, 3), ("$.c", 1, None)]
    assert leaves([1, 2], [1]) == [("$[1]", 2, None)]
    assert leaves(1, True) == [("$", 1, True)]
    assert leaves({"a": 1.0}, {"a": 1}) == [("$.a", 1.0, 1)]


def test_the_order_of_members_is_a_difference_for_a_model_reads_them() -> None:
    assert leaves({"t": {"a": 1, "b": 2}}, {"t": {"b": 2, "a": 1}}) == [("$.t", ["a", "b"], ["b", "a"])]


@relaxed
@given(values, values)
def test_swapped_values_give_swapped_differences(left: Json, right: Json) -> None:
    assert list(differences(left, left)) == []
    there = {(leaf.path, json.dumps(leaf.left), json.dumps(leaf.right)) for leaf in differences(left, right)}
    back = {(leaf.path, json.dumps(leaf.right), json.dumps(leaf.left)) for leaf in differences(right, left)}
    assert there == back


@relaxed
@given(st.text(), st.text(), st.text())
def test_the_first_differing_character_is_found(start: str, left: str, right: str) -> None:
    at = first_difference(start + left, start + right)
    assert (start + left)[:at] == (start + right)[:at]
    assert (start + left)[at : at + 1] != (start + right)[at : at + 1] or start + left == start + right


def test_what_the_proxy_pinned_is_no_part_of_what_the_agent_sent() -> None:
    request = {"messages": [], "seed": 1, "stream_options": {"include_usage": True}}
    assert as_sent(request, {"seed": 1, "stream_options.include_usage": True}) == {"messages": []}
    kept = {"stream_options": {"include_usage": True, "other": 1}}
    assert as_sent(kept, {"stream_options.include_usage": True}) == {"stream_options": {"other": 1}}
    assert as_sent(None, {}) is None


def body(**changes: Any) -> Json:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Repair it."}]
    return {"model": "local", "messages": messages, "tools": TOOLS, "max_tokens": 8192, **changes}


def prompted(system: str) -> Json:
    return body(messages=[{"role": "system", "content": system}, {"role": "user", "content": "Repair it."}])


@pytest.mark.parametrize(
    ("other", "path", "cause"),
    [
        (prompted(SYSTEM.replace("Mon Nov 30", "Tue Dec 01")), "$.messages[0].content", "the date rolled over"),
        (prompted(SYSTEM.replace("/workspace", "/workspace2")), "$.messages[0].content", "a path"),
        (prompted(SYSTEM + "\nsession ses_01k2aaaaaaaabbbb"), "$.messages[0].content", "another text"),
        (body(max_tokens=4096), "$.max_tokens", "the response budget"),
        (body(tools=TOOLS[::-1]), "$.tools[0].function.name", "the order of the tools"),
        (body(tools=TOOLS[:1]), "$.tools[1]", "other tools are offered: read"),
        (body(tools=None), "$.tools", "a side request came first"),
        (body(model="other"), "$.model", "the model's name"),
        (body(user="x"), "$.user", "the setting 'user'"),
        (body(messages=body()["messages"][:1]), "$.messages[1]", "the number of messages"),
    ],
)
def test_the_cause_of_another_first_request_is_said_in_words(other: Json, path: str, cause: str) -> None:
    found = explain_first(body(), other)
    assert found is not None
    assert (found.path, cause in found.cause) == (path, True), found.cause


def test_a_session_id_in_a_first_request_is_named() -> None:
    found = explain_first(prompted("session ses_01k2aaaaaaaabbbb"), prompted("session ses_01k2aaaaaaaacccc"))
    assert found is not None
    assert (found.cause, found.rules, found.source) == ("a generated id", ("generated-ids",), "the system prompt")


def test_a_title_request_that_won_the_race_is_named() -> None:
    title = {"model": "local", "messages": [{"role": "system", "content": "You are a title generator."}]}
    for found in (explain_first(title, body()), explain_first(body(), title)):
        assert found is not None
        assert found.cause == "a side request came first: one of the two offers no tools and asks for a title"


def test_equal_first_requests_have_no_difference() -> None:
    assert explain_first(body(), body()) is None


def test_a_leaf_at_the_top_is_the_whole_request() -> None:
    assert Leaf((), 1, 2).path == "$"
    found = explain_first([1], {"a": 1})
    assert found is not None
    assert (found.path, found.cause) == ("$", "the shape of the request")


def test_a_conversation_has_no_odd_requests() -> None:
    assert odd_requests(conversation()) == ()
    assert odd_requests(ExchangeLog((), ())) == ()


def test_a_system_prompt_that_tells_the_time_is_still_the_same() -> None:
    log = conversation()
    later = conversation(system=SYSTEM.replace("Mon Nov 30", "Tue Dec 01")).exchanges[2]
    assert odd_requests(ExchangeLog((*log.exchanges[:2], later), ())) == ()


def test_a_title_request_is_found_beside_the_conversation() -> None:
    messages = [{"role": "system", "content": "You write a short title."}, {"role": "user", "content": "Repair it."}]
    title = asked({"model": "local", "messages": messages}, 0, concurrent=True)
    turns = [replace(e, index=e.index + 1) for e in conversation().exchanges]
    found = odd_requests(ExchangeLog((title, *turns), ()))
    assert [(odd.exchange, odd.oddity) for odd in found] == [(0, Oddity.CONCURRENT), (0, Oddity.SIDE)]
    assert found[1].detail == "it offers no tools and asks for a title"


def test_another_agents_request_is_found_by_its_system_prompt() -> None:
    messages = [{"role": "system", "content": "You explore."}, {"role": "user", "content": "Look."}]
    other = asked({"model": "local", "messages": messages, "tools": TOOLS}, 3)
    found = odd_requests(ExchangeLog((*conversation().exchanges, other), ()))
    assert [(odd.exchange, odd.detail) for odd in found] == [(3, "it has another system prompt")]


def test_an_agent_that_never_offers_tools_makes_no_side_requests() -> None:
    bodies = [
        {"messages": [{"role": "system", "content": "s"}] + [{"role": "user", "content": "u"}] * n} for n in (1, 3)
    ]
    log = ExchangeLog(tuple(asked(b, i) for i, b in enumerate(bodies)), ())
    assert odd_requests(log) == ()
    assert log.exchanges[0].pinned == PINNED
