"""What the judge needs to know of each request, told by the server before it ends: the prompt, the sampler, the grammar.

`prompts.json` of an attempt. Prompts of a conversation repeat each other, so each is kept as what it shares with the one
before, and the rest. Settings are kept once for each shape of request: everything but its messages.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from agent_ab.divergence.request_diff import first_difference
from agent_ab.files import contents
from agent_ab.model import ExchangeLog, Json
from agent_ab.requests import plain

LONGEST_FILE = 256_000_000
_LENGTHS = ("max_tokens", "max_completion_tokens", "n_predict", "seed")
"""What makes no other shape: the judge needs neither a budget nor a seed."""


class Renderer(Protocol):
    """A running model server."""

    def render(self, body: Mapping[str, Json]) -> str | None:
        """Return the prompt that it makes of a chat request; None when it cannot tell."""
        ...

    def settings_of(self, body: Mapping[str, Json]) -> Json:
        """Return the `generation_settings` of a chat request; None when it cannot tell."""
        ...


class _Prompt(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    kept: int
    """Characters in common with the last prompt before it."""
    rest: str
    shape: int


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: int
    prompts: list[_Prompt | None]
    """One an exchange."""
    settings: list[Json]
    """One a shape."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """One request as the server understood it."""

    prompt: str
    settings: Json


def record(log: ExchangeLog, server: Renderer) -> Json:
    """Return what `server` makes of every chat request of `log`, as JSON-able data."""
    shapes: dict[str, int] = {}
    settings: list[Json] = []
    prompts: list[Json] = []
    before = ""
    for exchange in log.exchanges:
        body = exchange.request
        chat = exchange.path.endswith("/chat/completions") and isinstance(body, dict)
        prompt = server.render(plain(body)) if chat else None
        if prompt is None:
            prompts.append(None)
            continue
        shape = {key: value for key, value in plain(body).items() if key not in (*_LENGTHS, "messages")}
        key = json.dumps(shape, sort_keys=True)
        if key not in shapes:
            shapes[key] = len(settings)
            settings.append(server.settings_of(shape))
        kept = first_difference(before, prompt)
        prompts.append({"kept": kept, "rest": prompt[kept:], "shape": shapes[key]})
        before = prompt
    return {"format": 1, "prompts": prompts, "settings": settings}


def read(path: Path, exchange: int) -> Recalled | str:
    """Return one request of an attempt's `prompts.json`, or why there is none."""
    try:
        found = _File.model_validate_json(contents(path, LONGEST_FILE))
    except FileNotFoundError:
        return "the pair was played before prompts were kept, or its server cannot tell them"
    except (OSError, ValidationError) as error:
        return f"{path} cannot be read: {error}".splitlines()[0]
    prompt = ""
    for entry in found.prompts[: exchange + 1]:
        if entry is not None:
            prompt = prompt[: entry.kept] + entry.rest
    entry = found.prompts[exchange] if exchange < len(found.prompts) else None
    if entry is None:
        return "the server could not tell the prompt of this request"
    settings = found.settings[entry.shape]
    if not isinstance(settings, dict):
        return "the server could not tell the sampler of this request"
    return Recalled(prompt, settings)
