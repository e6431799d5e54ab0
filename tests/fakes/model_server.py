"""A small real model server that answers as it is asked to: OpenAI-like, streaming, with every fault on purpose.

    model_server.py PORT

The last message's content (or the prompt) names the scenario, see `SCENARIOS`, and `split:N` sends that scenario's
stream of `hello` in pieces of N bytes. GET /seen lists what arrived; POST /release lets `gated` go on.
Standard library only.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXT = "Grüße, 世界 🌍: done."
TIMINGS = {
    "cache_n": 0,
    "prompt_n": 7,
    "prompt_ms": 12.5,
    "prompt_per_token_ms": 1.7,
    "prompt_per_second": 560.0,
    "predicted_n": 5,
    "predicted_ms": 50.0,
    "predicted_per_token_ms": 10.0,
    "predicted_per_second": 100.0,
}
DRAFTED = TIMINGS | {"draft_n": 6, "draft_n_accepted": 4}
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 0},
}
MISMATCH = "The model produced output that does not match the expected Content-only format"


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }


def _event(value: Any, end: str = "\n") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {text}{end}{end}".encode()


def _usage(timings: dict[str, Any]) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [], "usage": USAGE, "timings": timings}


def _spoken(text: str = TEXT) -> list[dict[str, Any]]:
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    return [_chunk({"role": "assistant", "content": None}), *(_chunk({"content": piece}) for piece in pieces)]


def _call(index: int, **function: str) -> dict[str, Any]:
    first = {"id": f"call_{index}", "type": "function"} if "name" in function else {}
    return _chunk({"tool_calls": [{"index": index, **first, "function": function}]})


def _tools() -> list[dict[str, Any]]:
    return [
        _call(0, name="read", arguments=""),
        _call(0, arguments='{"path":'),
        _call(1, name="bash", arguments='{"command"'),
        _call(0, arguments='"a.py"}'),
        _call(1, arguments=':"ls"}'),
        _chunk({}, "tool_calls"),
        _usage(DRAFTED),
    ]


def _thought() -> list[dict[str, Any]]:
    deltas = [{"reasoning_content": "Let me "}, {"reasoning_content": "think."}, {"content": "42"}]
    return [*(_chunk(delta) for delta in deltas), _chunk({}, "length"), _usage(TIMINGS)]


VLLM_END = {
    "choices": [],
    "usage": {"prompt_tokens": 24, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}},
    "metrics": {
        "time_to_first_token_ms": 33.5,
        "generation_time_ms": 130.0,
        "speculative_decoding": {"num_draft_tokens": 15, "num_accepted_draft_tokens": 10},
    },
}


def events(scenario: str) -> list[bytes]:
    """Return the events of a scenario's stream, each as the server writes it."""
    full = [*_spoken(), _chunk({}, "stop"), _usage(TIMINGS)]
    done = _event("[DONE]")
    match scenario:
        case "crlf":
            return [*(_event(part, "\r\n") for part in full), _event("[DONE]", "\r\n")]
        case "comments":
            return [b for part in full for b in (b":\n\n", _event(part))] + [b": ping\n\n", done]
        case "tools":
            return [*map(_event, _tools()), done]
        case "reasoning":
            return [*map(_event, _thought()), done]
        case "no-usage-chunk":
            return [*map(_event, _spoken()), _event(_chunk({}, "stop", timings=DRAFTED)), done]
        case "vllm":
            return [*map(_event, [*_spoken(), _chunk({}, "stop"), VLLM_END]), done]
        case "counts-wildly":
            return [*map(_event, [*full[:-1], _usage(TIMINGS | {"predicted_n": 2**63})]), done]
        case "no-done":
            return [*map(_event, full)]
        case "error-midstream":
            error = {"error": {"code": 500, "message": MISMATCH, "type": "server_error"}}
            return [*map(_event, _spoken()[:3]), _event(error)]
        case "text":
            choices = [{"index": 0, "text": text, "finish_reason": None} for text in ("Once", " upon")]
            last = {"index": 0, "text": "", "finish_reason": "length"}
            return [*(_event({"choices": [c]}) for c in [*choices, last]), _event(_usage(TIMINGS)), done]
        case _:
            return [*map(_event, full), done]


def whole() -> dict[str, Any]:
    """Return `hello` as one JSON reply."""
    message = {"role": "assistant", "content": TEXT, "reasoning_content": "short"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"object": "chat.completion", "choices": [choice], "usage": USAGE, "timings": DRAFTED}


class Server(ThreadingHTTPServer):
    """Remembers what arrived."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        """Listen on loopback."""
        super().__init__(("127.0.0.1", port), Handler)
        self.seen: list[dict[str, Any]] = []
        self.gate = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """Plays the scenario that the request names."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        """Serve the record of what arrived, and the model list."""
        if self.path == "/seen":
            self._json(200, self.server.seen)
            return
        self._remember(b"")
        self._json(200, {"object": "list", "data": [{"id": "local"}]})

    def do_POST(self) -> None:
        """Play a scenario."""
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/release":
            self.server.gate.set()
            self._json(200, {})
            return
        entry = self._remember(raw)
        body = json.loads(raw)
        scenario = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        try:
            self._play(scenario, body.get("stream", False))
        except OSError:
            entry["cut"] = True
        entry["ended"] = True

    def _remember(self, raw: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"path": self.path, "headers": dict(self.headers), "body": raw.decode(), "cut": False}
        self.server.seen.append(entry)
        return entry

    def _play(self, scenario: str, stream: bool) -> None:
        name, _, argument = scenario.partition(":")
        if name in ("http-400", "http-500"):
            status = int(name[-3:])
            message = MISMATCH if status == 500 else "the request exceeds the available context size"
            self._json(status, {"error": {"code": status, "message": message, "type": "invalid_request_error"}})
        elif name == "refuse":
            self._drop()
        elif name == "html":
            self._json(200, "<html>")
        elif name == "echo":
            self._stream([_event(_chunk({"content": argument}, "stop"))])
        elif not stream:
            self._json(200, whole())
        elif name == "split":
            data = b"".join(events("hello"))
            self._stream(data[at : at + int(argument)] for at in range(0, len(data), int(argument)))
        elif name == "cut":
            self._stream(events("hello")[:4], end=False)
            self._drop()
        elif name == "eof":
            self._until_eof(events("hello")[:4])
        elif name == "gated":
            self._stream(self._gated())
        elif name == "endless":
            self._stream(self._endless())
        else:
            self._stream(events(name))

    def _gated(self) -> Iterator[bytes]:
        first, *rest = events("hello")
        yield first
        self.server.gate.wait(20)
        self.server.gate.clear()
        yield from rest

    def _endless(self) -> Iterator[bytes]:
        while True:
            yield _event(_chunk({"content": "x" * 20}))
            time.sleep(0.01)

    def _stream(self, pieces: Any, end: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if end:
            self.wfile.write(b"0\r\n\r\n")

    def _until_eof(self, pieces: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _json(self, status: int, value: Any) -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    Server(int(sys.argv[1])).serve_forever()
