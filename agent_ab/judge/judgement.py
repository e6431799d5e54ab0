"""What the judge says of a played pair, as nouns: its first difference, and the symptoms of both arms. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from agent_ab.judge.classes import Class, Judged, Threshold, sentence
from agent_ab.judge.symptoms import Symptoms
from agent_ab.model import Arm, Json

SCHEMA = 1
"""Version of the stored shape: 1, the first."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is kept with a pair."""

    schema: int
    judged: Judged | None
    """None: the replies did not part, or not by the model."""
    threshold: Threshold | None
    symptoms: Mapping[Arm, Symptoms]

    @property
    def sentence(self) -> str:
        """Return the judgement in one line; empty when there was nothing to judge."""
        return sentence(self.judged, self.threshold) if self.judged and self.threshold else ""


_JUDGEMENT: TypeAdapter[Judgement] = TypeAdapter(Judgement)


def to_json(judgement: Judgement) -> Json:
    """Return `judgement` as JSON-able data; `from_json` is its inverse."""
    return _JUDGEMENT.dump_python(judgement, mode="json")


def from_json(data: Json) -> Judgement:
    """Return the judgement that `to_json` wrote. Raises pydantic.ValidationError."""
    return _JUDGEMENT.validate_python(data)


def fault(judgement: Judgement | None) -> bool:
    """Return whether the judge found a token that the target would not have said."""
    return judgement is not None and judgement.judged is not None and judgement.judged.kind is Class.OUTSIDE
