"""One arm's exchanges as turns that a person can read: what was new in the request, what came back. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from agent_ab.divergence.aftermath import ToolCall, calls_of
from agent_ab.divergence.reply_diff import ending
from agent_ab.model import Exchange, ExchangeLog, Json


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a request."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange."""

    exchange: int
    asked: tuple[Said, ...]
    """Messages that the request before did not have, without the model's own."""
    reasoning: str
    content: str
    calls: tuple[ToolCall, ...]
    end: str
    """The finish reason, or the error."""


def turns(log: ExchangeLog, first: int = 0) -> tuple[Turn, ...]:
    """Return the turns of `log` from exchange `first` on."""
    found: list[Turn] = []
    before: list[Json] = []
    for exchange in log.exchanges:
        messages = _messages(exchange.request)
        if exchange.index >= first:
            found.append(_turn(exchange, _new(before, messages)))
        before = messages
    return tuple(found)


def _turn(exchange: Exchange, new: list[Json]) -> Turn:
    calls = calls_of(exchange)
    # An action that is the whole content is shown as the call that it is.
    content = exchange.content if exchange.tool_calls or not calls else ""
    asked = tuple(Said(str(message.get("role")), _text(message)) for message in new)
    return Turn(exchange.index, asked, exchange.reasoning, content, calls, ending(exchange))


def _messages(request: Json) -> list[Json]:
    messages = request.get("messages") if isinstance(request, dict) else None
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _new(before: list[Json], messages: list[Json]) -> list[Json]:
    pairs = zip(before, messages, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return [message for message in messages[same:] if message.get("role") != "assistant"]


def _text(message: Mapping[str, Json]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        pieces = [piece.get("text") for piece in content if isinstance(piece, dict)]
        return "\n".join(piece for piece in pieces if isinstance(piece, str))
    return "" if content is None else json.dumps(content, ensure_ascii=False)
