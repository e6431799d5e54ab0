"""What a machine may lack, and what takes too long to be tested each time."""

import os

import pytest

from agent_ab.agents import clock
from agent_ab.errors import UserError

ASKED = "AGENT_AB_LIVE_OPENCODE"
PINNED = "2026-03-01 12:00:00"


@pytest.fixture
def opencode() -> str:
    """Name OpenCode where its longer tests were asked for."""
    if not os.environ.get(ASKED):
        pytest.skip(f"not with OpenCode, whose pairs take a minute: `make live-opencode` sets {ASKED}=1")
    return "opencode"


@pytest.fixture
def pinned_clock() -> str:
    """Return a moment at which a clock can be pinned here."""
    try:
        clock.prepare(PINNED)
    except UserError as error:
        pytest.skip(f"PINNED CLOCKS ARE NOT TESTED: {error}")
    return PINNED
