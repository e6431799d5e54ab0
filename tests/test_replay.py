from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from agent_ab.errors import ApparatusError
from agent_ab.judge.case import Said
from agent_ab.lossless.replay import replay
from tests.fakes import verbose_server as fake


@pytest.fixture
def server() -> Iterator[fake.Server]:
    with fake.serving() as running:
        yield running


@pytest.fixture
def client(server: fake.Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as made:
        yield made


def asking(said: str = "hello", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": said}], "stream": True, "max_tokens": 9, **more}


def test_a_reply_comes_with_the_tokens_the_prompt_and_the_sampler_that_the_server_tells(client: httpx.Client) -> None:
    (found,) = replay(client, [("a", asking())])
    assert found.id == "a" and found.raw is not None
    assert (found.raw.prompt, found.raw.prompt_tokens, found.raw.tokens) == ("<go>hi", 4, (11, 12, 2))
    assert found.raw.said == Said((11, 12, 2), True)
    e = found.exchange
    assert (e.content, e.reasoning, e.finish_reason, e.status, e.error) == ("one two", "hm", "stop", 200, None)
    assert e.timings and (e.timings.draft_n, e.timings.draft_n_accepted) == (2, 1)
    assert e.usage == {"prompt_tokens": 4, "completion_tokens": 3}


def test_the_request_is_sent_as_it_was_recorded_but_not_as_a_stream(client: httpx.Client, server: fake.Server) -> None:
    replay(client, [("a", asking(seed=7, temperature=0.5))])
    ((path, body),) = server.seen
    assert path == "/v1/chat/completions" and body["stream"] is False
    assert (body["seed"], body["temperature"], body["verbose"], body["return_tokens"]) == (7, 0.5, True, True)


def test_replies_are_in_order_and_every_one_is_told(client: httpx.Client) -> None:
    told: list[int] = []
    found = replay(client, [(name, asking(name)) for name in ("x", "y", "z")], told.append)
    assert [reply.id for reply in found] == ["x", "y", "z"] and told == [1, 2, 3]
    assert [reply.exchange.index for reply in found] == [0, 1, 2]
    assert found[0].exchange.server_sha256 != found[1].exchange.server_sha256


def test_a_reply_that_the_server_cannot_parse_is_asked_for_again_without_the_parser(
    client: httpx.Client, server: fake.Server
) -> None:
    (found,) = replay(client, [("a", asking("error-500", seed=9))])
    assert found.exchange.status == 500 and found.exchange.error == fake.MISMATCH
    assert found.raw is not None and found.raw.tokens == (7, 8)
    path, body = server.seen[-1]
    assert path == "/completion" and body["prompt"] == "<go>hi"
    assert (body["seed"], body["n_predict"], body["grammar"], body["grammar_type"]) == (
        9,
        9,
        "root ::= x",
        "tool_calls",
    )


def test_a_refusal_is_an_answer_too(client: httpx.Client) -> None:
    (found,) = replay(client, [("a", asking("error-400"))])
    assert (found.exchange.status, found.exchange.error, found.raw) == (400, "too long", None)


def test_a_server_without_inner_facts_gives_its_text(client: httpx.Client) -> None:
    (found,) = replay(client, [("a", asking("silent"))])
    assert found.exchange.content == "one two" and found.raw is None


def test_an_answer_that_is_no_answer_is_told_as_an_error(client: httpx.Client) -> None:
    (found,) = replay(client, [("a", asking("html"))])
    assert found.exchange.error == "the answer holds no choice"


def test_a_server_that_does_not_answer_is_broken_apparatus(client: httpx.Client) -> None:
    with pytest.raises(ApparatusError, match="does not answer b"):
        replay(client, [("a", asking()), ("b", asking("drop"))])
