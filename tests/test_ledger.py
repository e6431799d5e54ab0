"""Who is let through, what is counted, and the exact lines of the exchange log.

`python -m tests.test_ledger` prints the golden log: for a wanted change of the format, which also raises `FORMAT`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_ab import connection
from proxy.ledger import EVIDENCE_BYTES, FORMAT, Ledger, Passage, Redactor, Refusal, sha256
from proxy.pins import dumps
from proxy.wire import Reply
from tests.fakes import model_server as fake
from tests.test_pins import settings

GOLDEN = Path(__file__).parent / "golden" / "exchanges.jsonl"
CHAT = "/v1/chat/completions"
SECRET = 'hush "ü"'
keys = st.from_regex(connection.KEY, fullmatch=True)


def chat(content: str = "hello", **more: Any) -> bytes:
    return json.dumps({"model": "local", "messages": [{"role": "user", "content": content}], **more}).encode()


def ledger(**changes: Any) -> Ledger:
    return Ledger(settings(**changes), [SECRET, "key-of-the-server", ""])


def admit(ledger: Ledger, body: bytes, method: str = "POST", path: str = CHAT, encoding: str = "") -> Passage | Refusal:
    return ledger.admit(method, path, body, encoding, 1.0)


def passage(ledger: Ledger, body: bytes, method: str = "POST", path: str = CHAT) -> Passage:
    decision = admit(ledger, body, method, path)
    assert isinstance(decision, Passage)
    return decision


def refusal(ledger: Ledger, body: bytes, method: str = "POST", path: str = CHAT, encoding: str = "") -> Refusal:
    decision = admit(ledger, body, method, path, encoding)
    assert isinstance(decision, Refusal)
    return decision


def answer(ledger: Ledger, passage: Passage, chunks: list[bytes], status: int = 200) -> dict[str, Any]:
    passage.reply = Reply(status, "text/event-stream" if chunks[0].startswith(b"data") else "application/json")
    for number, chunk in enumerate(chunks):
        passage.feed(chunk, 2.0 + number / 8)
    return ledger.close(passage, None)


def expected(body: bytes) -> str:
    """Return what the first request must be when the other arm's was `body`."""
    return f"POST {CHAT} {sha256(body)}"


def ended(ledger: Ledger, passage: Passage) -> Passage:
    """Return the passage when it has ended."""
    ledger.close(passage, None)
    return passage


def golden() -> str:
    """Return one log with every kind of line, in the shapes that matter."""
    book = ledger()
    lines = [book.start("11.0.2", "2026-01-02T03:04:05.678+00:00")]
    lines.append(answer(book, passage(book, b"", "GET", "/v1/models"), [b'{"object":"list"}']))
    lines.append(answer(book, passage(book, chat(stream=True)), fake.events("tools")))
    lines.append(answer(book, passage(book, chat(seed=1)), [json.dumps({**fake.whole(), "model": "local"}).encode()]))
    lines.append(dict(refusal(book, b"", "GET", "/metrics?key=1").line))
    lines.append(dict(refusal(book, b"[]", "POST", CHAT).line))
    first = passage(book, chat("a", stream=True))
    lines.append(dict(refusal(book, chat("b", stream=True)).line))
    lines.append(answer(book, first, fake.events("error-midstream")))
    lines.append(book.close(passage(book, chat("b", stream=True)), "server closed connection"))
    error = b'{"error":{"code":400,"message":"too long"}}'
    lines.append(answer(book, passage(book, b'{"prompt":"x"}', "POST", "/v1/completions"), [error], 400))
    lines.append(book.end())
    return "".join(dumps(line) + "\n" for line in lines)


def test_the_lines_are_those_of_the_golden_log() -> None:
    assert golden() == GOLDEN.read_text(encoding="utf-8")
    assert json.loads(golden().splitlines()[0])["format"] == FORMAT


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", CHAT),
        ("POST", "/v1/models"),
        ("POST", "/completion"),
        ("POST", CHAT + "/"),
        ("POST", CHAT + "?x=1"),
        ("POST", "//v1/chat/completions"),
        ("POST", "http://elsewhere/v1/chat/completions"),
        ("CONNECT", "elsewhere:443"),
        ("GET", "/slots"),
        ("DELETE", "/v1/models"),
        ("OPTIONS", "*"),
    ],
)
def test_any_other_path_is_refused_and_counted(method: str, path: str) -> None:
    book = ledger()
    answer = refusal(book, b"", method, path)
    assert (answer.status, answer.line["reason"]) == (403, "path")
    assert book.end() == {"kind": "end", "exchanges": 0, "refused": 1, "models": 0}


def test_an_unreadable_body_is_refused_and_is_not_the_first_request() -> None:
    book = ledger(expected_first=expected(chat()))
    answer = refusal(book, b"{")
    assert (answer.status, answer.line["reason"]) == (400, "unreadable")
    assert "not JSON" in json.loads(answer.body)["error"]["message"]
    assert passage(book, chat()).index == 0


def test_a_compressed_body_is_unreadable() -> None:
    assert refusal(ledger(), b"\x1f\x8b", encoding="gzip").line["detail"] == "the body is encoded as gzip"


def test_a_first_request_with_the_expected_digest_passes_and_so_do_all_after_it() -> None:
    book = ledger(expected_first=expected(chat("first")))
    assert [ended(book, passage(book, chat(text))).index for text in ("first", "second", "third")] == [0, 1, 2]


def test_the_same_bytes_to_another_path_are_another_first_request() -> None:
    book = ledger(expected_first=expected(chat()))
    assert refusal(book, chat(), path="/v1/completions").line["reason"] == "identity"


@pytest.mark.parametrize("method", ["post", "Post", "POST "])
def test_another_spelling_of_post_is_another_method(method: str) -> None:
    answer = refusal(ledger(), chat(), method)
    assert (answer.status, answer.line["reason"], answer.line["method"]) == (403, "path", method)


def test_a_differing_first_request_is_refused_with_its_body_and_nothing_passes_after_it() -> None:
    book = ledger(expected_first=expected(chat("first")))
    answer = refusal(book, chat("other"))
    assert answer.status == 409
    assert json.loads(answer.body)["error"]["type"] == "agent_ab_identity"
    assert dict(answer.line) == {
        "kind": "refused",
        "method": "POST",
        "path": CHAT,
        "reason": "identity",
        "detail": "",
        "agent_sha256": sha256(chat("other")),
        "request": json.loads(chat("other")),
        "at_s": 1.0,
    }
    later = [refusal(book, chat("first")), refusal(book, b"", "GET", "/v1/models")]
    assert [(r.line["reason"], r.line["request"]) for r in later] == [("identity", None)] * 2
    assert book.end() == {"kind": "end", "exchanges": 0, "refused": 3, "models": 0}


def test_a_look_at_the_model_list_is_not_the_first_model_request() -> None:
    book = ledger(expected_first=expected(chat()))
    passage(book, b"", "GET", "/v1/models")
    assert passage(book, chat()).index == 0


def test_turns_are_counted_over_admitted_model_calls_only() -> None:
    book = ledger(seed_mode="per-turn")
    refusal(book, b"", "GET", "/slots")
    first, second = ended(book, passage(book, chat())), passage(book, chat())
    assert first.sent and second.sent
    assert first.sent.pinned["seed"] != second.sent.pinned["seed"]
    assert first.sent.pinned["seed"] == passage(ledger(seed_mode="per-turn"), chat()).sent.pinned["seed"]  # type: ignore[union-attr]


def test_the_seeds_are_the_same_in_both_arms() -> None:
    arms = [ledger(seed_mode="per-turn"), ledger(seed_mode="per-turn", expected_first=expected(chat("0")))]
    seeds = [[ended(arm, passage(arm, chat(str(n)))).sent.body for n in range(3)] for arm in arms]  # type: ignore[union-attr]
    assert seeds[0] == seeds[1]


def test_a_request_that_begins_while_another_is_open_is_refused_and_the_next_passes() -> None:
    book = ledger()
    first = passage(book, chat("a"))
    early = refusal(book, chat("b"))
    assert (early.status, early.line["reason"], early.line["request"]) == (409, "concurrent-first", None)
    assert book.close(first, None)["concurrent"] is False
    second = passage(book, chat("c"))
    late = refusal(book, chat("d"))
    assert (late.status, late.line["reason"]) == (409, "concurrent")
    assert (second.index, book.close(second, None)["concurrent"]) == (1, False)


@pytest.mark.parametrize("length", [None, 3])
def test_a_reply_that_is_whole_does_not_keep_the_next_request_out(length: int | None) -> None:
    book = ledger()
    first = passage(book, chat("a"))
    first.reply, first.length = Reply(200, "application/json" if length else "text/event-stream"), length
    assert book.busy
    first.feed(b"{ }" if length else b"data: [DONE]\n\n", 2.0)
    assert not book.busy and passage(book, chat("b")).index == 1


def test_when_the_evidence_is_full_one_line_says_so_and_nothing_more_is_passed_on() -> None:
    book = ledger()
    book.count(EVIDENCE_BYTES - 1)
    ended(book, passage(book, chat()))
    book.count(1)
    answer = refusal(book, chat())
    assert (answer.status, answer.line["reason"], book.full) == (403, "limit", True)


def test_a_request_during_a_look_at_the_model_list_is_not_concurrent() -> None:
    book = ledger()
    passage(book, b"", "GET", "/v1/models")
    assert passage(book, chat()).concurrent is False


def test_a_call_that_the_server_never_answered_has_no_status() -> None:
    book = ledger()
    line = book.close(passage(book, chat(stream=True)), "server closed connection")
    assert (line["status"], line["error"], line["streamed"]) == (None, "server closed connection", True)
    assert (line["content"], line["first_byte_s"], line["last_byte_s"]) == ("", None, None)


def test_the_digests_are_of_the_exact_bytes_and_equal_only_when_nothing_was_pinned() -> None:
    book = ledger()
    one = book.close(passage(book, chat()), None)
    assert one["model"] is None
    assert one["agent_sha256"] == sha256(chat()) != one["server_sha256"]
    full = dumps(one["request"]).encode()
    two = book.close(passage(book, full), None)
    assert (two["agent_sha256"], two["server_sha256"], two["pinned"]) == (sha256(full), sha256(full), {})


def test_a_request_that_never_became_complete_leaves_a_line() -> None:
    book = ledger()
    line = book.lost("POST", CHAT, "client closed", 3.0)
    assert (line["reason"], line["detail"], line["agent_sha256"]) == ("unreadable", "client closed", "")
    assert book.lost("CONNECT", "elsewhere:443", "no", 3.0)["reason"] == "path"
    assert book.end()["refused"] == 2


@pytest.mark.parametrize("secret", [SECRET, "key-of-the-server"])
def test_no_secret_reaches_a_line(secret: str) -> None:
    book = ledger()
    sent = passage(book, chat(secret, tools=[{secret: dumps({"key": secret})}]))
    assert sent.sent is not None
    assert json.loads(sent.sent.body)["messages"][0]["content"] == secret
    message = {"content": secret, "reasoning_content": secret, "tool_calls": [_call(secret)]}
    body = {"choices": [{"message": message, "finish_reason": secret}], "error": secret, "usage": {secret: 1}}
    lines = [answer(book, sent, [json.dumps(body).encode()])]
    lines.append(dict(refusal(book, b"", "GET", f"/{secret}?{secret}").line))
    lines.append(book.lost("GET", f"/{secret}", secret, 1.0))
    for line in lines:
        assert secret not in _strings(line)
        assert dumps(secret)[1:-1] not in _strings(line)
    assert lines[0]["tool_calls"][0]["function"]["arguments"] == '{"key":"<secret>"}'


def _call(secret: str) -> dict[str, Any]:
    return {"function": {"name": secret, "arguments": dumps({"key": secret})}}


def _strings(value: Any) -> str:
    """Return all keys and strings inside a value, joined."""
    if isinstance(value, dict):
        return "\0".join(f"{key}\0{_strings(inner)}" for key, inner in value.items())
    return "\0".join(map(_strings, value)) if isinstance(value, list) else str(value)


@given(keys, st.text(), st.text())
@example("<secret>", "", "")
@example('"\\"\\"\\"\\', "\\", '"')
def test_a_secret_is_taken_out_of_any_text_and_of_json_inside_text(secret: str, before: str, after: str) -> None:
    redact = Redactor([secret])
    text = redact.text(before + secret + after)
    assert "<secret>" in text
    assert secret not in text.replace("<secret>", "\0")
    assert "<secret>" in redact.text(json.dumps([before + secret + after]))


def test_lone_surrogates_are_replaced_in_the_record_only() -> None:
    book = ledger()
    body = b'{"messages":[{"content":"\\ud800"}]}'
    sent = passage(book, body)
    assert sent.sent is not None
    assert sent.sent.body.startswith(body[:-1])
    assert book.close(sent, None)["request"]["messages"][0]["content"] == "\ufffd"


def test_what_is_still_open_is_known() -> None:
    book = ledger()
    sent = passage(book, chat())
    assert book.open == (sent,)
    book.close(sent, "proxy stopped")
    assert not book.open


if __name__ == "__main__":
    print(golden(), end="")
