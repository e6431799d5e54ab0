"""The nouns of a bench: what is going to be played, and what came of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent_ab.bench.methods import Method
from agent_ab.bench.stats import Reply, Row, table
from agent_ab.config import Profile
from agent_ab.model import Json
from agent_ab.pair.speculation import BASELINE
from agent_ab.requests import Recorded


@dataclass(frozen=True, slots=True)
class Plan:
    """What is going to be played."""

    profile: Profile
    methods: tuple[Method, ...]
    """The baseline first."""
    requests: tuple[Recorded, ...]
    rounds: int
    tokens: int
    """Greatest number of tokens of a reply."""
    seed: int
    limit_s: float | None = None
    """After LEAST_ROUNDS, no round begins that would end later; None: all are played."""

    def as_json(self) -> Json:
        """Return the plan as it is written before anything starts."""
        return {
            "profile": self.profile.model_dump(mode="json"),
            "methods": {m.name: m.speculation.model_dump(mode="json", exclude_none=True) for m in self.methods},
            "requests": [{"id": r.id, "class": r.kind, "body": dict(r.body)} for r in self.requests],
            "rounds": self.rounds,
            "tokens": self.tokens,
            "seed": self.seed,
            "limit_s": self.limit_s,
        }


@dataclass(slots=True)
class Standing:
    """What is known of one method."""

    method: Method
    not_applied: str = ""
    """Why it was not measured, or no longer; empty when it was to the end."""
    proof: str = ""
    rss_mib: float | None = None
    vram_mib: float | None = None
    expected: float | None = None
    """The acceptance that a generated draft must show, as worked out from its script."""

    @property
    def chosen(self) -> float | None:
        """Return the acceptance that was asked for, of a draft that is generated."""
        draft = self.method.speculation.draft
        return draft.acceptance if draft and draft.source == "generated" else None


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured."""

    plan: Plan
    replies: tuple[Reply, ...]
    standings: Mapping[str, Standing]
    facts: Json
    """Engine, model and machine."""
    rounds: int
    """How many were played."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return the table of the methods that were applied."""
        applied = {name for name, standing in self.standings.items() if not standing.not_applied}
        return table((r for r in self.replies if r.method in applied), BASELINE)
