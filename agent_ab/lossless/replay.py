"""Send recorded requests to a model server, one by one, whatever it answered before: teacher-forced."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from agent_ab import connection
from agent_ab.errors import ApparatusError
from agent_ab.judge.case import Said
from agent_ab.model import Arm, Event, Exchange, Json, Observer, ServerFacts, Step, Timings
from agent_ab.server.serving import address
from agent_ab.server.serving import started as served
from agent_ab.workbench import ArmParts

PATH = "/v1/chat/completions"
ANSWER_S = 3600.0
"""Longest wait for one whole reply."""
_TIMINGS = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n")


@dataclass(frozen=True, slots=True)
class Raw:
    """What llama-server tells of a reply when it is asked (`verbose`, `return_tokens`)."""

    prompt: str
    prompt_tokens: int
    text: str
    """The generated text, before the chat template's marks were taken out of it."""
    tokens: tuple[int, ...]
    settings: Json
    """`generation_settings`: the sampler and the grammar as they really were."""
    ended: bool
    """The model ended the reply by itself."""

    @property
    def said(self) -> Said:
        """Return the reply for the judge."""
        return Said(self.tokens, self.ended)


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request and what it was answered."""

    id: str
    exchange: Exchange
    raw: Raw | None
    """None: the server is another one, an old one, or it answered with an error."""


Request = tuple[str, Mapping[str, Json]]
"""An id and a body."""


@contextmanager
def serving(of: ArmParts, arm: Arm, log: Path, observer: Observer) -> Iterator[tuple[httpx.Client, ServerFacts]]:
    """Run one arm's server, proven, with a client that may ask it. Raises ApparatusError."""
    at = address(of.engine)
    with served(of.engine, of.settings, of.model, at=at, log=log) as running:
        running.wait_ready(lambda elapsed_s: observer(Event(arm, Step.SERVER, elapsed_s=elapsed_s)))
        facts = running.prove()
        if not facts.speculation_proven:
            raise ApparatusError(Step.SERVER, f"the arm was not applied: {facts.proof}", log)
        with connection.client(at.url, at.key) as client:
            yield client, facts


Tick = Callable[[int], None]
"""Is told how many answers there are."""


def replay(client: httpx.Client, requests: Sequence[Request], tick: Tick = lambda _: None) -> tuple[Replayed, ...]:
    """Return the answers to `requests`, in order; an HTTP error is an answer. Raises ApparatusError when none comes."""
    begin = time.monotonic()
    answers: list[Replayed] = []
    for index, (name, body) in enumerate(requests):
        answers.append(_ask(client, index, name, body, begin))
        tick(index + 1)
    return tuple(answers)


def _ask(client: httpx.Client, index: int, name: str, body: Mapping[str, Json], begin: float) -> Replayed:
    asked = {**body, "stream": False}
    data = json.dumps({**asked, "verbose": True, "return_tokens": True}).encode()
    started = time.monotonic() - begin
    try:
        response = client.post(PATH, content=data, headers={"Content-Type": "application/json"}, timeout=ANSWER_S)
    except httpx.HTTPError as error:
        raise ApparatusError(Step.SERVER, f"{client.base_url} does not answer {name}: {error or type(error)}") from None
    ended = time.monotonic() - begin
    reply = _json(response)
    raw = _raw(reply.get("__verbose"))
    if raw is None and response.status_code >= 500:
        raw = _unparsed(client, asked)
    choice = _first(reply)
    message = choice.get("message") or {}
    exchange = Exchange(
        index=index,
        path=PATH,
        agent_sha256=(digest := sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()),
        server_sha256=digest,
        request=asked,
        pinned={},
        status=response.status_code,
        content=message.get("content") or "",
        reasoning=message.get("reasoning_content") or "",
        tool_calls=tuple(message.get("tool_calls") or ()),
        finish_reason=choice.get("finish_reason"),
        usage=_counts(reply.get("usage")),
        timings=_timings(reply.get("timings")),
        error=_error(response, reply),
        started_s=started,
        first_byte_s=ended,
        last_byte_s=ended,
        concurrent=False,
        streamed=False,
    )
    return Replayed(name, exchange, raw)


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _first(reply: Mapping[str, Json]) -> dict[str, Any]:
    choices = reply.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _error(response: httpx.Response, reply: Mapping[str, Json]) -> str | None:
    told = reply.get("error")
    if isinstance(told, dict):
        return str(told.get("message", told))
    if told is not None or response.status_code >= 400:
        return str(told or response.text[:200] or f"HTTP {response.status_code}")
    return None if reply.get("choices") else "the answer holds no choice"


def _counts(usage: Json) -> dict[str, int] | None:
    return {k: v for k, v in usage.items() if isinstance(v, int)} if isinstance(usage, dict) else None


def _timings(told: Json) -> Timings | None:
    if not isinstance(told, dict) or any(name not in told for name in _TIMINGS):
        return None
    given = {name: told[name] for name in _TIMINGS}
    return Timings(**given, draft_n=told.get("draft_n"), draft_n_accepted=told.get("draft_n_accepted"))


def _raw(told: Json) -> Raw | None:
    if not isinstance(told, dict) or not told.get("tokens") or "generation_settings" not in told:
        return None
    return Raw(
        prompt=told["prompt"],
        prompt_tokens=told["tokens_evaluated"],
        text=told["content"],
        tokens=tuple(told["tokens"]),
        settings=told["generation_settings"],
        ended=told.get("stop_type") in ("eos", "word"),
    )


def _unparsed(client: httpx.Client, body: Mapping[str, Json]) -> Raw | None:
    """Return what the model says to a request whose reply the server cannot parse, asked for again without the parser.

    The same prompt, sampler, grammar and seed give the same tokens wherever a server repeats itself.
    """
    probe = {**body, "max_tokens": 0, "verbose": True, "return_tokens": True}
    begun = _json(client.post(PATH, json=probe, timeout=ANSWER_S)).get("__verbose")
    if not isinstance(begun, dict) or not isinstance(begun.get("generation_settings"), dict):
        return None
    settings = begun["generation_settings"]
    asked = {name: settings[name] for name in _AGAIN if name in settings}
    own = {"n_predict": body.get("max_tokens", -1), "stream": False, "return_tokens": True, "cache_prompt": False}
    more = {"prompt": begun["prompt"], "grammar_type": "tool_calls", "seed": body.get("seed", settings.get("seed"))}
    told = _json(client.post("/completion", json={**asked, **own, **more}, timeout=ANSWER_S))
    return _raw({**told, "prompt": begun["prompt"], "generation_settings": settings} if told.get("tokens") else None)


_AGAIN = (
    *("temperature", "top_k", "top_p", "min_p", "min_keep", "typical_p", "top_n_sigma", "samplers", "logit_bias"),
    *("repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty", "stop", "dynatemp_range"),
    *("grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens", "generation_prompt"),
    *("dry_multiplier", "xtc_probability", "mirostat"),
)
"""What of a chat request's `generation_settings` makes `/completion` generate the same."""
