"""What a model server has counted since it started, from the Prometheus text of its `/metrics`. Pure.

llama-server and vLLM count speculation under the same names, each behind its own prefix; vLLM adds how many tokens were
accepted at each position of a draft, what its prefix cache gave, and how many requests it finished.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_ab.model import Drafting

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>[-+\w.]+)(?: -?\d+)?$")
MOST = 2**53
"""Of what a server counts; a float is exact no further."""
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_POSITION = re.compile(r"[0-9]{1,9}")
_PREFIX = re.compile(r"^(?:vllm|llamacpp):")


def plausible(value: Any) -> bool:
    """Return whether a number that a server gives can be a count or a duration in milliseconds."""
    return type(value) in (int, float) and abs(value) <= MOST


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the server started; None: this server does not count it."""

    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: Mapping[int, int] | None = None
    """Accepted tokens by their position in the draft, from 0."""
    cached: int | None = None
    """Prompt tokens that came from a cache instead of being computed."""
    finished: int | None = None
    """Requests that came to an end, whatever it was."""
    serving: int | None = None
    """Requests in work now."""

    def since(self, before: "Counters") -> Drafting | None:
        """Return what was drafted since `before`; None when the server does not count it."""
        if self.drafts is None or self.drafted is None or self.accepted is None:
            return None
        positions, old = self.accepted_at or {}, before.accepted_at or {}
        return Drafting(
            drafts=self.drafts - (before.drafts or 0),
            drafted=self.drafted - (before.drafted or 0),
            accepted=self.accepted - (before.accepted or 0),
            accepted_at=tuple(positions[at] - old.get(at, 0) for at in sorted(positions)),
        )


def read(text: str) -> Counters:
    """Return the counters in a `/metrics` page; samples of several engines or reasons are added up."""
    totals: Counter[str] = Counter()
    positions: Counter[int] = Counter()
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if not found or not _PREFIX.match(found["name"]):
            continue
        name = _PREFIX.sub("", found["name"])
        try:
            number = float(found["value"])
        except ValueError:
            continue
        # NaN, the infinities and 1e300 are numbers of that format; no counter is.
        if not plausible(number):
            continue
        value = round(number)
        totals[name] += value
        position = dict(_LABEL.findall(found["labels"] or "")).get("position", "")
        if name == "spec_decode_num_accepted_tokens_per_pos_total" and _POSITION.fullmatch(position):
            positions[int(position)] += value
    return Counters(
        drafts=totals.get("spec_decode_num_drafts_total"),
        drafted=totals.get("spec_decode_num_draft_tokens_total"),
        accepted=totals.get("spec_decode_num_accepted_tokens_total"),
        accepted_at=dict(positions) or None,
        cached=totals.get("prefix_cache_hits_total", totals.get("prompt_tokens_cached_total")),
        finished=totals.get("request_success_total"),
        serving=totals.get("num_requests_running", totals.get("requests_processing")),
    )
