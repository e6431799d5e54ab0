"""Time limits for a program that must do something before it is cut off."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")
LIMITS_S = (0.5, 2.0, 8.0, 32.0)


def cut_off(
    run: Callable[[float], Result], did: Callable[[Result], bool], limits_s: Sequence[float] = LIMITS_S
) -> Result:
    """Return the result of the shortest limit in which the program `did` its part: a busy machine takes a longer one."""
    for limit_s in limits_s:
        result = run(limit_s)
        if did(result):
            break
    return result
