"""Who is let through, and the lines of the exchange log. Pure: no clock, no file, no socket. Standard library only.

docs/exchange-log.md documents the lines; tests/golden/exchanges.jsonl pins them.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxy.pins import Json, Pinned, Settings, Unreadable, dumps, parse, pin
from proxy.wire import Reply

FORMAT = 2
"""Version of the exchange log; a change of any line's shape raises it."""
EVIDENCE_BYTES = 256_000_000
"""So much is recorded of one attempt, then nothing more is passed on: 100 turns that end at 100,000 tokens are 25 MB."""
MODEL_PATHS = ("/v1/chat/completions", "/v1/completions")
"""What may be posted to."""
LIST_PATH = "/v1/models"
"""What may be read."""
MAX_PATH = 200
"""Most characters kept of a refused path."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def sha256(data: bytes) -> str:
    """Return the sha256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class Redactor:
    """Takes secrets out of what is recorded, and lone surrogates, which no UTF-8 file can hold."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Prepare the forms in which each of `secrets` can appear: itself, and escaped inside JSON text."""
        forms: set[str] = set()
        for secret in filter(None, secrets):
            forms |= {secret, dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        for form in self._forms:
            text = text.replace(form, "<secret>")
        return text if text.isascii() else _SURROGATE.sub("\ufffd", text)

    def json(self, value: Json) -> Json:
        """Return a copy of a JSON value without secrets, in keys and values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.json(inner) for inner in value]
        if isinstance(value, dict):
            return {self.text(key): self.json(inner) for key, inner in value.items()}
        return value


@dataclass(frozen=True, slots=True)
class Refusal:
    """The proxy's own answer to a request that the server never sees, and the line that records it."""

    status: int
    body: bytes
    line: Mapping[str, Json]


@dataclass(slots=True, eq=False)
class Passage:
    """A request on its way through: a model call, or a look at the model list."""

    path: str
    agent_sha256: str
    sent: Pinned | None
    """The body for the server; None for the model list, which has none."""
    index: int
    """Number of the exchange, from 0; -1 for the model list."""
    concurrent: bool
    started_s: float
    first_byte_s: float | None = None
    last_byte_s: float | None = None
    reply: Reply | None = None
    """None until the server answers."""
    length: int | None = None
    """Of the reply's body, when the server says it."""
    received: int = 0
    """Bytes of the reply's body so far."""

    @property
    def answered(self) -> bool:
        """Return whether the reply is whole: its reader can ask again before its connection's end is noticed."""
        return self.reply is not None and (self.reply.done or self.received == self.length)

    def feed(self, chunk: bytes, now_s: float) -> None:
        """Take the next bytes of the response's body."""
        assert self.reply is not None
        if self.first_byte_s is None:
            self.first_byte_s = now_s
        self.last_byte_s = now_s
        self.received += len(chunk)
        self.reply.feed(chunk)


class Ledger:
    """The state of one attempt's traffic: what was counted, what is open, and whether identity still holds."""

    def __init__(self, settings: Settings, secrets: Iterable[str]) -> None:
        """Begin with nothing seen."""
        self._settings = settings
        self._redact = Redactor(secrets)
        self._turns = 0
        self._exchanges = self._refused = self._lists = 0
        self._open: list[Passage] = []
        self._parted = False
        self._replied = False
        """An exchange has ended: what a model wrote may run in the box from now on."""
        self._room = EVIDENCE_BYTES
        self._full = False

    @property
    def busy(self) -> bool:
        """Return whether a model call is on its way."""
        return any(passage.index >= 0 and not passage.answered for passage in self._open)

    @property
    def full(self) -> bool:
        """Return whether the end of the evidence was recorded: nothing after it is passed on, or leaves a line."""
        return self._full

    def count(self, recorded: int) -> None:
        """Take note that a line of so many bytes was recorded."""
        self._room -= recorded

    @property
    def open(self) -> tuple[Passage, ...]:
        """Return what has begun and not ended."""
        return tuple(self._open)

    def admit(self, method: str, path: str, body: bytes, encoding: str, now_s: float) -> Passage | Refusal:
        """Decide on a complete request; `path` is its whole target, `encoding` its Content-Encoding.

        `method` is as it was sent: another spelling of POST is another method, which the server does not know.
        """
        listing = (method, path) == ("GET", LIST_PATH)
        if not listing and (method != "POST" or path not in MODEL_PATHS):
            return self._refuse(method, path, body, now_s, "path")
        if self._parted:
            return self._refuse(method, path, body, now_s, "identity")
        if self._room <= 0:
            self._full = True
            return self._refuse(method, path, body, now_s, "limit")
        if listing:
            passage = Passage(path, sha256(body), None, -1, self.busy, now_s)
        elif self.busy:
            return self._refuse(method, path, body, now_s, "concurrent" if self._replied else "concurrent-first")
        else:
            try:
                if encoding not in ("", "identity"):
                    raise Unreadable(f"the body is encoded as {encoding}")
                read = parse(body)
            except Unreadable as error:
                return self._refuse(method, path, body, now_s, "unreadable", str(error))
            digest = sha256(body)
            pinned = pin(read, self._settings, self._turns)
            if self._turns == 0 and self._settings.expected_first not in (None, self._identity(path, digest, pinned)):
                self._parted = True
                return self._refuse(method, path, body, now_s, "identity", request=read.value)
            passage = Passage(path, digest, pinned, self._turns, False, now_s)
            self._turns += 1
        self._open.append(passage)
        return passage

    def _identity(self, path: str, digest: str, pinned: Pinned) -> str:
        """Return what must be equal of two first requests (agent_ab/pair/variable.py computes the same)."""
        if self._settings.declared:
            value = self._redact.json(pinned.value)
            rest = {key: inner for key, inner in value.items() if key not in self._settings.declared}
            digest = sha256(dumps(rest).encode())
        return f"POST {path} {digest}"

    def close(self, passage: Passage, broken: str | None) -> dict[str, Json]:
        """Return the line of a passage that ended; `broken` says why its transport did so early, or is None."""
        self._open.remove(passage)
        reply = passage.reply
        if reply is not None:
            reply.end(broken)
        error = reply.error if reply else broken or "the server closed without answering"
        line: dict[str, Json] = {"kind": "models"} if passage.sent is None else self._call(passage, passage.sent)
        line |= {
            "status": reply.status if reply else None,
            "error": None if error is None else self._redact.text(error),
            "started_s": _seconds(passage.started_s),
            "first_byte_s": _seconds(passage.first_byte_s),
            "last_byte_s": _seconds(passage.last_byte_s),
        }
        if passage.sent is None:
            self._lists += 1
        else:
            self._exchanges += 1
            self._replied = True
        return line

    def lost(self, method: str, path: str, reason: str, now_s: float) -> dict[str, Json]:
        """Return the line of a request that never became complete: too long, malformed, or given up by the client."""
        allowed = path == LIST_PATH or path in MODEL_PATHS
        return dict(self._refuse(method, path, None, now_s, "unreadable" if allowed else "path", reason).line)

    def start(self, mitmproxy: str, started_at: str) -> dict[str, Json]:
        """Return the opening line."""
        return {"kind": "start", "format": FORMAT, "mitmproxy": mitmproxy, "started_at": started_at}

    def end(self) -> dict[str, Json]:
        """Return the closing line."""
        return {"kind": "end", "exchanges": self._exchanges, "refused": self._refused, "models": self._lists}

    def _call(self, passage: Passage, sent: Pinned) -> dict[str, Json]:
        reply = passage.reply or Reply(0)
        return {
            "kind": "exchange",
            "index": passage.index,
            "path": passage.path,
            "agent_sha256": passage.agent_sha256,
            "server_sha256": sha256(sent.body),
            "request": self._redact.json(sent.value),
            "pinned": sent.pinned,
            "concurrent": passage.concurrent,
            "streamed": reply.streamed if passage.reply else sent.value.get("stream") is True,
            "content": self._redact.text(reply.content),
            "reasoning": self._redact.text(reply.reasoning),
            "tool_calls": self._redact.json(reply.tool_calls),
            "finish_reason": None if reply.finish_reason is None else self._redact.text(reply.finish_reason),
            "usage": self._redact.json(reply.usage),
            "timings": reply.timings,
            "model": None if reply.model is None else self._redact.text(reply.model),
            "truncated": reply.truncated,
        }

    def _refuse(
        self,
        method: str,
        path: str,
        body: bytes | None,
        now_s: float,
        reason: str,
        detail: str = "",
        request: Json = None,
    ) -> Refusal:
        self._refused += 1
        status, message = _ANSWERS[reason]
        message += f": {detail}" if detail else ""
        error = {"code": status, "message": message, "type": f"agent_ab_{reason}"}
        line = {
            "kind": "refused",
            "method": self._redact.text(method)[:MAX_PATH],
            # A query can carry anything, a key for one.
            "path": self._redact.text(re.sub(r"\?.*", "?...", path, flags=re.DOTALL))[:MAX_PATH],
            "reason": reason,
            "detail": self._redact.text(detail),
            "agent_sha256": "" if body is None else sha256(body),
            "request": self._redact.json(request),
            "at_s": _seconds(now_s),
        }
        return Refusal(status, dumps({"error": error}).encode(), line)


_ONE = "another request is open; agent_ab passes one at a time"
_ANSWERS = {
    "path": (403, f"agent_ab passes POST {' and '.join(MODEL_PATHS)} and GET {LIST_PATH} only"),
    "identity": (409, "the first request differs from that of the pair's first attempt; nothing more is passed on"),
    "unreadable": (400, "agent_ab cannot read this request"),
    "concurrent": (409, _ONE),
    "concurrent-first": (409, _ONE),
    "limit": (403, f"this attempt's evidence has reached {EVIDENCE_BYTES} bytes; nothing more is passed on"),
}


def _seconds(moment_s: float | None) -> float | None:
    return None if moment_s is None else round(moment_s, 6)
