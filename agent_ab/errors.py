"""The three ways to fail: the user's mistake, a broken apparatus, and (any other exception) our bug."""

from pathlib import Path


class UserError(Exception):
    """The user's mistake: shown as one line without a traceback, exit status 2."""


class ApparatusError(Exception):
    """The apparatus broke: the attempt is INVALID and its pair VOID, never a failed check; exit status 4."""

    def __init__(self, step: str, message: str, log: Path | None = None) -> None:
        """Record which `step` broke, what happened, and the `log` that tells more."""
        super().__init__(f"{step}: {message}" + (f" (log: {log})" if log else ""))
        self.step = step
        self.message = message
        self.log = log
