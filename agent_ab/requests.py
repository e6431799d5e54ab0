"""Recorded requests: our own set, a file of the same shape, or the exchange log of an attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from agent_ab.config import Sampling, Strict
from agent_ab.errors import UserError
from agent_ab.exchanges import read_log
from agent_ab.files import text_of
from agent_ab.model import ExchangeLog, Json
from agent_ab.reading import explain, json_data

SHIPPED = Path(__file__).parent / "data" / "requests" / "agent.jsonl"
"""Short tool choices, long reasoning, JSON, code edits, prose: five of each, made by us."""
REQUESTS_BYTES = 64_000_000
_NOT_ASKED = ("stream", "stream_options", "verbose", "return_tokens")
"""How an answer is delivered; whoever asks again decides that."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request that can be sent again."""

    id: str
    kind: str
    """Its class: `tools`, `reasoning`, `json`, `code`, `prose`; `recorded` when it comes from an exchange log."""
    body: Mapping[str, Json]
    """Of `/v1/chat/completions`. Ours name no seed and no sampling: whoever sends them does."""


class _Line(Strict):
    id: str = Field(min_length=1)
    kind: str = Field(alias="class", min_length=1)
    body: dict[str, Json]


def load(path: Path | None = None) -> tuple[Recorded, ...]:
    """Read requests: our own without `path`, an exchange log by its name, else JSON lines. Raises UserError."""
    path = path or SHIPPED
    if path.name == "exchanges.jsonl":
        return of_log(read_log(path))
    try:
        lines = text_of(path, REQUESTS_BYTES).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"{path}: no recorded requests: {reason}") from None
    found = [_parse(line, f"{path}: line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UserError(f"{path}: holds no request")
    twice = {request.id for request in found if [other.id for other in found].count(request.id) > 1}
    if twice:
        raise UserError(f"{path}: the id {min(twice)!r} is there twice")
    return tuple(found)


def of_log(log: ExchangeLog) -> tuple[Recorded, ...]:
    """Return the chat requests of an exchange log as they reached the server, seed and sampling included."""
    chats = [e for e in log.exchanges if e.path.endswith("/chat/completions") and isinstance(e.request, dict)]
    return tuple(Recorded(f"exchange-{e.index}", "recorded", plain(e.request)) for e in chats)


def plain(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return a request without what only says how its answer is delivered."""
    return {key: value for key, value in body.items() if key not in _NOT_ASKED}


def pinned(body: Mapping[str, Json], sampling: Sampling, seed: int) -> dict[str, Json]:
    """Return a request with the seed and the sampling where it names none, and without any reuse of earlier prompts."""
    missing = {key: value for key, value in sampling.model_dump(mode="json").items() if body.get(key) is None}
    own = {} if body.get("seed") is not None else {"seed": seed}
    return {**body, **missing, **own, "cache_prompt": False}


def renamed(keys: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    """Return keys under what `names` calls them; what it calls nothing is left out."""
    return {names.get(key, key): value for key, value in keys.items() if names.get(key, key)}


def forced(body: Mapping[str, Json]) -> str:
    """Return why the server forces tokens on this request that no sampler chose; empty when it does not."""
    named = next((key for key in ("reasoning_budget_tokens", "thinking_budget_tokens") if body.get(key, -1) != -1), "")
    return f"the request's {named} forces tokens, which the judge does not model" if named else ""


def choose(requests: Sequence[Recorded], kinds: Sequence[str], limit: int | None) -> tuple[Recorded, ...]:
    """Return the first `limit` requests of the classes `kinds` (all of them when none is named). Raises UserError."""
    known = sorted({request.kind for request in requests})
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise UserError(f"no request of the class {unknown[0]!r}; there are: {', '.join(known)}")
    return tuple(request for request in requests if not kinds or request.kind in kinds)[:limit]


def _parse(line: str, where: str) -> Recorded:
    data = json_data(line, where)
    try:
        parsed = _Line.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error)}") from None
    if not isinstance(parsed.body.get("messages"), list):
        raise UserError(f"{where}: key 'body.messages': a list of messages is missing")
    return Recorded(parsed.id, parsed.kind, parsed.body)
