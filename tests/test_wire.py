"""The same bytes give the same record, however they are cut; and each shape of reply is read as it was meant."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import LIMITS, EventStream, Limits, Reply
from tests.fakes import model_server as fake

SSE = "text/event-stream; charset=utf-8"
SCENARIOS = ("hello", "crlf", "comments", "tools", "reasoning", "no-usage-chunk", "no-done", "error-midstream", "text")


def read(
    chunks: list[bytes],
    content_type: str = SSE,
    status: int = 200,
    broken: str | None = None,
    limits: Limits = LIMITS,
) -> Reply:
    reply = Reply(status, content_type, limits=limits)
    for chunk in chunks:
        reply.feed(chunk)
    reply.end(broken)
    return reply


def stream(scenario: str) -> Reply:
    return read(fake.events(scenario))


def facts(reply: Reply) -> dict[str, Any]:
    names = ("content", "reasoning", "tool_calls", "finish_reason", "usage", "timings", "error", "truncated")
    return {name: getattr(reply, name) for name in names}


def body(value: Any, status: int = 200) -> Reply:
    return read([json.dumps(value).encode()], "application/json", status)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(st.sampled_from(SCENARIOS), st.lists(st.integers(min_value=0, max_value=5000), max_size=30))
def test_any_chunking_of_a_stream_gives_the_same_record(scenario: str, places: list[int]) -> None:
    data = b"".join(fake.events(scenario))
    assert facts(read(cut(data, places))) == facts(read([data]))


@given(
    st.lists(
        st.sampled_from([b"\r", b"\n", b"\r\n", b":c", b"data:", b"data: ", b"\xf0\x9f\x98\x80", b"x", b"error: "])
    )
)
def test_any_chunking_of_any_lines_gives_the_same_events(parts: list[bytes]) -> None:
    data = b"".join(parts)
    one, many = EventStream(), EventStream()
    assert [e for byte in data for e in many.feed(bytes([byte]))] == one.feed(data)


@given(st.binary(max_size=300), st.sampled_from([SSE, "application/json", ""]), st.sampled_from([200, 400, 503]))
def test_no_bytes_from_a_server_break_the_recorder(data: bytes, content_type: str, status: int) -> None:
    record = facts(read([data], content_type, status))
    json.dumps(record, allow_nan=False)
    assert status < 400 or record["error"]


def test_a_streamed_answer_is_put_together() -> None:
    reply = stream("hello")
    assert (reply.content, reply.finish_reason, reply.error) == (fake.TEXT, "stop", None)
    assert reply.usage is not None
    assert reply.usage["completion_tokens"] == 5
    assert reply.usage["prompt_tokens_details.cached_tokens"] == 0


def test_timings_come_from_the_last_chunk_that_has_no_choices() -> None:
    expected = {
        name: fake.TIMINGS[name] for name in ("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
    }
    assert stream("hello").timings == expected


def test_timings_come_from_the_finishing_chunk_when_there_is_no_usage_chunk() -> None:
    timings = stream("no-usage-chunk").timings
    assert timings is not None
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (6, 4)


def test_drafts_that_the_server_does_not_report_are_absent_and_not_zero() -> None:
    timings = stream("hello").timings
    assert timings is not None
    assert "draft_n" not in timings


@pytest.mark.parametrize("missing", ["cache_n", "prompt_ms", "predicted_n"])
def test_incomplete_timings_are_no_timings(missing: str) -> None:
    timings = {key: value for key, value in fake.TIMINGS.items() if key != missing}
    assert body({"choices": [], "timings": timings}).timings is None


@pytest.mark.parametrize("value", [True, "7", None, float("inf"), float("nan"), 10**400])
def test_odd_numbers_in_timings_are_no_timings(value: object) -> None:
    text = json.dumps({"timings": fake.TIMINGS | {"prompt_ms": value}})
    assert read([text.encode()], "application/json").timings is None


def test_fragments_of_several_tool_calls_are_merged_by_index() -> None:
    reply = stream("tools")
    assert reply.tool_calls == [
        {"id": "call_0", "type": "function", "function": {"name": "read", "arguments": '{"path":"a.py"}'}},
        {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}},
    ]
    assert (reply.finish_reason, reply.content) == ("tool_calls", "")


def test_tool_calls_without_an_index_keep_their_order() -> None:
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in ("b", "a")]
    reply = body({"choices": [{"message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}]})
    assert [call["function"]["name"] for call in reply.tool_calls] == ["b", "a"]


def test_reasoning_is_kept_apart_from_the_answer() -> None:
    reply = stream("reasoning")
    assert (reply.reasoning, reply.content, reply.finish_reason) == ("Let me think.", "42", "length")


def test_text_completions_are_read_like_chats() -> None:
    reply = stream("text")
    assert (reply.content, reply.finish_reason) == ("Once upon", "length")


def test_only_the_first_choice_is_recorded() -> None:
    assert body({"choices": [{"index": n, "text": str(n)} for n in range(3)]}).content == "0"


def test_a_whole_json_reply_is_read() -> None:
    reply = body(fake.whole())
    assert (reply.content, reply.reasoning, reply.finish_reason) == (fake.TEXT, "short", "stop")
    assert reply.timings is not None
    assert reply.timings["draft_n"] == 6


def test_a_stream_without_done_but_with_a_finish_reason_is_whole() -> None:
    assert stream("no-done").error is None


def test_a_stream_that_ends_without_a_finish_reason_is_an_error() -> None:
    reply = read(fake.events("hello")[:3])
    assert reply.error == "the stream ended without a finish reason"
    assert reply.content


def test_an_error_in_the_middle_of_a_stream_is_recorded_with_what_came_before() -> None:
    reply = stream("error-midstream")
    assert (reply.error, bool(reply.content), reply.finish_reason) == (fake.MISMATCH, True, None)


def test_an_old_error_line_is_an_error_too() -> None:
    assert read([b'error: {"message":"boom","code":500}\n\n']).error == "boom"


def test_the_transports_error_is_recorded_when_the_stream_told_none() -> None:
    assert read(fake.events("hello")[:3], broken="client closed").error == "client closed"
    assert read(fake.events("error-midstream"), broken="client closed").error == fake.MISMATCH


def test_whoever_closes_first_after_the_streams_end_the_reply_is_whole() -> None:
    reply = read(fake.events("hello"), broken="client closed")
    assert (reply.error, reply.finish_reason) == (None, "stop")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"error":{"message":"too long","code":400}}', "too long"),
        ('{"error":"plain"}', "plain"),
        ('{"error":{"code":1}}', '{"code": 1}'),
        ("<html>busy</html>", "<html>busy</html>"),
        ("", "HTTP 503 with an empty body"),
        ("{}", "HTTP 503"),
        ("[]", "not a JSON object: []"),
    ],
)
def test_an_http_error_is_recorded_with_its_message(text: str, error: str) -> None:
    assert read([text.encode()], "application/json", 503).error == error


def test_a_good_status_with_a_body_that_is_not_json_is_an_error() -> None:
    assert read([b"<html>"], "text/html").error == "the response is not JSON: '<html>'"


def test_an_event_that_is_not_json_is_an_error() -> None:
    assert read([b"data: {broken\n\n", *fake.events("hello")]).error == "an event is not JSON: {broken"


def test_a_response_in_an_encoding_is_said_not_to_be_recorded() -> None:
    reply = Reply(200, SSE, "gzip")
    reply.feed(b"\x1f\x8b")
    reply.end(None)
    assert reply.error == "the response is encoded as gzip and was not recorded"


def test_a_reply_beyond_the_limits_is_cut_and_flagged() -> None:
    long = read(fake.events("hello"), limits=Limits(text=5))
    assert (long.content, long.truncated) == (fake.TEXT[:5], True)
    assert long.error is not None
    assert "longer than the recorder's limit" in long.error
    whole = read([json.dumps(fake.whole()).encode()], "application/json", limits=Limits(body=10))
    assert (whole.content, whole.truncated, whole.error) == ("", True, long.error)


@given(st.lists(st.integers(min_value=0, max_value=200), max_size=8))
def test_an_endless_line_is_skipped_wherever_it_is_cut(places: list[int]) -> None:
    line = b"data: " + b"x" * 90 + b"\n\n" + b'data: {"choices":[{"text":"ok","finish_reason":"stop"}]}\n\n'
    reply = read(cut(line, places), limits=Limits(line=80))
    assert (reply.content, reply.truncated) == ("ok", True)


VLLM_USAGE = {"prompt_tokens": 24, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 8}}
VLLM_METRICS = {
    "time_to_first_token_ms": 33.5,
    "generation_time_ms": 130,
    "queue_time_ms": 0.1,
    "speculative_decoding": {"num_draft_tokens": 15, "num_accepted_draft_tokens": 10, "acceptance_histogram": [1, 1]},
}


def vllm_end(metrics: Any, usage: Any) -> Reply:
    last = json.dumps({"choices": [], "usage": usage, "metrics": metrics}).encode()
    return read([*fake.events("hello")[:-1], b"data: " + last + b"\n\n", b"data: [DONE]\n\n"])


def test_vllms_metrics_of_a_request_become_its_timings() -> None:
    told = {"prompt_n": 16, "predicted_n": 10, "cache_n": 8, "prompt_ms": 33.5, "predicted_ms": 130.0}
    assert vllm_end(VLLM_METRICS, VLLM_USAGE).timings == told | {"draft_n": 15, "draft_n_accepted": 10}
    nothing = VLLM_METRICS | {"speculative_decoding": {"num_draft_tokens": 0, "num_accepted_draft_tokens": 0}}
    assert vllm_end(nothing, VLLM_USAGE).timings == told
    assert vllm_end(VLLM_METRICS | {"speculative_decoding": None}, VLLM_USAGE).timings == told


@pytest.mark.parametrize(
    ("metrics", "usage"),
    [
        (None, VLLM_USAGE),
        ([], VLLM_USAGE),
        (VLLM_METRICS | {"generation_time_ms": None}, VLLM_USAGE),
        (VLLM_METRICS, {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens": 1}),
        (VLLM_METRICS, {"total_tokens": 3}),
    ],
)
def test_metrics_that_lack_a_part_are_no_timings(metrics: Any, usage: Any) -> None:
    before = stream("hello").timings
    assert vllm_end(metrics, usage).timings == before
