"""A small real model server that answers from a list: OpenAI-like, streaming, with faults where the list has them.

    with serving([Say("hello"), Http(500, "no"), Say(calls=[("bash", '{"command": "ls"}')])]) as model: ...

Each request takes the next answer; after the last one comes 410, which an agent must take as the end.
"""

import json
import socketserver
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Json = Any


@dataclass(frozen=True)
class Say:
    """A streamed reply, whole unless it is told otherwise."""

    content: str = ""
    calls: Sequence[tuple[str, str]] = ()
    """(tool, arguments as text), which may be broken."""
    reasoning: str = ""
    finish: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    pause_s: float = 0.0
    """Between two events."""
    cut_after: int | None = None
    """The connection closes after so many events, in the middle of the next."""
    error_after: int | None = None
    """After so many events comes an error event, and the end."""

    def events(self) -> list[Json]:
        """Return the stream's data, in llama-server's shape."""
        deltas: list[Json] = [{"role": "assistant", "content": None}]
        deltas += [{"reasoning_content": self.reasoning[at : at + 7]} for at in range(0, len(self.reasoning), 7)]
        deltas += [{"content": self.content[at : at + 7]} for at in range(0, len(self.content), 7)]
        for index, (name, arguments) in enumerate(self.calls):
            first = {"index": index, "id": f"random{id(self)}", "type": "function"}
            deltas.append({"tool_calls": [{**first, "function": {"name": name, "arguments": ""}}]})
            for at in range(0, len(arguments), 7):
                piece = {"index": index, "function": {"arguments": arguments[at : at + 7]}}
                deltas.append({"tool_calls": [piece]})
        events: list[Json] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        finish = "tool_calls" if self.calls and self.finish == "stop" else self.finish
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens}
        return [*events, {"choices": [], "usage": usage if self.prompt_tokens else None}]


@dataclass(frozen=True)
class Http:
    """An HTTP error, in llama-server's shape."""

    status: int
    message: str
    type: str = "server_error"


@dataclass(frozen=True)
class Raw:
    """Any bytes as the body of an event stream."""

    body: bytes


@dataclass(frozen=True)
class Hang:
    """No answer at all until the client gives up."""


Answer = Say | Http | Raw | Hang
ERROR = {"error": {"code": 500, "message": "Compute error.", "type": "server_error"}}


@dataclass
class ScriptedModel:
    """What is left to say, and what was asked."""

    url: str
    answers: list[Answer]
    bodies: list[bytes] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    """Set by the first request."""

    @property
    def requests(self) -> list[Json]:
        """Return the requests that came, parsed."""
        return [json.loads(body) for body in self.bodies]


class _Quiet(socketserver.ThreadingMixIn):
    daemon_threads = True
    model: ScriptedModel

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing about an agent that went away in mid-stream."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            raise


class _TcpServer(_Quiet, socketserver.TCPServer):
    allow_reuse_address = True


class _UnixServer(_Quiet, socketserver.UnixStreamServer):
    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _TcpServer | _UnixServer

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def address_string(self) -> str:
        """Return nothing: a unix socket's client has no address."""
        return ""

    def do_POST(self) -> None:
        """Give the next answer."""
        model = self.server.model
        model.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        model.asked.set()
        answer: Answer = model.answers.pop(0) if model.answers else Http(410, "the script is at its end")
        self.close_connection = True
        if isinstance(answer, Http):
            error = {"code": answer.status, "message": answer.message, "type": answer.type}
            self._send(answer.status, json.dumps({"error": error}).encode())
        elif isinstance(answer, Raw):
            self._send(200, answer.body)
        elif isinstance(answer, Hang):
            self.rfile.read(1)
        else:
            self._stream(answer)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: Say) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b": a ping\n\n")
        for number, event in enumerate(answer.events()):
            if number == answer.error_after:
                self._chunk(b"data: " + json.dumps(ERROR).encode() + b"\n\n")
                self.wfile.write(b"0\r\n\r\n")
                return
            data = b"data: " + json.dumps(event).encode() + b"\n\n"
            if number == answer.cut_after:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data[:10])
                return
            self._chunk(data)
            time.sleep(answer.pause_s)
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


@contextmanager
def serving(answers: Sequence[Answer], *, socket: Path | None = None, port: int = 0) -> Iterator[ScriptedModel]:
    """Serve `answers` on 127.0.0.1, or on the unix socket `socket`, while the block runs."""
    server: _TcpServer | _UnixServer
    if socket:
        server, url = _UnixServer(str(socket), _Handler), "http://127.0.0.1:8080/v1"
    else:
        server = _TcpServer(("127.0.0.1", port), _Handler)
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.model = ScriptedModel(url, list(answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
