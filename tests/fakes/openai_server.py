"""A small server with OpenAI's API and nothing more, for tests that attach to one.

    openai_server.py PORT FAULT...

Faults: two-models, loading, not-openai, refuses, canary-500.  A key of `AGENT_AB_FAKE_KEY` is asked for when it is set.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = set(sys.argv[2:])
KEY = os.environ.get("AGENT_AB_FAKE_KEY", "")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if KEY and self.headers["authorization"] != f"Bearer {KEY}":
            self.reply({"error": "key"}, 401)
        elif "loading" in FAULTS:
            self.reply({"error": "loading"}, 503)
        elif self.path != "/v1/models":
            self.reply({"error": "not found"}, 404)
        elif "not-openai" in FAULTS:
            self.reply({"models": []})
        else:
            names = ["one", "two"] if "two-models" in FAULTS else ["one"]
            self.reply({"object": "list", "data": [{"id": name} for name in names]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/v1/chat/completions":
            self.reply({"error": "not found"}, 404)
        elif "canary-500" in FAULTS:
            self.reply({"error": "broken"}, 500)
        else:
            usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
            message = {"role": "assistant", "content": "one two"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.reply({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})

    def reply(self, data: Any, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
