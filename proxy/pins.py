"""A request body as the agent sent it, and as it goes to the server with its pins. Pure, standard library only."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Any
"""A value that came from or goes to JSON."""

MAX_DEPTH = 128
"""Deepest nesting of a request body that is passed on; readers of the log stop at 200."""

_TOKENS_KEYS = ("max_tokens", "max_completion_tokens", "n_predict")
_SPACE = re.compile(r"[ \t\n\r]*")


class Unreadable(ValueError):
    """A request body that is not one JSON object which can be recorded faithfully."""


def dumps(value: Json) -> str:
    """Return the one way in which a value is written: compact, ASCII, keys in their given order."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the proxy is told for one attempt. No secrets: those come by environment only."""

    exchanges: str
    """Path of the exchange log, which must not exist."""
    socket: str
    """Path of the unix socket to serve."""
    seed: int
    seed_mode: str
    """`fixed` or `per-turn`."""
    sampling: Mapping[str, float]
    """Sampling keys as llama-server names them, written where the agent sends none."""
    task: str
    repeat: int
    max_tokens: int
    expected_first: str | None
    """Method, path and sha256 that the first model request must have as it left the agent; None: any."""
    declared: Sequence[str] = ()
    """Top-level keys that the declared variable changes: with any, `expected_first` is of the request as it goes to the
    server, without them."""
    fixed: Mapping[str, Json] = field(default_factory=lambda: {"cache_prompt": False})
    """More keys, written over whatever the agent sends: what runs in the box may not switch the prompt cache on."""
    model: str = ""
    """What the server calls the model; written over the agent's own name for it, unless empty."""
    begun: str = ""
    """Path of a file that grows by one byte when a model call is passed on; empty: none."""


@dataclass(frozen=True, slots=True)
class Body:
    """A request body that was read, and where its top-level members lie in the text."""

    text: str
    value: dict[str, Json]
    spans: Mapping[str, tuple[int, int]]
    """Key -> start and end of its value in `text`; of equal keys the last, as JSON parsers take it."""
    close: int
    """Offset of the closing brace."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A request body as it goes to the server."""

    body: bytes
    value: Json
    pinned: dict[str, Json]
    """What was written, by key; the nested one as `stream_options.include_usage`."""


def parse(raw: bytes) -> Body:
    """Read a request body. Raises Unreadable."""
    try:
        text = raw.decode("utf-8")
        value = json.loads(text)
        if not isinstance(value, dict):
            raise Unreadable("the body is not a JSON object")
        _check(value, 0)
        spans, close = _spans(text)
    except RecursionError:
        raise Unreadable(f"the body is nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeDecodeError:
        raise Unreadable("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise Unreadable(str(error)) from None
    return Body(text, value, spans, close)


def _check(value: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Unreadable(f"the body is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unreadable("the body holds a number that JSON cannot hold")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return
    for inner in value:
        _check(inner, depth + 1)


def _spans(text: str) -> tuple[dict[str, tuple[int, int]], int]:
    # `text` was parsed before: the walk can take the grammar for granted.
    decoder = json.JSONDecoder()
    spans: dict[str, tuple[int, int]] = {}
    at = text.index("{") + 1
    while text[at := _skip(text, at)] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = decoder.raw_decode(text, start)
        spans[key] = (start, end)
        at = _skip(text, end)
        at += text[at] == ","
    return spans, at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def seed_for(settings: Settings, turn: int) -> int:
    """Return the sampling seed of exchange number `turn`: it never depends on the arm."""
    if settings.seed_mode == "fixed":
        return settings.seed
    if settings.seed_mode == "per-turn":
        name = f"{settings.seed}/{settings.task}/{settings.repeat}/{turn}"
        # 2**32-1 asks llama-server for a random seed, so it must never come out.
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % (2**32 - 1)
    raise ValueError(f"unknown seed mode {settings.seed_mode!r}")


def pin(body: Body, settings: Settings, turn: int) -> Pinned:
    """Write seed, sampling, budget and usage keys where the agent sends none (or null), and `fixed` over any value.

    A missing member is written before the closing brace, another value is replaced in its place, and every other byte stays
    as the agent sent it; with nothing to write the body is the agent's own.
    """
    wanted: dict[str, Json] = {"seed": seed_for(settings, turn), **settings.sampling, **settings.fixed}
    if all(body.value.get(key) is None for key in _TOKENS_KEYS):
        wanted["max_tokens"] = settings.max_tokens
    sent = body.value
    written = {
        key: value
        for key, value in wanted.items()
        # As text: to Python, 0 is False.
        if sent.get(key) is None or (key in settings.fixed and dumps(sent[key]) != dumps(value))
    }
    if settings.model and body.value.get("model") != settings.model:
        written["model"] = settings.model
    pinned = dict(written)
    if body.value.get("stream") is True:
        options = body.value.get("stream_options")
        options = {} if options is None else options
        if isinstance(options, dict) and options.get("include_usage") is None:
            written["stream_options"] = {**options, "include_usage": True}
            pinned["stream_options.include_usage"] = True
    raw = _write(body, written).encode("utf-8")
    return Pinned(raw, {**body.value, **written}, pinned)


def _write(body: Body, values: Mapping[str, Json]) -> str:
    edits = [(*body.spans[key], dumps(value)) for key, value in values.items() if key in body.spans]
    members = [f"{dumps(key)}:{dumps(value)}" for key, value in values.items() if key not in body.spans]
    if members:
        lead = "," if body.spans else ""
        edits.append((body.close, body.close, lead + ",".join(members)))
    text = body.text
    for start, end, piece in sorted(edits, reverse=True):
        text = text[:start] + piece + text[end:]
    return text
