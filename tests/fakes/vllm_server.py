"""A small real program that behaves as `vllm serve` does, and breaks as one can.

    vllm_server.py FAULT... -- serve MODEL VLLM_ARGUMENTS

Faults: dies-loading, hangs, dies-serving, other-model, other-version, caches, hides-cache, never-drafts.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

SPLIT = sys.argv.index("--")
FAULTS, ARGS = set(sys.argv[1:SPLIT]), sys.argv[SPLIT + 1 :]


def value(name: str) -> str:
    return next((after for flag, after in pairwise(ARGS) if flag == name), "")


def say(text: str) -> None:
    print(text, flush=True)


CONFIG = json.loads(value("--speculative-config") or "null")
COUNTS = {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0}
FINISHED = 0


def metrics() -> str:
    caching = "True" if "caches" in FAULTS else "False"
    lines = [] if "hides-cache" in FAULTS else [f'vllm:cache_config_info{{enable_prefix_caching="{caching}"}} 1.0']
    if CONFIG:
        lines += [f'vllm:spec_decode_num_{name}_total{{engine="0"}} {count}.0' for name, count in COUNTS.items()]
    return "\n".join([*lines, f'vllm:request_success_total{{finished_reason="stop"}} {FINISHED}.0']) + "\n"


def answer() -> Any:
    global FINISHED
    FINISHED += 1
    if CONFIG and "never-drafts" not in FAULTS:
        COUNTS.update(drafts=COUNTS["drafts"] + 1, draft_tokens=COUNTS["draft_tokens"] + 3)
        COUNTS["accepted_tokens"] += 2
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}}
    return {"choices": [{"index": 0, "message": {"content": "one two"}, "finish_reason": "stop"}], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        served = {
            "id": "local",
            "root": "/elsewhere" if "other-model" in FAULTS else ARGS[1],
            "max_model_len": int(value("--max-model-len")),
        }
        pages: dict[str, Any] = {
            "/health": {},
            "/version": {"version": "9.9.9" if "other-version" in FAULTS else "0.32.0"},
            "/v1/models": {"data": [served]},
        }
        if self.path == "/metrics":
            self.reply(metrics().encode(), "text/plain")
        elif self.path == "/health" or self.allowed():
            self.reply(json.dumps(pages[self.path]).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.allowed():
            return
        if "dies-serving" in FAULTS and body.get("user") == "die":
            say("(Worker pid=9) ERROR 11-30 21:16:59 [x.py:1] RuntimeError: something broke")
            os._exit(1)
        if self.path == "/tokenize":
            words = body["prompt"].split(" ")
            spelt = [word if not at else f"\u0120{word}" for at, word in enumerate(words)]
            self.reply(json.dumps({"tokens": list(range(len(spelt))), "token_strs": spelt}).encode())
        else:
            self.reply(json.dumps(answer()).encode())

    def allowed(self) -> bool:
        if self.headers["authorization"] == f"Bearer {os.environ['VLLM_API_KEY']}":
            return True
        self.reply(b'{"error":"Unauthorized"}', status=401)
        return False

    def reply(self, data: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        say(f'INFO:     127.0.0.1:1 - "{self.command} {self.path} HTTP/1.1" {status} OK')

    def log_message(self, *_: object) -> None:
        pass


if "dies-loading" in FAULTS:
    sys.exit("ValueError: the model has no config")
if "hangs" in FAULTS:
    time.sleep(3600)
SPECULATION = f"SpeculativeConfig(method='{CONFIG['method']}', model=None, num_spec_tokens=3)" if CONFIG else "None"
say(f"INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: speculative_config={SPECULATION}, x=1")
ThreadingHTTPServer(("127.0.0.1", int(value("--port"))), Handler).serve_forever()
