"""A script of bash and curl that sends a pair's last common request to both servers: for an upstream bug report. Pure."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent_ab.divergence import parting
from agent_ab.divergence.request_diff import as_sent
from agent_ab.errors import UserError
from agent_ab.model import Arm, Exchange, ExchangeLog, Json, Pair, ServerFacts
from agent_ab.wording import plain_line

MODEL, PORT = "<model>", "<port>"
"""What stands in a recorded command line for the model's file and the port."""
_SECRET_FLAG = re.compile(r"^--?[\w-]*(?:api-key|token|secret|password)[\w-]*$")
_NOT_SECRET = ("--tokens",)
_LEFT_OUT = ("HOME", "XDG_CONFIG_HOME", "LLAMA_API_KEY", "LD_LIBRARY_PATH")
"""Of the recorded environment: private directories, the key, and where another machine's libraries were."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it reached a server."""

    index: int
    """The exchange's number."""
    path: str
    body: str
    exact: bool
    """The body's bytes are known to be those that were sent, by their sha256."""


def last_common(baseline: ExchangeLog, candidate: ExchangeLog) -> Request:
    """Return the last request up to which both servers were asked exactly the same. Raises UserError without one."""
    common: Exchange | None = None
    for mine, theirs in zip(baseline.exchanges, candidate.exchanges, strict=False):
        if (mine.path, mine.server_sha256) != (theirs.path, theirs.server_sha256):
            break
        common = mine
    if common is None:
        raise UserError("the two arms have no request in common; `agent-ab diff` shows what each asked")
    body, exact = body_of(common)
    return Request(common.index, common.path, body, exact)


def body_of(exchange: Exchange) -> tuple[str, bool]:
    """Return a recorded request's body, and whether its sha256 shows that its bytes are those that were sent.

    The log holds the parsed body. The usual ways to write JSON are tried, first for what the agent sent with the
    proxy's members after it, then for the whole.
    """
    for separators in ((",", ":"), (", ", ": ")):
        for ascii_only in (True, False):
            for text in _written(exchange, separators, ascii_only):
                if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == exchange.server_sha256:
                    return text, True
    return json.dumps(exchange.request, separators=(",", ":")), False


def script(pair: Pair, request: Request) -> str:
    """Return the script. It needs bash, curl, coreutils, grep and sed, and of llama-server and the model the paths."""
    servers = {arm: pair.attempt(arm).server for arm in Arm}
    lines = [*_heading(pair, request, servers), "set -euo pipefail", "", *_settings(servers), ""]
    lines += [*_FUNCTIONS.splitlines(), "", *_request_lines(request), ""]
    for arm in Arm:
        lines += _ask(arm, servers[arm])
    return "\n".join([*lines, "", *_COMPARISON.splitlines()]) + "\n"


def _written(exchange: Exchange, separators: tuple[str, str], ascii_only: bool) -> Iterator[str]:
    def dumps(value: Json) -> str:
        return json.dumps(value, separators=separators, ensure_ascii=ascii_only)

    request = exchange.request
    sent = as_sent(request, exchange.pinned)
    if isinstance(sent, dict) and isinstance(request, dict):
        # As proxy/pins.py writes: the missing members after the agent's own, compact and ASCII.
        added = [
            f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}"
            for key, value in request.items()
            if sent.get(key) != value
        ]
        own = {key: value for key, value in sent.items() if request.get(key) == value}
        yield dumps(own)[:-1] + ("," if own and added else "") + ",".join(added) + "}"
    yield dumps(request)


def _heading(pair: Pair, request: Request, servers: Mapping[Arm, ServerFacts | None]) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield f"# The last request that both servers of {plain_line(pair.name)} were sent (exchange {request.index})."
    yield f"# What differs between the two: {plain_line(pair.variable)}."
    if pair.divergence is not None:
        yield f"# What was seen: {plain_line(parting.sentence(parting.from_json(pair.divergence).raw))}"
    bytes_are = "the bytes that reached both servers" if request.exact else "the same JSON, not the same bytes"
    yield f"# The request below is {bytes_are}; its recorded secrets, if any, read <secret>."
    for arm, server in servers.items():
        if server:
            yield f"# {arm}: build {plain_line(server.build)}, model sha256 {server.model_sha256}"
    if all(_startable(server) for server in servers.values()):
        yield "# Usage: LLAMA_SERVER=/path/to/llama-server MODEL=/path/to/model.gguf bash reproduce.sh"
    else:
        yield "# Usage: BASELINE_URL=http://host:port CANDIDATE_URL=http://host:port bash reproduce.sh"


def _settings(servers: Mapping[Arm, ServerFacts | None]) -> Iterator[str]:
    if all(_startable(server) for server in servers.values()):
        yield "LLAMA_SERVER=${LLAMA_SERVER:-llama-server}"
        yield "MODEL=${MODEL:?name the model file}"
        yield "PORT=${PORT:-18080}"
        model = {server.model_sha256 for server in servers.values() if server}
        if len(model) == 1:
            yield f'echo "{model.pop()}  $MODEL" | sha256sum --check --quiet || echo "warning: not the recorded model" >&2'
    else:
        for arm in Arm:
            yield f"{arm.upper()}_URL=${{{arm.upper()}_URL:?name the {arm} server}}"
    yield "OUT=${OUT:-$(mktemp -d)}"
    yield 'mkdir -p "$OUT"'


def _startable(server: ServerFacts | None) -> bool:
    return server is not None and bool(server.argv) and server.argv[0] == "llama-server"


_FUNCTIONS = """server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi' EXIT

# ask NAME URL: send the request, keep the answer and the text in it.
ask() {
  curl --silent --show-error --no-buffer --max-time 3600 --output "$OUT/$1.answer" \\
    --write-out "$1: HTTP %{http_code}, %{size_download} bytes\\n" \\
    --header 'Content-Type: application/json' --data-binary "@$OUT/request.json" "$2$REQUEST_PATH"
  # The pieces of a streamed answer, put together: a server that drafts sends several tokens a piece.
  { grep -oE '"(content|reasoning_content|name|arguments|message)":"([^"\\\\]|\\\\.)*"' "$OUT/$1.answer" || true; } |
    sed -E 's/^"[a-z_]*":"//; s/"$//' | tr -d '\\n' >"$OUT/$1.text"
}

# started LOG COMMAND...: run a server until it is ready.
started() {
  log=$1
  shift
  if curl --silent --output /dev/null "http://127.0.0.1:$PORT/"; then
    echo "port $PORT is taken; name a free one: PORT=18081" >&2
    exit 1
  fi
  "$@" >"$log" 2>&1 &
  server=$!
  until curl --silent --fail --output /dev/null "http://127.0.0.1:$PORT/health"; do
    kill -0 "$server" 2>/dev/null || { tail -n 20 "$log" >&2; exit 1; }
    sleep 0.2
  done
}

# Twice: a server with a request in flight ignores the first.
stopped() {
  kill "$server" 2>/dev/null || true
  sleep 0.5
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
}"""

_COMPARISON = """if cmp -s "$OUT/baseline.text" "$OUT/candidate.text"; then
  echo "equal answers: $OUT"
else
  echo "the answers differ: $OUT"
  common=$(cmp "$OUT/baseline.text" "$OUT/candidate.text" 2>&1 | grep -oE '(byte|char) [0-9]+' | grep -oE '[0-9]+' || true)
  echo "first different byte: ${common:-the end of the shorter one}"
  for name in baseline candidate; do
    printf '%s: ' "$name"
    tail -c "+$((${common:-1} > 60 ? ${common:-1} - 60 : 1))" "$OUT/$name.text" | head -c 160
    echo
  done
fi"""


def _request_lines(request: Request) -> Iterator[str]:
    body = request.body.encode("utf-8", "surrogatepass")
    end = "END_OF_REQUEST"
    while end in request.body:
        end += "_"
    yield f"REQUEST_PATH={shlex.quote(request.path)}"
    # Quoted, so that nothing in it is expanded; `head` takes away the line's end that a here-document adds.
    yield f"head -c {len(body)} >\"$OUT/request.json\" <<'{end}'"
    yield request.body
    yield end


def _ask(arm: Arm, server: ServerFacts | None) -> Iterator[str]:
    if server is None or not _startable(server):
        yield f'ask {arm} "${arm.upper()}_URL"'
        return
    environment = {key: value for key, value in server.environment.items() if key not in _LEFT_OUT}
    # llama-server looks for configuration in HOME: an empty one, as in the recorded run.
    words = ["env", "-i", 'HOME="$OUT"', 'XDG_CONFIG_HOME="$OUT"']
    words += [f"{key}={shlex.quote(value)}" for key, value in environment.items()]
    words += ['${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"}', '"$LLAMA_SERVER"']
    yield f'started "$OUT/{arm}.server.log" {" ".join([*words, *_arguments(server.argv[1:])])}'
    yield f'ask {arm} "http://127.0.0.1:$PORT"'
    yield "stopped"


def _arguments(argv: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in argv:
        if word == MODEL:
            yield '"$MODEL"'
        elif word == PORT:
            yield '"$PORT"'
        else:
            yield shlex.quote("<redacted>" if _secret(before) else word)
        before = word


def _secret(flag: str) -> bool:
    return _SECRET_FLAG.match(flag) is not None and flag not in _NOT_SECRET
