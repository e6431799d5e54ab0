"""Where two replies to equal requests part, and who did it."""

from dataclasses import replace
from typing import Any

import pytest

from agent_ab.divergence.reply_diff import (
    Blame,
    End,
    Token,
    compare,
    end_of,
    ending,
    parts,
    recorded,
    texts,
    tokens_from_reply,
)
from agent_ab.model import Exchange, Json
from tests.builders import exchange, timings
from tests.conversations import TURNS, conversation, words

UNPARSED = "The model produced output that does not match the expected peg-native format"


def call(name: str, arguments: str, call_id: str = "x") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def reply(content: str = "one two three", **changes: Any) -> Exchange:
    return exchange(0, content=content, **changes)


def broke(error: str, **changes: Any) -> Exchange:
    return reply(**{"finish_reason": None, "error": error, **changes})


def test_equal_replies_do_not_part_whatever_they_cost() -> None:
    left = reply(tool_calls=(call("bash", "{}", "one"),))
    right = reply(
        tool_calls=(call("bash", "{}", "two"),),
        timings=timings(predicted_ms=9e3, draft_n=4),
        usage={"total_tokens": 7},
        started_s=99.0,
        streamed=False,
    )
    assert compare(left, right, words) is None


def test_the_first_token_of_each_is_found() -> None:
    found = compare(reply("one two three"), reply("one two four"), words)
    assert found is not None
    assert (found.blame, found.path, found.character, found.token) == (Blame.MODEL, "content", 8, 2)
    assert (found.left.continuation, found.right.continuation) == ("three", "four")
    assert [side.token.piece for side in (found.left, found.right) if side.token] == ["three", "four"]


def test_a_continuation_begins_with_the_differing_token_and_not_inside_it() -> None:
    found = compare(reply("one thirty"), reply("one three"), words)
    assert found is not None
    assert (found.character, found.token, found.left.continuation) == (6, 1, "thirty")


def test_without_tokens_the_character_tells_the_place() -> None:
    for tokenize in (None, recorded({}), recorded({"one two": words("one two")})):
        found = compare(reply("one two"), reply("one ten"), tokenize)
        assert found is not None
        assert (found.character, found.token, found.left) == (
            5,
            None,
            replace(found.left, continuation="wo", token=None),
        )


def test_tokens_are_counted_through_all_parts_of_a_reply() -> None:
    left = reply("c c", reasoning="r r r", tool_calls=(call("bash", "a b"),))
    right = reply("c c", reasoning="r r r", tool_calls=(call("bash", "a c"),))
    found = compare(left, right, words)
    assert found is not None
    assert (found.path, found.character, found.token) == ("tool_calls[0].function.arguments", 14, 7)


@pytest.mark.parametrize(
    ("left", "right", "path"),
    [
        ({"content": "a", "reasoning": "x"}, {"content": "a"}, "reasoning"),
        ({"tool_calls": (call("bash", "{}"),)}, {"tool_calls": (call("read", "{}"),)}, "tool_calls[0].function.name"),
        ({"tool_calls": (call("bash", "{}"),)}, {"tool_calls": ()}, "tool_calls[0].function.name"),
        (
            {"tool_calls": (call("bash", "{}"), call("bash", "{}"))},
            {"tool_calls": (call("bash", "{}"),)},
            "tool_calls[1].function.name",
        ),
        ({"finish_reason": "stop"}, {"finish_reason": "length"}, "finish_reason"),
    ],
)
def test_every_part_of_a_reply_counts(left: dict[str, Any], right: dict[str, Any], path: str) -> None:
    found = compare(reply(**left), reply(**right), words)
    assert found is not None
    assert (found.blame, found.path) == (Blame.MODEL, path)


def test_a_later_part_is_shown_with_its_path() -> None:
    found = compare(reply("a"), reply("a", tool_calls=(call("bash", "{}"),)), words)
    assert found is not None
    assert found.right.continuation == "bash\n[tool_calls[0].function.arguments] {}"


@pytest.mark.parametrize(
    ("other", "blame"),
    [
        (broke(UNPARSED, content="one two"), Blame.MODEL),
        (broke(UNPARSED), Blame.MODEL),
        (broke("got exception: Unexpected empty grammar stack after accepting piece: x", content="one"), Blame.MODEL),
        (broke(UNPARSED, content="", status=500), Blame.MODEL),
        (broke("client closed", content="one"), Blame.CUT),
        (broke("proxy stopped"), Blame.CUT),
        (broke("the stream ended without a finish reason", content="one"), Blame.SERVER),
        (broke("server disconnected", content="", status=None), Blame.SERVER),
        (broke("the request exceeds the available context size", content="", status=400), Blame.SERVER),
        (broke("Loading model", content="", status=503), Blame.SERVER),
    ],
)
def test_an_error_is_blamed_on_who_brought_it_about(other: Exchange, blame: Blame) -> None:
    for found in (compare(reply(), other, words), compare(other, reply(), words)):
        assert found is not None
        assert found.blame is blame


@pytest.mark.parametrize("error", ["client closed", "server disconnected", UNPARSED])
def test_a_text_that_parted_before_an_error_is_the_models(error: str) -> None:
    found = compare(reply(), broke(error, content="one or"), words)
    assert found is not None
    assert (found.blame, found.token) == (Blame.MODEL, 1)


def test_an_error_that_the_output_caused_stands_at_the_tokens_before_it() -> None:
    found = compare(reply(), broke(UNPARSED, content="one two "), words)
    assert found is not None
    assert (found.token, found.right.token, found.right.end) == (2, None, UNPARSED)
    assert found.left.token is not None


def test_the_same_error_in_both_is_no_difference_but_two_broken_connections_are() -> None:
    assert compare(broke(UNPARSED), broke(UNPARSED)) is None
    assert compare(broke("client closed"), broke("client closed")) is None
    refusal = broke("exceeds the available context size", status=400)
    assert compare(refusal, refusal) is None
    found = compare(broke("server disconnected", status=None), broke("server disconnected", status=None))
    assert found is not None
    assert found.blame is Blame.SERVER


def test_ends_have_words() -> None:
    assert ending(reply()) == "stop"
    assert ending(broke("Loading model", status=503)) == "HTTP 503: Loading model"
    assert ending(reply(finish_reason=None, status=None)) == "no answer"
    assert end_of(reply(finish_reason=None, status=None)) is End.BROKEN


def test_what_has_to_be_tokenized_is_every_text_once() -> None:
    found = texts(conversation((TURNS[0], TURNS[0], TURNS[2])))
    assert found == ("I look.", "bash", '{"command": "ls -la"}', "Done.")
    assert parts(exchange(0, content="", tool_calls=(None, {"function": 3}))) == ()


def test_the_servers_tokens_are_read_with_their_bytes() -> None:
    read = tokens_from_reply({"tokens": [{"id": 1, "piece": "a"}, {"id": 2, "piece": [226, 130]}]})
    assert read == (Token(1, "a"), Token(2, "\ufffd"))
    assert recorded({})("") == ()
