"""A log that does not add up is no evidence, and the reader says what is wrong with it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.exchanges import read_log
from agent_ab.model import Timings

GOLDEN = Path(__file__).parent / "golden" / "exchanges.jsonl"
Lines = list[dict[str, Any]]


def golden() -> Lines:
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def written(tmp_path: Path, lines: Lines) -> Path:
    path = tmp_path / "exchanges.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def fault(path: Path) -> str:
    with pytest.raises(ApparatusError) as caught:
        read_log(path)
    assert caught.value.step == "proxy"
    return caught.value.message


def test_the_golden_log_is_read_in_the_order_of_the_requests() -> None:
    log = read_log(GOLDEN)
    assert [exchange.index for exchange in log.exchanges] == [0, 1, 2, 3, 4]
    assert [exchange.status for exchange in log.exchanges] == [200, 200, 200, None, 400]
    assert not any(exchange.concurrent for exchange in log.exchanges)
    assert [exchange.model for exchange in log.exchanges] == [None, "local", None, None, None]
    assert [exchange.streamed for exchange in log.exchanges] == [True, False, True, True, False]
    assert [(refused.method, refused.reason) for refused in log.refused] == [
        ("GET", "path"),
        ("POST", "unreadable"),
        ("POST", "concurrent"),
    ]


def test_a_log_of_the_first_format_is_read_as_it_was() -> None:
    log = read_log(GOLDEN.with_name("exchanges-1.jsonl"))
    assert [exchange.concurrent for exchange in log.exchanges] == [False, False, False, True, False]
    assert [exchange.model for exchange in log.exchanges] == [None] * 5
    assert [refused.reason for refused in log.refused] == ["path", "unreadable"]


def test_an_exchange_is_read_with_all_its_parts() -> None:
    first, second, broken, unanswered, refused = read_log(GOLDEN).exchanges
    assert first.timings == Timings(7, 12.5, 5, 50.0, 0, 6, 4)
    assert [call["function"]["name"] for call in first.tool_calls] == ["read", "bash"]
    assert first.pinned["stream_options.include_usage"] is True
    assert first.request["seed"] == 4242
    assert first.usage is not None
    assert first.usage["total_tokens"] == 12
    assert (second.reasoning, second.finish_reason, "seed" in second.pinned) == ("short", "stop", False)
    assert broken.error is not None
    assert unanswered.first_byte_s is None
    assert refused.error == "too long"


def test_absent_drafts_are_none_and_not_zero(tmp_path: Path) -> None:
    lines = golden()
    del lines[2]["timings"]["draft_n"], lines[2]["timings"]["draft_n_accepted"]
    timings = read_log(written(tmp_path, lines)).exchanges[0].timings
    assert timings is not None
    assert (timings.draft_n, timings.draft_n_accepted) == (None, None)


def test_a_streamed_reply_without_timings_is_timed_by_the_proxy(tmp_path: Path) -> None:
    lines = golden()
    lines[2] |= {"timings": None, "started_s": 1.0, "first_byte_s": 1.5, "last_byte_s": 2.0}
    lines[2]["usage"] = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details.cached_tokens": 2}
    assert read_log(written(tmp_path, lines)).exchanges[0].timings == Timings(7, 500.0, 4, 500.0, 2)
    for change in ({"streamed": False}, {"usage": None}, {"first_byte_s": None}):
        told = [line | change if line is lines[2] else line for line in lines]
        assert read_log(written(tmp_path, told)).exchanges[0].timings is None


def test_a_request_that_broke_identity_is_read_with_its_body(tmp_path: Path) -> None:
    lines = golden()
    lines[5] |= {"reason": "identity", "request": {"messages": []}}
    assert read_log(written(tmp_path, lines)).refused[1].request == {"messages": []}


def test_a_missing_log_is_reported(tmp_path: Path) -> None:
    assert "no exchange log at" in fault(tmp_path / "none.jsonl")


def test_an_empty_log_is_reported(tmp_path: Path) -> None:
    assert fault(written(tmp_path, [])) == "the exchange log is empty"


def test_a_line_cut_in_half_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path, golden())
    path.write_bytes(path.read_bytes()[:-40])
    assert fault(path) == "the exchange log ends in the middle of a line"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines.pop(), "has no closing line"),
        (lambda lines: lines.pop(0), "does not begin with its opening line"),
        (lambda lines: lines.pop(2), "claims 5 exchanges, 3 refusals and 1 model lists and holds 4, 3 and 1"),
        (lambda lines: lines.pop(1), "and holds 5, 3 and 0"),
        (lambda lines: lines.pop(4), "and holds 5, 2 and 1"),
        (lambda lines: lines.insert(1, lines[-1]), "in its middle"),
        (lambda lines: lines[3].update(index=0), "has an exchange twice or lacks one"),
        (lambda lines: lines[3].update(index=7), "has an exchange twice or lacks one"),
        (lambda lines: lines[2].update(extra=1), "line 3: exchange.extra: Extra inputs are not permitted"),
        (lambda lines: lines[2].pop("content"), "line 3: exchange.content: Field required"),
        (lambda lines: lines[2].update(status="200"), "line 3: exchange.status: Input should be a valid integer"),
        (lambda lines: lines[2].update(agent_sha256="x"), "line 3: exchange.agent_sha256:"),
        (lambda lines: lines[2]["timings"].pop("cache_n"), "line 3: exchange.timings.cache_n: Field required"),
        (
            lambda lines: lines[2]["timings"].update(predicted_n=2**63),
            "line 3: exchange.timings.predicted_n: Input should",
        ),
        (lambda lines: lines[2]["timings"].update(cache_n=-1), "line 3: exchange.timings.cache_n: Input should"),
        (lambda lines: lines[2]["timings"].update(prompt_ms=float("nan")), "line 3: exchange.timings.prompt_ms: Input"),
        (lambda lines: lines[2].update(usage={"prompt_tokens": 10**30}), "line 3: exchange.usage.prompt_tokens: Input"),
        (lambda lines: lines[2].update(last_byte_s=1e300), "line 3: exchange.last_byte_s: Input should"),
        (lambda lines: lines[0].update(format=3), "line 1: start.format: Input should be 1 or 2"),
        (lambda lines: lines[4].update(reason="mood"), "line 5: refused.reason:"),
        (lambda lines: lines[4].update(kind="other"), "line 5: the line:"),
    ],
)
def test_a_log_that_does_not_add_up_is_reported(
    tmp_path: Path, change: Callable[[Lines], object], message: str
) -> None:
    lines = golden()
    change(lines)
    assert message in fault(written(tmp_path, lines))


def test_a_line_that_is_not_json_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path, golden())
    path.write_bytes(path.read_bytes().replace(b'{"kind": "models"', b'{"kind": models'))
    assert "line 2: the line: Invalid JSON" in fault(path)


def test_a_line_of_more_values_than_any_request_has_is_not_parsed(tmp_path: Path) -> None:
    path = written(tmp_path, golden())
    with path.open("ab") as file:
        file.write(b"[" + b"[]," * 10_000_000 + b"1]\n")
    assert fault(path) == f"the exchange log line {len(golden()) + 1}: is larger than any that the proxy writes"


def test_a_log_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "exchanges.jsonl")
    assert "no exchange log at" in fault(tmp_path / "exchanges.jsonl")


def with_bodies(tmp_path: Path, count: int, body: Callable[[int], str]) -> Path:
    """Write a log of `count` exchanges, each with the messages of all before it and one of its own."""
    start, *rest = golden()
    exchange = next(line for line in rest if line["kind"] == "exchange")
    lines = [start]
    messages: list[dict[str, str]] = []
    for index in range(count):
        messages.append({"role": "user", "content": body(index)})
        lines.append({**exchange, "index": index, "content": "said", "request": {"messages": list(messages)}})
    return written(tmp_path, [*lines, {"kind": "end", "exchanges": count, "refused": 0, "models": 0}])


def test_what_is_equal_in_two_requests_is_held_once(tmp_path: Path) -> None:
    log = read_log(with_bodies(tmp_path, 3, lambda index: f"message {index}"))
    first, second, third = (exchange.request["messages"] for exchange in log.exchanges)
    assert [message["content"] for message in third] == ["message 0", "message 1", "message 2"]
    assert first[0] is second[0] is third[0] and second[1] is third[1]
    assert log.bodies is None


def test_beyond_a_limit_exchanges_come_without_bodies_and_with_all_their_figures(tmp_path: Path) -> None:
    path = with_bodies(tmp_path, 6, lambda index: str(index) * 10_000)
    log = read_log(path, kept_bytes=40_000)
    assert log.bodies == 3 and len(log.exchanges) == 6
    assert [exchange.request is None for exchange in log.exchanges] == [False] * 3 + [True] * 3
    kept, bare = log.exchanges[2], log.exchanges[3]
    assert kept.content and not bare.content and not bare.reasoning
    assert (bare.timings, bare.status, len(bare.tool_calls)) == (kept.timings, 200, len(kept.tool_calls))
