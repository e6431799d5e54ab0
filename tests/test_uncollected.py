"""The collector of cycles waits while pairs are read and judged."""

import gc

import pytest

from agent_ab.gate.uncollected import uncollected


def test_the_collector_waits_and_goes_on_whatever_happens() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"), uncollected():
        assert not gc.isenabled()
        raise ValueError("broken")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
