from typing import Any

from agent_ab.judge.raw_text import CALL_ENDS, Style, guess, styles, whole
from tests.builders import exchange

PLAIN = Style("", "", "", "")


def call(name: str = "read", arguments: str = '{"path": "a"}') -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def spans(text: str, recorded: tuple[tuple[int, int], ...]) -> list[str]:
    return [text.encode()[begin:end].decode() for begin, end in recorded]


def test_a_plain_reply_is_its_text() -> None:
    found = guess(exchange(0, content="héllo"), PLAIN)
    assert (found.text, found.recorded) == ("héllo", ((0, 6),))
    assert guess(exchange(0, content=""), PLAIN).recorded == ()


def test_every_part_lies_between_the_marks_of_the_style() -> None:
    reply = exchange(
        0, reasoning="hm", content="Look.", tool_calls=(call(), call("bash", "{}")), finish_reason="tool_calls"
    )
    found = guess(reply, Style("", "<think>\n", "\n</think>\n\n", "\n"))
    assert found.text == (
        '<think>\nhm\n</think>\n\nLook.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>'
    )
    assert spans(found.text, found.recorded) == ["hm", "Look.", "read", '{"path": "a"}', "bash", "{}"]


def test_a_call_that_was_cut_off_has_no_end() -> None:
    cut = exchange(0, content="", tool_calls=(call(arguments='{"pa'),), finish_reason=None, error="client closed")
    assert guess(cut, PLAIN).text.endswith('"arguments": {"pa')
    named = exchange(0, content="", tool_calls=(call(arguments=""),), finish_reason="length")
    assert guess(named, PLAIN).text.endswith('{"name": "read')
    assert not whole(cut) and not whole(named)


def test_only_guesses_that_matter_are_made_and_the_plain_one_comes_first() -> None:
    assert styles(exchange(0))[0] == Style("", "", "\n</think>\n\n", "")
    assert len(styles(exchange(0))) == 7
    thinking = styles(exchange(0, reasoning="hm", content=""))
    assert {style.thought for style in thinking} == {"", "<think>\n", "<think>"} and len(thinking) == 3
    calling = styles(exchange(0, tool_calls=(call(),)))
    assert {style.before_calls for style in calling} == {"", "\n", "\n\n"}


def test_a_whole_call_is_closed() -> None:
    reply = exchange(0, content="", tool_calls=(call(),), finish_reason="tool_calls")
    assert whole(reply) and guess(reply, PLAIN).text.endswith(CALL_ENDS)
