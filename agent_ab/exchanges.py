"""Read an exchange log back, strictly: a log that does not add up is no evidence (docs/exchange-log.md)."""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent_ab.errors import ApparatusError
from agent_ab.model import Exchange, ExchangeLog, Json, RefusedRequest, Timings
from agent_ab.reading import crowded

STEP = "proxy"
KEPT_BYTES = 64_000_000
"""So much text that differs is held of one log: 16 MB are 100 turns of a conversation that ends at 100,000 tokens."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LINE_BYTES, MOST_LINES = 512_000_000, 100_000
"""A body has at most 64 MB; as JSON in ASCII it may be six times that."""
MOST = 2**53
"""Of any count: beyond it a float is no longer exact, and the database soon holds no more. No server counts so far."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Whole = Annotated[int, Field(ge=-MOST, le=MOST)]
Duration = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]


class _Line(BaseModel):
    """One line: no coercion, no unknown key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Start(_Line):
    kind: Literal["start"]
    format: Literal[1, 2]
    mitmproxy: str
    started_at: str


class _Timings(_Line):
    prompt_n: Count
    prompt_ms: Duration
    predicted_n: Count
    predicted_ms: Duration
    cache_n: Count
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class _Exchange(_Line):
    kind: Literal["exchange"]
    index: Count
    path: str
    agent_sha256: Sha256
    server_sha256: Sha256
    request: dict[str, Json]
    pinned: dict[str, Json]
    concurrent: bool
    streamed: bool
    content: str
    reasoning: str
    tool_calls: list[Json]
    finish_reason: str | None
    usage: dict[str, Whole] | None
    timings: _Timings | None
    model: str | None = None
    """Not in logs of format 1."""
    truncated: bool
    status: Count | None
    error: str | None
    started_s: Duration
    first_byte_s: Duration | None
    last_byte_s: Duration | None


class _Refused(_Line):
    kind: Literal["refused"]
    method: str
    path: str
    reason: Literal["path", "identity", "unreadable", "concurrent", "concurrent-first", "limit"]
    detail: str
    agent_sha256: Sha256 | Literal[""]
    request: dict[str, Json] | None
    at_s: Duration


class _Models(_Line):
    kind: Literal["models"]
    status: Count | None
    error: str | None
    started_s: Duration
    first_byte_s: Duration | None
    last_byte_s: Duration | None


class _End(_Line):
    kind: Literal["end"]
    exchanges: Count
    refused: Count
    models: Count


_AnyLine = _Start | _Exchange | _Refused | _Models | _End
_LINES: TypeAdapter[_AnyLine] = TypeAdapter(Annotated[_AnyLine, Field(discriminator="kind")])


def read_log(path: Path, kept_bytes: int = KEPT_BYTES) -> ExchangeLog:
    """Return everything that passed the proxy, exchanges by index. Raises ApparatusError unless the log is whole.

    An agent sends its whole conversation with every request: what is equal in two of them is held once. Beyond `kept_bytes`
    of different text, exchanges come without their bodies, and the log says so.
    """
    held = _Held(kept_bytes)
    for line in _read(path):
        held.take(line, path)
    end = held.end
    if end is None:
        _broken(path, "has no closing line: the proxy did not end in order")
    counted = (len(held.exchanges), len(held.refused), held.models)
    if counted != (end.exchanges, end.refused, end.models):
        claimed = f"{end.exchanges} exchanges, {end.refused} refusals and {end.models} model lists"
        _broken(path, f"claims {claimed} and holds {counted[0]}, {counted[1]} and {counted[2]}")
    exchanges = sorted(held.exchanges, key=lambda exchange: exchange.index)
    if [exchange.index for exchange in exchanges] != list(range(len(exchanges))):
        _broken(path, "has an exchange twice or lacks one")
    return ExchangeLog(
        exchanges=tuple(e if e.index < held.first_bare else _bare(e) for e in exchanges),
        refused=tuple(held.refused),
        bodies=None if held.first_bare == _ALL else held.first_bare,
    )


_ALL = sys.maxsize


class _Held:
    """What is kept of a log's lines while they are read one by one."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self.exchanges: list[Exchange] = []
        self.refused: list[RefusedRequest] = []
        self.models = 0
        self.end: _End | None = None
        self.first_bare = _ALL
        """Index of the first exchange whose bodies are not kept."""
        self._lines = 0
        self._bytes = 0
        self._known: dict[bytes, Json] = {}

    def take(self, line: _AnyLine, path: Path) -> None:
        if (self._lines == 0) is not isinstance(line, _Start):
            _broken(
                path, "has an opening line in its middle" if self._lines else "does not begin with its opening line"
            )
        if self.end is not None:
            _broken(path, "has a closing line in its middle")
        self._lines += 1
        match line:
            case _Exchange():
                self._exchange(line)
            case _Refused():
                self.refused.append(
                    RefusedRequest(line.method, line.path, line.reason, line.agent_sha256, line.request)
                )
            case _Models():
                self.models += 1
            case _End():
                self.end = line

    def _exchange(self, line: _Exchange) -> None:
        if line.index < self.first_bare:
            said = self._once([line.content, line.reasoning, line.tool_calls])
            request = {key: self._shared(value) for key, value in line.request.items()}
            if self._bytes <= self._kept_bytes:
                changes = {"request": request, "content": said[0], "reasoning": said[1], "tool_calls": said[2]}
                self.exchanges.append(_exchange(line.model_copy(update=changes)))
                return
            self.first_bare = line.index
            self._known.clear()
        self.exchanges.append(_bare(_exchange(line)))

    def _shared(self, value: Json) -> Json:
        """Return `value` with each of its items, a conversation's messages for example, held once."""
        return [self._once(item) for item in value] if isinstance(value, list) else self._once(value)

    def _once(self, value: Json) -> Json:
        text = json.dumps(value).encode()
        return self._known.setdefault(self._counted(text), value)

    def _counted(self, text: bytes) -> bytes:
        digest = hashlib.blake2b(text, digest_size=16).digest()
        if digest not in self._known:
            self._bytes += len(text)
        return digest


def _bare(exchange: Exchange) -> Exchange:
    return replace(exchange, request=None, content="", reasoning="", tool_calls=(None,) * len(exchange.tool_calls))


def _read(path: Path) -> Iterator[_AnyLine]:
    if not path.is_file():
        raise ApparatusError(STEP, f"no exchange log at {path}")
    number = 0
    with path.open("rb") as log:
        while text := log.readline(LINE_BYTES + 1):
            number += 1
            if len(text) > LINE_BYTES or number > MOST_LINES or crowded(text):
                _broken(path, f"line {number}: is larger than any that the proxy writes")
            if not text.endswith(b"\n"):
                _broken(path, "ends in the middle of a line")
            try:
                yield _LINES.validate_json(text)
            except ValidationError as error:
                fault = error.errors()[0]
                where = ".".join(str(part) for part in fault["loc"])
                _broken(path, f"line {number}: {where or 'the line'}: {fault['msg']}")
    if number == 0:
        _broken(path, "is empty")


def _broken(path: Path, fault: str) -> Never:
    raise ApparatusError(STEP, f"the exchange log {fault}", path)


def _exchange(line: _Exchange) -> Exchange:
    return Exchange(
        index=line.index,
        path=line.path,
        agent_sha256=line.agent_sha256,
        server_sha256=line.server_sha256,
        request=line.request,
        pinned=line.pinned,
        status=line.status,
        content=line.content,
        reasoning=line.reasoning,
        tool_calls=tuple(line.tool_calls),
        finish_reason=line.finish_reason,
        usage=line.usage,
        timings=_by_the_proxy(line) if line.timings is None else Timings(**line.timings.model_dump()),
        error=line.error,
        started_s=line.started_s,
        first_byte_s=line.first_byte_s,
        last_byte_s=line.last_byte_s,
        concurrent=line.concurrent,
        streamed=line.streamed,
        model=line.model,
    )


def _by_the_proxy(line: _Exchange) -> Timings | None:
    """Return the timings of a streamed reply whose server tells none, by the proxy's clock; None when there is no usage."""
    usage = line.usage or {}
    prompt, generated = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if (
        prompt is None
        or generated is None
        or not line.streamed
        or line.first_byte_s is None
        or line.last_byte_s is None
    ):
        return None
    cached = usage.get("prompt_tokens_details.cached_tokens", 0)
    return Timings(
        prompt_n=prompt - cached,
        prompt_ms=(line.first_byte_s - line.started_s) * 1e3,
        predicted_n=generated,
        predicted_ms=(line.last_byte_s - line.first_byte_s) * 1e3,
        cache_n=cached,
    )
