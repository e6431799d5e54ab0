"""What the declared variable changes in requests: taken out before two of them are compared. Pure."""

from collections.abc import Set
from dataclasses import dataclass

from agent_ab.model import Json
from agent_ab.pair.variable import ANYTHING


@dataclass(frozen=True, slots=True)
class Shares:
    """Two requests, each in two parts."""

    own: tuple[Json, Json]
    """What the declared variable may change."""
    rest: tuple[Json, Json]
    """Everything else; messages keep their places."""


def shares(left: Json, right: Json, keys: Set[str], *, first: bool) -> Shares:
    """Return what the variable changes in two requests, by its `keys` (`Variable.request`), and the rest of both.

    Of `messages` it changes those before the model's first reply, in the `first` request all: later ones hold what the
    model and its tools said.
    """
    if ANYTHING in keys:
        return Shares((left, right), ({}, {}))
    if not isinstance(left, dict) or not isinstance(right, dict):
        return Shares(({}, {}), (left, right))
    openings = _opening(left, first=first), _opening(right, first=first)
    mine, my_rest = _split(left, keys, openings[0], max(openings))
    theirs, their_rest = _split(right, keys, openings[1], max(openings))
    return Shares((mine, theirs), (my_rest, their_rest))


def _opening(request: dict[str, Json], *, first: bool) -> int:
    messages = request.get("messages")
    if not isinstance(messages, list):
        return 0
    later = (
        index
        for index, message in enumerate(messages)
        if isinstance(message, dict) and message.get("role") in ("assistant", "tool")
    )
    return len(messages) if first else next(later, len(messages))


def _split(request: dict[str, Json], keys: Set[str], opening: int, places: int) -> tuple[Json, Json]:
    own: dict[str, Json] = {}
    rest: dict[str, Json] = {}
    for key, value in request.items():
        if key not in keys:
            rest[key] = value
        elif key == "messages" and isinstance(value, list):
            own[key] = value[:opening]
            rest[key] = [None] * places + value[opening:]
        else:
            own[key] = value
    return own, rest
