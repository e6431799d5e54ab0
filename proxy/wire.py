"""A response's bytes, in whatever chunks they come, put together as one record. Pure, standard library only."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any
"""A value that came from or goes to JSON."""

MAX_ERROR = 2000
"""Most characters kept of an error message."""

_COUNTS = ("prompt_n", "predicted_n", "cache_n")
_DURATIONS = ("prompt_ms", "predicted_ms")
_DRAFTS = ("draft_n", "draft_n_accepted")
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one reply is kept in memory; the rest is passed on unrecorded, and the record says so."""

    text: int = 8 * 1024 * 1024
    """Characters of answer, reasoning and tool calls together."""
    line: int = 8 * 1024 * 1024
    """Bytes of one event of a stream."""
    body: int = 32 * 1024 * 1024
    """Bytes of a reply that is not a stream."""


LIMITS = Limits()
"""What the proxy uses."""


class EventStream:
    """Cuts the bytes of a server-sent event stream into (field, data) pairs, however they arrive.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    An unfinished event at the end is dropped, as that page demands.
    """

    def __init__(self, limit: int = LIMITS.line) -> None:
        """Begin before the first byte; an event of more than `limit` bytes is skipped."""
        self.truncated = False
        self._limit = limit
        self._tail = bytearray()
        self._skipping = False
        self._after_cr = False
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that `chunk` completes. llama-server's old `error:` lines count as events."""
        events: list[str] = []
        for line in self._lines(chunk):
            name, _, value = line.decode("utf-8", "replace").partition(":")
            if not line:
                if self._data:
                    events.append("\n".join(self._data))
                self._data, self._size = [], 0
            elif name in ("data", "error"):
                value = value.removeprefix(" ")
                self._size += len(line)
                if self._size > self._limit:
                    self.truncated = True
                else:
                    self._data.append(value if name == "data" else f'{{"error":{value}}}')
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        first, *rest = _LINE_END.split(chunk)
        self._extend(first)
        lines: list[bytes] = []
        for part in rest:
            if not self._skipping:
                lines.append(bytes(self._tail))
            self._tail.clear()
            self._skipping = False
            self._extend(part)
        return lines

    def _extend(self, part: bytes) -> None:
        if len(self._tail) + len(part) > self._limit:
            self._skipping = self.truncated = True
            self._tail.clear()
        if not self._skipping:
            self._tail += part


@dataclass(slots=True)
class _ToolCall:
    id: str = ""
    type: str = "function"
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def json(self) -> Json:
        function = {"name": "".join(self.name), "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": self.type, "function": function}


class Reply:
    """Puts one response together from its chunks, in bounded memory. Reads choice 0 only."""

    def __init__(self, status: int, content_type: str = "", encoding: str = "", limits: Limits = LIMITS) -> None:
        """Begin with the response's status and two of its headers."""
        self.status = status
        self.streamed = content_type.lower().startswith("text/event-stream")
        self.finish_reason: str | None = None
        self.usage: dict[str, int] | None = None
        self.timings: dict[str, float] | None = None
        self.error: str | None = None
        self.truncated = False
        self.model: str | None = None
        self._encoding = encoding
        self._limits = limits
        self._events = EventStream(limits.line)
        self._body = bytearray()
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _ToolCall] = {}
        self._room = limits.text
        self._done = False

    @property
    def done(self) -> bool:
        """Return whether the stream has said that it is over, whatever else its connection does."""
        return self._done

    @property
    def content(self) -> str:
        """Return the answer's text so far."""
        return "".join(self._content)

    @property
    def reasoning(self) -> str:
        """Return the reasoning's text so far."""
        return "".join(self._reasoning)

    @property
    def tool_calls(self) -> list[Json]:
        """Return the tool calls so far, by index."""
        return [self._calls[index].json() for index in sorted(self._calls)]

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        if self._encoding in ("", "identity"):
            if not self.streamed:
                self._keep(chunk)
                return
            for data in self._events.feed(chunk):
                self._event(data)
            self.truncated |= self._events.truncated

    def end(self, broken: str | None) -> None:
        """Take the end of the body; `broken` says why the transport ended early, or is None."""
        if self._encoding not in ("", "identity"):
            self._fail(f"the response is encoded as {self._encoding} and was not recorded")
        elif not self.streamed and broken is None:
            self._whole()
        # Nothing is missing after [DONE]: an agent that closes first has read the whole reply.
        if broken is not None and not self._done:
            self._fail(broken)
        if self.status >= 400:
            self._fail(f"HTTP {self.status}")
        if self.truncated:
            self._fail("the response is longer than the recorder's limit; the rest was passed on unrecorded")
        if self.streamed and not self._done and self.finish_reason is None:
            self._fail("the stream ended without a finish reason")

    def _keep(self, chunk: bytes) -> None:
        if len(self._body) + len(chunk) > self._limits.body:
            self.truncated = True
        elif not self.truncated:
            self._body += chunk

    def _fail(self, message: str) -> None:
        # The first error is the cause; those after it are its consequences.
        if self.error is None:
            self.error = message.strip()[:MAX_ERROR] or f"HTTP {self.status} with an empty body"

    def _whole(self) -> None:
        if self.truncated:
            return
        text = self._body.decode("utf-8", "replace")
        try:
            self._absorb(json.loads(text))
        except (ValueError, RecursionError):
            self._fail(text if self.status >= 400 else f"the response is not JSON: {text[:200]!r}")

    def _event(self, data: str) -> None:
        if data.strip() == "[DONE]":
            self._done = True
            return
        try:
            self._absorb(json.loads(data))
        except (ValueError, RecursionError):
            self._fail(f"an event is not JSON: {data[:200]}")

    def _absorb(self, value: Json) -> None:
        if not isinstance(value, dict):
            self._fail(f"not a JSON object: {str(value)[:200]}")
            return
        if value.get("error") is not None:
            self._fail(_message(value["error"]))
        if isinstance(name := value.get("model"), str):
            self.model = name[:MAX_ERROR]
        self.usage = _usage(value.get("usage")) or self.usage
        self.timings = _timings(value.get("timings")) or _vllm_timings(value.get("metrics"), self.usage) or self.timings
        for choice in _dicts(value.get("choices")):
            if choice.get("index", 0) == 0:
                self._choice(choice)

    def _choice(self, choice: Mapping[str, Json]) -> None:
        self._content += self._take(choice.get("text"))
        for message in _dicts([choice.get("delta"), choice.get("message")]):
            self._content += self._take(message.get("content"))
            reasoning = message.get("reasoning_content")
            self._reasoning += self._take(message.get("reasoning") if reasoning is None else reasoning)
            for position, call in enumerate(_dicts(message.get("tool_calls"))):
                index = call.get("index")
                self._call(call, index if isinstance(index, int) else position)
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish_reason = reason

    def _call(self, part: Mapping[str, Json], index: int) -> None:
        call = self._calls.setdefault(index, _ToolCall())
        call.id = call.id or "".join(self._take(part.get("id")))
        if isinstance(kind := part.get("type"), str):
            call.type = kind
        for function in _dicts([part.get("function")]):
            call.name += self._take(function.get("name"))
            call.arguments += self._take(function.get("arguments"))

    def _take(self, text: Json) -> list[str]:
        if not isinstance(text, str):
            return []
        if len(text) > self._room:
            self.truncated = True
        kept = text[: self._room]
        self._room -= len(kept)
        return [kept]


def _dicts(values: Json) -> list[dict[str, Json]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _message(error: Json) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(error)


def _usage(usage: Json) -> dict[str, int]:
    """Return the whole numbers of a `usage` object, the nested ones under dotted names."""
    numbers: dict[str, int] = {}
    for key, value in usage.items() if isinstance(usage, dict) else ():
        if isinstance(value, dict):
            numbers |= {f"{key}.{inner}": count for inner, count in value.items() if type(count) is int}
        elif type(value) is int:
            numbers[key] = value
    return numbers


def _timings(timings: Json) -> dict[str, float]:
    """Return what is recorded of llama-server's `timings`; empty when a part is missing. No drafts, no `draft_n`."""
    if not isinstance(timings, dict):
        return {}
    kept: dict[str, float] = {k: timings[k] for k in (*_COUNTS, *_DRAFTS) if type(timings.get(k)) is int}
    kept |= {
        k: float(timings[k]) for k in _DURATIONS if type(timings.get(k)) in (int, float) and -1e12 < timings[k] < 1e12
    }
    return kept if all(k in kept for k in (*_COUNTS, *_DURATIONS)) else {}


def _vllm_timings(metrics: Json, usage: dict[str, int] | None) -> dict[str, float]:
    """Return vLLM's per-request metrics in the form of llama-server's `timings`; empty when a part is missing.

    Its generation time begins with the first token, as llama-server's does in builds that count one token less.
    """
    if not isinstance(metrics, dict) or not usage:
        return {}
    durations = metrics.get("time_to_first_token_ms"), metrics.get("generation_time_ms")
    cached = usage.get("prompt_tokens_details.cached_tokens", 0)
    told: dict[str, Json] = {
        "prompt_n": usage.get("prompt_tokens", -1) - cached,
        "predicted_n": usage.get("completion_tokens", -1),
        "cache_n": cached,
        "prompt_ms": durations[0],
        "predicted_ms": durations[1],
    }
    drafting = metrics.get("speculative_decoding")
    # As llama-server, which tells nothing of drafts when there were none.
    if isinstance(drafting, dict) and drafting.get("num_draft_tokens"):
        told["draft_n"] = drafting["num_draft_tokens"]
        told["draft_n_accepted"] = drafting.get("num_accepted_draft_tokens")
    return {} if min(told["prompt_n"], told["predicted_n"]) < 0 else _timings(told)
