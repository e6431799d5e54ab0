"""One line of the doctor's examination."""

from collections.abc import Callable
from dataclasses import dataclass

from agent_ab.errors import ApparatusError, UserError


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one part, and what to do about it."""

    name: str
    ok: bool
    """False: a run cannot start, or would break."""
    detail: str
    todo: str = ""
    """What to do; with `ok`, what would be better."""

    @property
    def words(self) -> str:
        """Return what was found and what to do, in one line."""
        return f"{self.detail}; {self.todo}" if self.todo else self.detail


def looked(name: str, look: Callable[[], str]) -> Finding:
    """Return what `look` tells, or how it fails: every error of ours says what to do."""
    try:
        return Finding(name, True, look())
    except ApparatusError as error:
        return Finding(name, False, error.message)
    except (UserError, OSError) as error:
        return Finding(name, False, str(error))
