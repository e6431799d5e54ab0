"""Ask a model server one recorded request, streamed, and keep what it says about its own work."""

import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx

from agent_ab import connection
from agent_ab.bench.stats import Reply
from agent_ab.model import Drafting, Json
from agent_ab.requests import Recorded
from agent_ab.server import counters

_FIGURES = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n", "draft_n", "draft_n_accepted")
REPLY_S = 3600.0
"""A reply may take so long; a server that died is noticed by its connection."""


class Client:
    """Talks to one server during its life."""

    def __init__(self, url: str, key: str) -> None:
        """Prepare a connection."""
        # A connection of its own for each request: one that idles meets the server's keep-alive limit.
        self._http = connection.client(url, key, REPLY_S, Connection="close")

    def __enter__(self) -> "Client":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection: a server with a client does not stop."""
        self._http.close()

    def play(self, recorded: Recorded, body: Json, method: str, round_: int) -> Reply:
        """Send one request and return its reply, an HTTP error's included. Raises httpx.HTTPError when the server breaks."""
        before = self._counters()
        begin = time.monotonic()
        stream = {**body, "stream": True, "stream_options": {"include_usage": True}}
        story = _Story()
        with self._http.stream("POST", "/v1/chat/completions", json=stream) as response:
            if response.status_code != httpx.codes.OK:
                story.error = f"HTTP {response.status_code}: {response.read()[:300].decode('utf-8', 'replace')}"
            else:
                for event in _events(response):
                    story.take(event, time.monotonic() - begin)
        wall_s = time.monotonic() - begin
        return story.reply(recorded, method, round_, wall_s, self._counters().since(before))

    def _counters(self) -> counters.Counters:
        response = self._http.get("/metrics")
        return counters.read(response.text if response.status_code == httpx.codes.OK else "")


class _Story:
    """What a stream has told so far."""

    def __init__(self) -> None:
        self.error = ""
        self._text = hashlib.sha256()
        self._first_s: float | None = None
        self._finish = ""
        self._timings: dict[str, Any] = {}

    def take(self, event: dict[str, Any], elapsed_s: float) -> None:
        """Take in one event."""
        if "error" in event:
            self.error = self.error or f"in the stream: {json.dumps(event['error'])[:300]}"
        timings = event.get("timings")
        self._timings = (timings if isinstance(timings, dict) else {}) or _of_vllm(event) or self._timings
        for choice in event.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta") or {}
            said = [delta.get(key) for key in ("reasoning_content", "content", "tool_calls")]
            said[0] = said[0] or delta.get("reasoning")
            if any(said):
                self._first_s = elapsed_s if self._first_s is None else self._first_s
                self._text.update(_plain(said).encode())

    def reply(self, recorded: Recorded, method: str, round_: int, wall_s: float, drafting: Drafting | None) -> Reply:
        """Return the reply."""
        t = self._timings
        odd = [key for key in _FIGURES if t.get(key) is not None and not counters.plausible(t[key])]
        if odd:
            self.error, t = f"the server's {odd[0]} is no number that can be", {}
        if not self.error and not t:
            self.error = "the server gave no timings"
        if t.get("cache_n"):
            self.error = f"{t['cache_n']} prompt tokens came from a cache"
        return Reply(
            method=method,
            round=round_,
            request=recorded.id,
            kind=recorded.kind,
            prompt_n=int(t.get("prompt_n", 0)),
            prompt_ms=float(t.get("prompt_ms", 0)),
            predicted_n=int(t.get("predicted_n", 0)),
            predicted_ms=float(t.get("predicted_ms", 0)),
            ttft_s=self._first_s,
            wall_s=wall_s,
            drafting=_drafting(drafting, t),
            text_sha256=self._text.hexdigest(),
            finish=self._finish,
            error=self.error,
        )


def _of_vllm(event: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics and the usage in the last event of a vLLM as llama-server's `timings`; empty for any other."""
    metrics, usage = event.get("metrics") or {}, event.get("usage") or {}
    if metrics.get("generation_time_ms") is None or metrics.get("time_to_first_token_ms") is None:
        return {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    drafting = metrics.get("speculative_decoding") or {}
    return {
        "prompt_n": usage.get("prompt_tokens", 0) - cached,
        "prompt_ms": metrics["time_to_first_token_ms"],
        "predicted_n": usage.get("completion_tokens", 0),
        "predicted_ms": metrics["generation_time_ms"],
        "cache_n": cached,
        "draft_n": drafting.get("num_draft_tokens"),
        "draft_n_accepted": drafting.get("num_accepted_draft_tokens"),
    }


def _plain(said: list[Any]) -> str:
    """Return what was said, whatever its cut into chunks: of a tool call its name and arguments, not its random id."""
    reasoning, content, calls = said
    functions = [call.get("function") or {} for call in calls or ()]
    return "".join([reasoning or "", content or "", *(f.get("name") or "" for f in functions)]) + "".join(
        f.get("arguments") or "" for f in functions
    )


def _drafting(counted: Drafting | None, timings: dict[str, Any]) -> Drafting | None:
    """Return what was drafted: by the server's counters, else by the reply's own timings, which know no positions."""
    if counted is not None and counted.drafted:
        return counted
    drafted = int(timings.get("draft_n") or 0)
    if not drafted:
        return None
    accepted = int(timings.get("draft_n_accepted") or 0)
    return Drafting(drafts=0, drafted=drafted, accepted=accepted, accepted_at=())


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        name, _, data = line.partition(":")
        if name == "data" and data.strip() != "[DONE]":
            event = json.loads(data)
            if isinstance(event, dict):
                yield event
