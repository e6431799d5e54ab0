"""A server's own cut of a text, however it spells its tokens."""

import httpx
import pytest

from agent_ab.model import Json
from agent_ab.server import tokens


def client(reply: Json, status: int = 200) -> httpx.Client:
    return httpx.Client(
        base_url="http://local", transport=httpx.MockTransport(lambda _: httpx.Response(status, json=reply))
    )


@pytest.mark.parametrize(
    ("spelt", "text", "cut"),
    [
        (["hello", "\u0120world"], "hello world", ["hello", " world"]),
        (
            ["First I look", " at what is ", "there.\n"],
            "First I look at what is there.\n",
            ["First I look", " at what is ", "there.\n"],
        ),
        (["\u2581Hi", "\u2581there"], " Hi there", [" Hi", " there"]),
        (["\u00c3", "\u00a9"], "\u00e9", ["\ufffd", "\ufffd"]),
        ([], "", []),
    ],
    ids=["byte-level", "as it reads", "sentencepiece", "half a character", "nothing"],
)
def test_a_token_is_the_part_of_the_text_that_it_stands_for(spelt: list[str], text: str, cut: list[str]) -> None:
    assert tokens.pieces(spelt, text) == cut


@pytest.mark.parametrize("spelt", [["other"], ["hello"], ["hello", " world", "!"], [""]])
def test_tokens_that_do_not_come_to_the_text_are_refused(spelt: list[str]) -> None:
    assert tokens.pieces(spelt, "hello world") is None


def test_vllms_answer_becomes_llama_servers() -> None:
    with client({"count": 2, "tokens": [296, 302], "token_strs": ["hello", "\u0120world"]}) as asked:
        assert tokens.from_vllm(asked, "hello world", "local") == {
            "tokens": [{"id": 296, "piece": "hello"}, {"id": 302, "piece": " world"}]
        }


def test_a_server_without_the_question_has_no_cut() -> None:
    for reply, status in (({"error": "no"}, 404), ({"tokens": [1, 2]}, 200), ([], 200)):
        with client(reply, status) as asked:
            assert tokens.from_vllm(asked, "hello", "local") is None
            assert tokens.from_llama(asked, "hello") is None


def test_llama_servers_answer_is_taken_as_it_is() -> None:
    reply = {"tokens": [{"id": 1, "piece": "hello"}]}
    with client(reply) as asked:
        assert tokens.from_llama(asked, "hello") == reply
