"""Where two arms part, as nouns: what was found, both views of it, and one line that tells it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import TypeAdapter

from agent_ab.divergence.reply_diff import Token
from agent_ab.model import Json

SHOWN = 400
"""Most characters of a value or a continuation that are kept; the whole is in the exchange logs."""


class Kind(StrEnum):
    """What made the arms part."""

    IDENTICAL = "identical"
    """Nothing: both logs are equal to their end."""
    MODEL = "model"
    """Equal requests were answered differently."""
    DECLARED = "declared"
    """The declared variable alone: requests that differ in nothing else were answered differently, or nothing else differs."""
    ENVIRONMENT = "environment"
    """What surrounds the model differed: a request after equal replies, or when the agent stopped."""
    INFRASTRUCTURE = "infrastructure"
    """The server, the proxy or a connection broke, and no output of the model explains it."""


class Where(StrEnum):
    """On which side of an exchange the arms part."""

    NOWHERE = "nowhere"
    REQUEST = "request"
    REPLY = "reply"
    END = "end"
    """One arm went on, the other one stopped."""


@dataclass(frozen=True, slots=True)
class Side:
    """What one arm has where they part."""

    value: str
    """Of a request the text around the difference, or the value as JSON; of a reply how it goes on."""
    token: Token | None = None
    """The first token of its own."""
    end: str = ""
    """How its reply or its attempt ended."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where the two arms differ."""

    kind: Kind
    common: int
    """Exchanges that are equal, request and reply, but for what the declared variable changes in requests."""
    exchange: int | None
    """Index of the exchange in which they part."""
    where: Where
    path: str
    """JSON path in the request, or the part of the reply."""
    source: str
    """What stands at the path, in words."""
    cause: str
    """What most likely made the difference, in words."""
    character: int | None
    """Of a reply: characters in common from its beginning. Of a request: from the beginning of the value."""
    token: int | None
    """Tokens of the reply in common, by the server's own tokenizer; None when no tokens are known."""
    baseline: Side
    candidate: Side
    rules: tuple[str, ...] = ()
    """The normalising rules that explain the difference, or that the comparison rests on."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A difference between requests that a view passes over."""

    exchange: int
    path: str
    source: str
    rules: tuple[str, ...]
    baseline: str
    candidate: str


@dataclass(frozen=True, slots=True)
class Parting:
    """Both views of where the arms part."""

    raw: Divergence
    """As recorded; only the server's random call ids are mapped."""
    normalised: Divergence
    """With the differences passed over that the named rules explain."""
    ignored: tuple[Ignored, ...]
    """What the normalised view passed over, in order."""
    declared: tuple[Ignored, ...] = ()
    """What both views passed over because the declared variable changes it, in order."""


def sentence(found: Divergence) -> str:
    """Return a divergence as one line."""
    if found.where is Where.NOWHERE:
        return f"{found.kind}: {found.cause}"
    if found.where is Where.END:
        return f"{found.kind}: after {found.common} equal exchanges: {found.cause}"
    place = found.path
    if found.where is Where.REPLY and found.path not in ("error", "finish_reason"):
        index = f"character {found.character}" if found.token is None else f"token {found.token}"
        place = f"{index} of the reply ({found.path})"
    source = f", in {found.source}" if found.where is Where.REQUEST else ""
    sides = f"baseline {_told(found.baseline)}, candidate {_told(found.candidate)}"
    return f"{found.kind}: exchange {found.exchange}, {place}: {found.cause}{source}: {sides}"


def declared_words(declared: Iterable[Ignored]) -> str:
    """Return what the declared variable changes in requests, as `$.temperature (0.2, 1.0)`, each path once."""
    first = {seen.path: seen for seen in reversed(tuple(declared))}
    return ", ".join(
        f"{seen.path} ({_cut(seen.baseline)}, {_cut(seen.candidate)})" for seen in reversed(first.values())
    )


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _told(side: Side) -> str:
    text = side.token.piece if side.token else side.value
    line = _cut(text)
    if not side.end or side.end in _ORDERLY:
        return repr(line) if line else f"ends ({side.end or 'nothing'})"
    return f"{line!r}, then {side.end!r}" if line else repr(side.end)


_ORDERLY = ("stop", "tool_calls", "length")
"""Finish reasons that tell nothing while the text goes on."""


_PARTING: TypeAdapter[Parting] = TypeAdapter(Parting)


def to_json(parting: Parting) -> Json:
    """Return `parting` as JSON-able data; `from_json` is its inverse."""
    return _PARTING.dump_python(parting, mode="json")


def from_json(data: Json) -> Parting:
    """Return the parting that `to_json` wrote. Raises pydantic.ValidationError."""
    return _PARTING.validate_python(data)


def rules_used(parting: Parting) -> tuple[str, ...]:
    """Return the names of the rules that the normalised view rests on, in order."""
    named: Iterable[str] = (rule for ignored in parting.ignored for rule in ignored.rules)
    return tuple(dict.fromkeys((*parting.normalised.rules, *named)))
