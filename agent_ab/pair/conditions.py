"""Whether two attempts met the same machine in the same state, by what `machine.Watch` recorded. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent_ab.model import Json

HOTTER_C = 10.0
FULLER_MIB = 256
SLOWER = 0.85
"""Below this share of the other arm's clock, one arm was held back."""


def differences(baseline: Json, candidate: Json) -> tuple[str, ...]:
    """Return in what the arms met different conditions, as findings; nothing when either was not looked at."""
    if baseline is None or candidate is None:
        return ()
    return tuple(f"machine: {line}" for line in _differences(baseline, candidate))


def _differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[str]:
    for name in left["is"]:
        if left["is"][name] != right["is"].get(name):
            yield f"{name} is {left['is'][name]} and {right['is'].get(name)}"
    before, after = left["start"], right["start"]
    if abs(before["load"] - after["load"]) > (left["is"]["cores"] or 1):
        yield f"the load at the start was {before['load']} and {after['load']}"
    yield from _apart("the temperature at the start", before["temperature_c"], after["temperature_c"], HOTTER_C, "C")
    for index, (one, other) in enumerate(zip(before["gpus"], after["gpus"], strict=False)):
        yield from _apart(
            f"GPU {index}'s temperature at the start", one["temperature_c"], other["temperature_c"], HOTTER_C, "C"
        )
        yield from _apart(
            f"GPU {index}'s memory in use at the start", one["memory_mib"], other["memory_mib"], FULLER_MIB, "MiB"
        )
        if one["power_limit_w"] != other["power_limit_w"]:
            yield f"GPU {index}'s power limit was {one['power_limit_w']} W and {other['power_limit_w']} W"
    for index, (one, other) in enumerate(zip(left["end"]["gpus"], right["end"]["gpus"], strict=False)):
        clocks = sorted(clock for clock in (one["sm_mhz"], other["sm_mhz"]) if clock)
        if len(clocks) == 2 and clocks[0] < SLOWER * clocks[1]:
            yield f"GPU {index}'s clock at the end was {one['sm_mhz']} MHz and {other['sm_mhz']} MHz"
    if left["throttled"] != right["throttled"]:
        slowed = [", ".join(side["throttled"]) or "nothing" for side in (left, right)]
        yield f"the GPU was slowed down by {slowed[0]} and by {slowed[1]}"


def _apart(what: str, left: float | None, right: float | None, limit: float, unit: str) -> Iterator[str]:
    if left is not None and right is not None and abs(left - right) > limit:
        yield f"{what} was {left:g} {unit} and {right:g} {unit}"
