"""Each error says what happened and where to look."""

from pathlib import Path

from agent_ab.errors import ApparatusError


def test_a_broken_apparatus_names_its_step_and_its_log() -> None:
    error = ApparatusError("server", "died while loading", Path("runs/x/server.log"))
    assert str(error) == "server: died while loading (log: runs/x/server.log)"
    assert (error.step, error.message) == ("server", "died while loading")
