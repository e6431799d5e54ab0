"""A small real program that behaves as a llama-server does, and breaks as one can.

    llama_server.py FAULT... -- LLAMA_SERVER_ARGUMENTS

Faults: no-spec-type, no-mtp, old-version, sigill, missing-library, fails; dies-loading, hangs, hangs-after-bind, slow-load; router, other-model,
other-build, two-slots, small-context; drafts-nothing, always-drafts, canary-500, no-template; ignores-term, dies-mid-stream, dies-in-canary,
leaves-child, silent-log, hangs-mid-stream, hangs-before-logging.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

SPLIT = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
FAULTS, ARGS = set(sys.argv[1:SPLIT]), sys.argv[SPLIT + 1 :]
HELP = """----- common params -----

-c,    --ctx-size N                     size of the prompt context
-np,   --parallel N                     number of server slots
--cache-prompt, --no-cache-prompt       whether to enable prompt caching
-lv,   --verbosity, --log-verbosity N   Set the verbosity threshold
--jinja, --no-jinja                     whether to use jinja template engine
-md,   --spec-draft-model FNAME         the draft model of `draft-dflash`
--spec-draft-n-max N                    number of tokens to draft (default: 3)
--spec-synth-rates P0,P1,...            acceptance probabilities (benchmarking only)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
"""
STARTED = time.monotonic()


def value(*names: str) -> str:
    return next((after for name, after in pairwise(ARGS) if name in names), "")


def say(text: str) -> None:
    if "silent-log" not in FAULTS:
        print(f"0.00.001.000 {text}", flush=True)


def describe_or_fail() -> None:
    if "sigill" in FAULTS:
        os.kill(os.getpid(), signal.SIGILL)
    if "missing-library" in FAULTS:
        sys.exit("llama-server: error while loading shared libraries: libllama.so.0: cannot open shared object file")
    if "fails" in FAULTS:
        sys.exit("something else is wrong")
    if "--version" in ARGS:
        old = "version: 9216 (1ff0fc138)" if "old-version" in FAULTS else "version: 0.5.0-dev (build 7, commit abc1234)"
        sys.exit(print(old, file=sys.stderr))
    if "--list-devices" in ARGS:
        sys.exit(print("Available devices:"))
    if "--help" in ARGS:
        types = "none,draft-simple,ngram-mod" if "no-mtp" in FAULTS else "none,draft-simple,draft-mtp,ngram-mod"
        row = "" if "no-spec-type" in FAULTS else f"--spec-type {types}\n{' ' * 40}types to use (default: none)\n"
        sys.exit(print(HELP + row))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        loading = "slow-load" in FAULTS and time.monotonic() < STARTED + 0.5
        if loading or "hangs-after-bind" in FAULTS:
            return self.reply({"error": {"code": 503, "message": "Loading model"}}, 503)
        if self.path == "/health":
            return self.reply({"status": "ok"})
        if self.headers.get("Authorization") != f"Bearer {os.environ['LLAMA_API_KEY']}":
            return self.reply({"error": {"code": 401}}, 401)
        return self.reply(props() if self.path == "/props" else slots())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {os.environ['LLAMA_API_KEY']}":
            say("W srv    operator(): unauthorized: Invalid API Key")
            return self.reply({"error": {"code": 401}}, 401)
        if self.path == "/apply-template":
            wrong = "no-template" in FAULTS
            return self.reply(
                {"error": "no such template"} if wrong else {"prompt": "<user>hi<assistant>"}, 500 if wrong else 200
            )
        try:
            asked = json.loads(body)
        except ValueError:
            say('W srv    operator(): got exception: {"error":{"code":500}}')
            return self.reply({"error": {"code": 500}}, 500)
        if "hangs-before-logging" in FAULTS and self.path != "/completion":
            time.sleep(3600)
        say("I srv  server_strea: conv_id= (empty=1)")
        return self.complete(asked) if self.path == "/completion" else self.stream()

    def complete(self, asked: dict[str, Any]) -> None:
        if "dies-in-canary" in FAULTS:
            print("GGML_ASSERT(layer_input != nullptr) failed", flush=True)
            os._exit(134)
        if "canary-500" in FAULTS:
            return self.reply({"error": {"code": 500, "message": "context mismatch"}}, 500)
        timings: dict[str, Any] = {
            "cache_n": 0,
            "prompt_n": 5,
            "prompt_ms": 1.0,
            "predicted_n": 12,
            "predicted_ms": 3.0,
        }
        if "always-drafts" in FAULTS or ("draft-mtp" in kinds() and "drafts-nothing" not in FAULTS):
            timings |= {"draft_n": 9, "draft_n_accepted": 4}
        settings = {"seed": asked["seed"], "temperature": 0.0, "speculative.types": ",".join(kinds())}
        return self.reply({"content": "one two", "timings": timings, "generation_settings": settings})

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"6\r\ndata: \r\n")
        self.wfile.flush()
        while "hangs-mid-stream" in FAULTS:
            time.sleep(60)
        if "dies-mid-stream" in FAULTS:
            print("CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(139)
        self.wfile.write(b"0\r\n\r\n")


def kinds() -> list[str]:
    return value("--spec-type").split(",")


def props() -> dict[str, object]:
    told: dict[str, object] = {
        "model_path": "/elsewhere/other.gguf" if "other-model" in FAULTS else value("--model"),
        "build_info": "b8-fffffff" if "other-build" in FAULTS else "b7-abc1234",
        "total_slots": 4 if "two-slots" in FAULTS else 1,
        "chat_template": "{{ messages }}",
        "media_marker": f"<{os.getpid()}>",
        "default_generation_settings": {"n_ctx": 256 if "small-context" in FAULTS else int(value("-c"))},
    }
    return told | ({"role": "router"} if "router" in FAULTS else {})


def slots() -> list[dict[str, object]]:
    return [{"id": 0, "speculative": kinds() != ["none"] and "drafts-nothing" not in FAULTS}]


def main() -> None:
    describe_or_fail()
    if "dies-loading" in FAULTS:
        say("E llama_init_from_model: failed to initialize the context: std::bad_alloc")
        sys.exit(1)
    if "ignores-term" in FAULTS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "leaves-child" in FAULTS:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=False)
    while "hangs" in FAULTS:
        time.sleep(60)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", int(value("--port"))), Handler)
    except OSError:
        say(f"E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {value('--port')}")
        sys.exit(1)
    for kind in kinds():
        if kind != "none":
            say(f"I spec common_specu: adding speculative implementation '{kind}'")
    server.serve_forever()


if __name__ == "__main__":
    main()
