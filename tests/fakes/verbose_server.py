"""A small real server that answers chat requests as llama-server does, its inner facts (`verbose`, `return_tokens`) included.

The last message says what is played: `error-500`, `error-400`, `silent` (no inner facts), `html`, `drop`, anything else is
answered with `text`. A reply that cannot be parsed (`error-500`) has tokens all the same, at /completion.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXT, TOKENS = "one two", [11, 12, 2]
SETTINGS = {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "grammar": "root ::= x", "seed": 5}
TIMINGS = {
    "cache_n": 0,
    "prompt_n": 4,
    "prompt_ms": 1.0,
    "predicted_n": 3,
    "predicted_ms": 2.0,
    "draft_n": 2,
    "draft_n_accepted": 1,
}
MISMATCH = "The model produced output that does not match the expected peg-native format"


def inner(tokens: list[int]) -> dict[str, Any]:
    return {
        "prompt": "<go>hi",
        "tokens": tokens,
        "tokens_evaluated": 4,
        "content": TEXT,
        "generation_settings": SETTINGS,
        "stop_type": "eos",
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body))
        if self.path == "/tokenize":
            pieces = body["content"].split(" ")
            return self.reply({"tokens": [{"id": len(piece), "piece": piece} for piece in pieces]})
        if self.path == "/completion":
            return self.reply(inner([7, 8]))
        said = body["messages"][-1]["content"]
        if said == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        if said == "html":
            return self.reply("<html>")
        if said == "error-400" or (said == "error-500" and body.get("max_tokens") != 0):
            status = int(said[-3:])
            return self.reply({"error": {"code": status, "message": MISMATCH if status == 500 else "too long"}}, status)
        return self.reply(self.answer(silent=said == "silent"))

    def answer(self, silent: bool) -> dict[str, Any]:
        message = {"role": "assistant", "content": TEXT, "reasoning_content": "hm"}
        reply: dict[str, Any] = {
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}},
            "timings": TIMINGS,
        }
        return reply if silent else {**reply, "__verbose": inner(TOKENS)}

    def reply(self, value: Any, status: int = 200) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    """Remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port of loopback."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
