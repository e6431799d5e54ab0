"""A small real HTTP server on a unix socket, which shows whether bytes pass it one by one."""

import hashlib
import http.server
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE_S = 60.0


@dataclass
class Events:
    """What the server was told, and what happened to it."""

    acknowledged: threading.Event = field(default_factory=threading.Event)
    """The client said that it has the first chunk."""
    cut: threading.Event = field(default_factory=threading.Event)
    """A client went away in the middle of a stream."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    events: Events


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def address_string(self) -> str:
        return "client"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/acknowledge":
            self.server.events.acknowledged.set()
            self._answer(b"ok")
        elif self.path == "/stream":
            self._begin()
            self._chunk(b"one\n")
            # Never comes when the first chunk waits somewhere for the second.
            self.server.events.acknowledged.wait(PATIENCE_S)
            self._chunk(b"two\n")
            self._chunk(b"")
        elif self.path == "/endless":
            self._begin()
            try:
                while True:
                    self._chunk(b"x" * 65536)
            except OSError:
                self.close_connection = True
                self.server.events.cut.set()
        elif self.path == "/cut":
            self._answer(b"yes" if self.server.events.cut.wait(0.1) else b"no")
        else:
            self._answer(b"hello")

    def do_POST(self) -> None:
        self._answer(hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest().encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


class _Digester(socketserver.StreamRequestHandler):
    """Answers only after the client has said that it is done: a half-closed connection."""

    def handle(self) -> None:
        self.wfile.write(hashlib.sha256(self.rfile.read()).hexdigest().encode())


class _Hanger(socketserver.BaseRequestHandler):
    """Reads a little and leaves."""

    def handle(self) -> None:
        self.request.recv(1)


@contextmanager
def serving(path: Path, handler: type[socketserver.BaseRequestHandler] = _Handler) -> Iterator[Events]:
    """Serve at `path` until the block ends."""
    with _Server(str(path), handler) as server:
        server.events = Events()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.events
        finally:
            server.shutdown()
            thread.join()


DIGESTER, HANGER = _Digester, _Hanger

STREAM_CLIENT = """
import http.client, sys
port = int(sys.argv[1])
reply = http.client.HTTPConnection("127.0.0.1", port)
reply.request("GET", "/stream")
response = reply.getresponse()
first = response.readline()
other = http.client.HTTPConnection("127.0.0.1", port)
other.request("GET", "/acknowledge")
other.getresponse().read()
print([first, response.read()])
"""
"""Acknowledges the first chunk before it reads the second."""
