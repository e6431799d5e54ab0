"""Whether two attempts met the same machine."""

import copy
from typing import Any

import pytest

from agent_ab.pair.conditions import differences

GPU_IS = {"name": "RTX 3090", "driver": "550.1", "memory_mib": 24576}
GPU = {
    "memory_mib": 300,
    "temperature_c": 45,
    "power_w": 30,
    "power_limit_w": 350,
    "sm_mhz": 1800,
    "performance_state": 2,
    "throttled": [],
}
SEEN: dict[str, Any] = {
    "is": {"cpu": "x", "cores": 8, "gpus": [GPU_IS]},
    "start": {"load": 0.5, "temperature_c": 50.0, "gpus": [GPU]},
    "end": {"load": 1.5, "temperature_c": 60.0, "gpus": [GPU]},
    "peak": {},
    "throttled": [],
}


def changed(*path: str | int, to: object) -> dict[str, Any]:
    other: Any = copy.deepcopy(SEEN)
    place = other
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return other  # type: ignore[no-any-return]


def test_the_same_conditions_are_not_worth_a_word() -> None:
    assert differences(SEEN, copy.deepcopy(SEEN)) == ()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (changed("start", "gpus", 0, "temperature_c", to=70), "GPU 0's temperature at the start was 45 C and 70 C"),
        (changed("start", "gpus", 0, "memory_mib", to=9000), "GPU 0's memory in use at the start"),
        (changed("start", "gpus", 0, "power_limit_w", to=250), "power limit was 350 W and 250 W"),
        (changed("end", "gpus", 0, "sm_mhz", to=900), "clock at the end was 1800 MHz and 900 MHz"),
        (changed("throttled", to=["temperature"]), "slowed down by nothing and by temperature"),
        (changed("start", "load", to=20.0), "the load at the start was 0.5 and 20.0"),
        (changed("start", "temperature_c", to=80.0), "the temperature at the start was 50 C and 80 C"),
        (changed("is", "gpus", to=[]), "gpus is"),
    ],
)
def test_other_conditions_are_told_with_both_values(other: dict[str, Any], said: str) -> None:
    (line,) = differences(SEEN, other)
    assert line.startswith("machine: ") and said in line


@pytest.mark.parametrize(
    "other",
    [
        changed("start", "load", to=7.0),
        changed("start", "temperature_c", to=None),
        changed("start", "gpus", 0, "temperature_c", to=50),
        changed("end", "gpus", 0, "sm_mhz", to=None),
        changed("end", "gpus", 0, "sm_mhz", to=1700),
    ],
)
def test_what_is_small_or_unknown_is_no_difference(other: dict[str, Any]) -> None:
    assert differences(SEEN, other) == ()


def test_an_attempt_that_was_not_looked_at_has_no_conditions() -> None:
    assert differences(None, SEEN) == differences(SEEN, None) == ()
