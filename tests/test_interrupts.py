"""An interrupt that a finaliser swallowed still stops the command, at the next thing that would begin."""

import gc
import signal

import pytest

from agent_ab import __main__ as entry
from agent_ab import interrupts


class Finalised:
    """What a garbage collector finalises at a bad moment."""

    def __del__(self) -> None:
        """Be interrupted."""
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_finaliser_swallowed_is_heeded_at_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_asked", [])
    before = {signum: signal.getsignal(signum) for signum in entry.SIGNALS}
    signal.signal(signal.SIGINT, entry.interrupt)
    try:
        Finalised()
        gc.collect()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    with pytest.raises(KeyboardInterrupt):
        interrupts.heed()


def test_nothing_is_heeded_that_nobody_asked() -> None:
    interrupts.heed()
