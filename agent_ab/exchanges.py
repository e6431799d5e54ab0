"""Read an exchange log back, strictly: a log that does not add up is no evidence (docs/exchange-log.md)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Never, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agent_ab.errors import ApparatusError
from agent_ab.model import Exchange, ExchangeLog, Json, RefusedRequest, Timings

STEP = "proxy"
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Line(BaseModel):
    """One line: no coercion, no unknown key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Start(_Line):
    kind: Literal["start"]
    format: Literal[1]
    mitmproxy: str
    started_at: str


class _Timings(_Line):
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Exchange(_Line):
    kind: Literal["exchange"]
    index: int = Field(ge=0)
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
    usage: dict[str, int] | None
    timings: _Timings | None
    truncated: bool
    status: int | None
    error: str | None
    started_s: float
    first_byte_s: float | None
    last_byte_s: float | None


class _Refused(_Line):
    kind: Literal["refused"]
    method: str
    path: str
    reason: Literal["path", "identity", "unreadable"]
    detail: str
    agent_sha256: Sha256 | Literal[""]
    request: dict[str, Json] | None
    at_s: float


class _Models(_Line):
    kind: Literal["models"]
    status: int | None
    error: str | None
    started_s: float
    first_byte_s: float | None
    last_byte_s: float | None


class _End(_Line):
    kind: Literal["end"]
    exchanges: int
    refused: int
    models: int


_AnyLine = _Start | _Exchange | _Refused | _Models | _End
_LINES: TypeAdapter[_AnyLine] = TypeAdapter(Annotated[_AnyLine, Field(discriminator="kind")])
_L = TypeVar("_L", bound=_Line)


def read_log(path: Path) -> ExchangeLog:
    """Return everything that passed the proxy, exchanges by index. Raises ApparatusError unless the log is whole."""
    lines = _read(path)
    if not lines or not isinstance(lines[0], _Start):
        _broken(path, "does not begin with its opening line")
    end = lines[-1]
    if not isinstance(end, _End):
        _broken(path, "has no closing line: the proxy did not end in order")
    if sum(isinstance(line, _Start | _End) for line in lines) != 2:
        _broken(path, "has an opening or closing line in its middle")
    exchanges = sorted(_of(_Exchange, lines), key=lambda line: line.index)
    refused = _of(_Refused, lines)
    counted = (len(exchanges), len(refused), len(_of(_Models, lines)))
    if counted != (end.exchanges, end.refused, end.models):
        claimed = f"{end.exchanges} exchanges, {end.refused} refusals and {end.models} model lists"
        _broken(path, f"claims {claimed} and holds {counted[0]}, {counted[1]} and {counted[2]}")
    if [line.index for line in exchanges] != list(range(len(exchanges))):
        _broken(path, "has an exchange twice or lacks one")
    return ExchangeLog(
        exchanges=tuple(_exchange(line) for line in exchanges),
        refused=tuple(
            RefusedRequest(line.method, line.path, line.reason, line.agent_sha256, line.request) for line in refused
        ),
    )


def _read(path: Path) -> list[_AnyLine]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ApparatusError(STEP, f"no exchange log at {path}") from None
    if not data.endswith(b"\n"):
        _broken(path, "ends in the middle of a line" if data else "is empty")
    lines: list[_AnyLine] = []
    for number, text in enumerate(data[:-1].split(b"\n"), start=1):
        try:
            lines.append(_LINES.validate_json(text))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"])
            _broken(path, f"line {number}: {where or 'the line'}: {fault['msg']}")
    return lines


def _of(kind: type[_L], lines: Sequence[_Line]) -> list[_L]:
    return [line for line in lines if isinstance(line, kind)]


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
        timings=None if line.timings is None else Timings(**line.timings.model_dump()),
        error=line.error,
        started_s=line.started_s,
        first_byte_s=line.first_byte_s,
        last_byte_s=line.last_byte_s,
        concurrent=line.concurrent,
        streamed=line.streamed,
    )
