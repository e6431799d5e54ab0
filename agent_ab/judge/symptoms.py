"""Symptoms that reports about speculative decoding describe, counted in one arm's replies. Pure.

Each is counted in both arms: a baseline has them too, so only a difference says something.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from agent_ab.divergence.aftermath import loops, malformed_calls
from agent_ab.divergence.reply_diff import CUT_WORDS
from agent_ab.model import Exchange, Json

END_MARKS = re.compile(r"<\|(?:im_end|endoftext|eot_id|end|end_of_text|eom_id)\|>|<end_of_turn>|</s>")
"""What ends a text, in the common templates; it is never a part of the text."""
LEAST_DRAFTED = 20
"""Fewer drafted tokens make no acceptance rate that is worth comparing."""


@dataclass(frozen=True, slots=True)
class Symptoms:
    """What was counted in the replies of one arm, in the order in which its server gave them."""

    replies: int
    empty: int
    """200, and neither text nor a tool call."""
    looping: int
    """End in one passage at least four times over."""
    malformed: int
    """Tool calls whose arguments are no JSON object, and replies that the server could not parse."""
    past_end: int
    """Replies that hold a mark which ends a text, or for which the server accepted more drafted tokens than they have."""
    client_errors: int
    """4xx."""
    server_errors: int
    """5xx."""
    broken: int
    """Began with 200 and did not end properly, for another reason than that the client left."""
    length_stops: int
    """Ended at the response budget or the context's end."""
    drafted: int
    accepted: int
    early: float | None
    """Acceptance in the first half of the server's life, by drafted tokens; None with too few of them."""
    late: float | None
    """Acceptance in the second half."""

    @property
    def acceptance(self) -> float | None:
        """Return accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def drift(self) -> float | None:
        """Return how far acceptance moved from the first half to the second; negative: it fell."""
        return None if self.early is None or self.late is None else self.late - self.early


def count(exchanges: Sequence[Exchange], n_max: int | None = None) -> Symptoms:
    """Count the symptoms of one server's replies; `n_max` is the longest draft, None when it is not known."""
    timed = [e.timings for e in exchanges if e.timings]
    drafts = [(t.draft_n or 0, t.draft_n_accepted or 0) for t in timed]
    early, late = _halves(drafts)
    return Symptoms(
        replies=len(exchanges),
        empty=sum(_empty(e) for e in exchanges),
        looping=sum(loops(e.content) or loops(e.reasoning) for e in exchanges),
        malformed=sum(malformed_calls(e) for e in exchanges),
        past_end=sum(_past_end(e, n_max) for e in exchanges),
        client_errors=sum(e.status is not None and 400 <= e.status < 500 for e in exchanges),
        server_errors=sum(e.status is not None and e.status >= 500 for e in exchanges),
        broken=sum(_broken(e) for e in exchanges),
        length_stops=sum(e.finish_reason == "length" for e in exchanges),
        drafted=sum(drafted for drafted, _ in drafts),
        accepted=sum(accepted for _, accepted in drafts),
        early=early,
        late=late,
    )


def _empty(exchange: Exchange) -> bool:
    fine = exchange.status is not None and exchange.status < 400 and exchange.error is None
    return fine and not (exchange.content.strip() or exchange.reasoning.strip() or exchange.tool_calls)


def _past_end(exchange: Exchange, n_max: int | None) -> bool:
    if END_MARKS.search(exchange.content) or END_MARKS.search(exchange.reasoning):
        return True
    timings = exchange.timings
    if timings is None or not timings.draft_n or exchange.finish_reason not in ("stop", "tool_calls"):
        return False
    # The first token comes without a step, a step gives the drafted tokens that it accepts and one of its own: but the
    # last one gives none of its own when the end of the text is a drafted token.
    least_steps = -(-timings.draft_n // n_max) if n_max else 1
    return (timings.draft_n_accepted or 0) + least_steps > timings.predicted_n


def _broken(exchange: Exchange) -> bool:
    fine = exchange.status is None or exchange.status < 400
    return fine and exchange.error is not None and exchange.error not in CUT_WORDS


def _halves(drafts: Sequence[tuple[int, int]]) -> tuple[float | None, float | None]:
    total = sum(drafted for drafted, _ in drafts)
    first = [0, 0]
    for drafted, accepted in drafts:
        if first[0] * 2 >= total:
            break
        first[0] += drafted
        first[1] += accepted
    rest = total - first[0], sum(accepted for _, accepted in drafts) - first[1]
    rates = (part[1] / part[0] if part[0] >= LEAST_DRAFTED else None for part in (first, rest))
    return next(rates), next(rates)


def rows(symptoms: Symptoms) -> Mapping[str, str]:
    """Return the symptoms in words, row by row."""

    def of(number: int) -> str:
        return f"{number} of {symptoms.replies}" if number else "0"

    return {
        "replies": str(symptoms.replies),
        "draft acceptance": _share(symptoms.acceptance),
        "acceptance, first and second half": f"{_share(symptoms.early)}, {_share(symptoms.late)}",
        "empty replies": of(symptoms.empty),
        "looping replies": of(symptoms.looping),
        "malformed tool calls": str(symptoms.malformed),
        "tokens kept past the end of text": of(symptoms.past_end),
        "4xx, 5xx": f"{symptoms.client_errors}, {symptoms.server_errors}",
        "broken replies": of(symptoms.broken),
        "length stops": of(symptoms.length_stops),
    }


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


_SYMPTOMS: TypeAdapter[Symptoms] = TypeAdapter(Symptoms)


def to_json(symptoms: Symptoms) -> Json:
    """Return `symptoms` as JSON-able data; `from_json` is its inverse."""
    return _SYMPTOMS.dump_python(symptoms, mode="json")


def from_json(data: Json) -> Symptoms:
    """Return the symptoms that `to_json` wrote. Raises pydantic.ValidationError."""
    return _SYMPTOMS.validate_python(data)
