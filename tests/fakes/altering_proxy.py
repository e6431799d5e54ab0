"""A small real proxy before a llama-server that replaces one token of every reply, in its tokens and in its text."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Proxy"

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reply = self.server.upstream.post(
            self.path, content=body, headers={"Content-Type": "application/json"}, timeout=600
        )
        data = reply.content
        if self.path == "/v1/chat/completions" and reply.status_code == 200:
            data = json.dumps(self.server.altered(reply.json())).encode()
        self.send_response(reply.status_code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Proxy(ThreadingHTTPServer):
    """Passes everything on to `upstream`."""

    daemon_threads = True

    def __init__(self, upstream: httpx.Client, index: int, token: int) -> None:
        """Replace the token at `index` by `token`."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self._index, self._token = upstream, index, token

    def altered(self, reply: dict[str, Any]) -> dict[str, Any]:
        told = reply["__verbose"]
        told["tokens"][self._index] = self._token
        text = self.upstream.post("/detokenize", json={"tokens": told["tokens"]}, timeout=60).json()["content"]
        told["content"] = reply["choices"][0]["message"]["content"] = text
        return reply


@contextmanager
def altering(upstream: httpx.Client, index: int, token: int) -> Iterator[httpx.Client]:
    """Give a client whose answers from `upstream` have `token` at `index`."""
    proxy = Proxy(upstream, index, token)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{proxy.server_port}", trust_env=False) as client:
            yield client
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
