"""Pure arithmetic on one attempt's exchanges: where the time went, how fast, how it ended."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from agent_ab.model import Attempt, Exchange


@dataclass(frozen=True, slots=True)
class WallTime:
    """The agent's wall clock in seconds, split; the parts add up to `total_s`."""

    total_s: float
    prefill_s: float
    """Prompt processing, by the server's own clock."""
    decode_s: float
    """Generation, by the server's own clock."""
    tools_s: float
    """Between the end of one exchange and the start of the next: the agent and its tools."""
    other_s: float
    """The rest: the agent's start and end, transport, queueing."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one attempt's exchange log adds up to."""

    turns: int
    prompt_tokens: int
    generated_tokens: int
    wall: WallTime
    tokens_per_s: float | None
    """Sum of `predicted_n` over sum of `predicted_ms`; None when nothing was generated."""
    prefill_tokens_per_s: float | None
    drafted: int
    accepted: int
    acceptance: float | None
    """Accepted over drafted tokens; None when nothing was drafted."""
    finish_reasons: Mapping[str, int]
    """`length`, `stop`, `tool_calls` ...; `error` for an exchange that ended without a reason."""
    budget_stops: int
    """Generations that ended at the response budget or the context's end."""
    tool_calls: int
    """Tools that the model asked for, by tool calls or (protocol `json`) by an action in the reply's text."""
    http_errors: int
    """Exchanges answered with 4xx or 5xx."""
    broken_streams: int
    """Exchanges that began with 200 and did not end properly."""


def measure(attempt: Attempt) -> Metrics:
    """Return the metrics of `attempt`; an attempt without an exchange log measures as no turns."""
    exchanges = attempt.log.exchanges if attempt.log else ()
    timed = [e.timings for e in exchanges if e.timings]
    generated = sum(t.predicted_n for t in timed)
    decode_ms = sum(t.predicted_ms for t in timed)
    prompt = sum(t.prompt_n for t in timed)
    prefill_ms = sum(t.prompt_ms for t in timed)
    drafted = sum(t.draft_n or 0 for t in timed)
    accepted = sum(t.draft_n_accepted or 0 for t in timed)
    reasons = Counter(e.finish_reason or "error" for e in exchanges)
    total = attempt.agent.duration_s if attempt.agent else 0.0
    return Metrics(
        turns=len(exchanges),
        prompt_tokens=prompt,
        generated_tokens=generated,
        wall=_split(exchanges, total, prefill_ms / 1e3, decode_ms / 1e3),
        tokens_per_s=generated / (decode_ms / 1e3) if decode_ms > 0 else None,
        prefill_tokens_per_s=prompt / (prefill_ms / 1e3) if prefill_ms > 0 else None,
        drafted=drafted,
        accepted=accepted,
        acceptance=accepted / drafted if drafted else None,
        finish_reasons=dict(sorted(reasons.items())),
        budget_stops=reasons["length"],
        tool_calls=sum(len(e.tool_calls) or _json_action(e) for e in exchanges),
        http_errors=sum(e.status is not None and e.status >= 400 for e in exchanges),
        broken_streams=sum(e.status is not None and e.status < 400 and e.error is not None for e in exchanges),
    )


def _json_action(exchange: Exchange) -> int:
    if not exchange.content.startswith("{"):
        return 0
    try:
        action = json.loads(exchange.content)
    except ValueError:
        return 0
    return int(isinstance(action, dict) and isinstance(action.get("tool"), str) and action["tool"] != "done")


def _split(exchanges: tuple[Exchange, ...], total_s: float, prefill_s: float, decode_s: float) -> WallTime:
    ends = [(e.started_s, e.last_byte_s) for e in exchanges if e.last_byte_s is not None]
    tools = sum(max(0.0, start - end) for (_, end), (start, _) in pairwise(ends))
    return WallTime(
        total_s=total_s,
        prefill_s=prefill_s,
        decode_s=decode_s,
        tools_s=tools,
        other_s=max(0.0, total_s - prefill_s - decode_s - tools),
    )
