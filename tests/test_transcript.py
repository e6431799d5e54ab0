"""Exchanges as turns that a person can read."""

from agent_ab.divergence.transcript import Said, turns
from agent_ab.model import ExchangeLog
from tests.conversations import TURNS, asked, conversation, golden


def test_a_turn_shows_what_is_new_and_not_the_models_own_words_again() -> None:
    found = turns(conversation())
    assert [turn.exchange for turn in found] == [0, 1, 2]
    assert [said.role for said in found[0].asked] == ["system", "user"]
    assert found[1].asked == (Said("tool", TURNS[0].prints),)
    assert (found[1].content, found[1].calls[0].name, found[1].end) == ("I test.", "bash", "tool_calls")
    assert (found[2].content, found[2].calls, found[2].end) == ("Done.", (), "stop")


def test_turns_begin_where_they_are_asked_to_and_still_show_only_what_is_new() -> None:
    assert turns(conversation(), 1) == turns(conversation())[1:]
    assert turns(conversation(), 9) == ()


def test_a_json_action_is_shown_as_the_call_that_it_is() -> None:
    found = turns(golden("cpu-demo")[0])[0]
    assert (found.content, found.calls[0].name, found.calls[0].arguments) == ("", "read", {"path": "README.md"})


def test_messages_of_other_shapes_are_shown_as_far_as_they_are_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": "two"}]
    messages = [{"role": "user", "content": parts}, {"role": "user"}, {"role": "user", "content": 3}, "x"]
    found = turns(ExchangeLog((asked({"messages": messages}), asked({}, 1)), ()))
    assert [said.text for said in found[0].asked] == ["one\ntwo", "", "3"]
    assert found[1].asked == ()
