"""One request asked and measured, on a real small server that answers in every way."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from agent_ab.bench.client import Client
from agent_ab.bench.stats import Reply
from agent_ab.model import Drafting
from agent_ab.requests import Recorded
from tests.fakes import model_server as fake


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Return a client of a running model server."""
    with fake.Server(0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with Client(f"http://127.0.0.1:{server.server_address[1]}", "key") as asking:
            yield asking
        server.shutdown()
        thread.join()


def ask(client: Client, scenario: str) -> Reply:
    body = {"messages": [{"role": "user", "content": scenario}]}
    return client.play(Recorded("code-1", "code", body), body, "mtp-2", 3)


def test_a_reply_brings_the_servers_own_times_and_when_its_text_began(client: Client) -> None:
    reply = ask(client, "hello")
    assert (reply.method, reply.round, reply.request, reply.kind) == ("mtp-2", 3, "code-1", "code")
    assert (reply.prompt_n, reply.prompt_ms, reply.predicted_n, reply.predicted_ms) == (7, 12.5, 5, 50.0)
    assert reply.error == "" and reply.finish == "stop" and reply.drafting is None
    assert reply.ttft_s is not None and 0 < reply.ttft_s <= reply.wall_s


def test_equal_text_has_an_equal_digest_whatever_its_cut(client: Client) -> None:
    assert ask(client, "split:7").text_sha256 == ask(client, "hello").text_sha256
    assert ask(client, "reasoning").text_sha256 != ask(client, "hello").text_sha256


def test_a_server_without_counters_tells_its_drafts_in_the_reply(client: Client) -> None:
    assert ask(client, "tools").drafting == Drafting(drafts=0, drafted=6, accepted=4, accepted_at=())
    assert ask(client, "no-usage-chunk").drafting is not None


def test_vllms_metrics_are_its_times_and_its_drafts(client: Client) -> None:
    reply = ask(client, "vllm")
    assert (reply.prompt_n, reply.prompt_ms, reply.predicted_n, reply.predicted_ms) == (24, 33.5, 10, 130.0)
    assert reply.error == "" and reply.drafting == Drafting(drafts=0, drafted=15, accepted=10, accepted_at=())


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("http-400", "HTTP 400"),
        ("http-500", "HTTP 500"),
        ("error-midstream", "in the stream"),
        ("echo:hi", "no timings"),
        ("counts-wildly", "predicted_n is no number that can be"),
    ],
)
def test_a_reply_that_is_not_whole_says_why(client: Client, scenario: str, words: str) -> None:
    assert words in ask(client, scenario).error


def test_a_server_that_breaks_is_no_reply(client: Client) -> None:
    with pytest.raises(httpx.HTTPError):
        ask(client, "cut")
