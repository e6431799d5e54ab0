"""That the user asked to stop: KeyboardInterrupt, raised inside a finaliser or a callback from C, is lost; the fact is not."""

_asked: list[int] = []


def note(signum: int) -> None:
    """Keep that a signal asked to stop; for the signal's handler."""
    _asked.append(signum)


def heed() -> None:
    """Raise KeyboardInterrupt once somebody has asked to stop. Called where something new would begin."""
    if _asked:
        raise KeyboardInterrupt
