"""One line of the examination: what was found, and what to do."""

import pytest

from agent_ab.doctor.findings import Finding, looked
from agent_ab.errors import ApparatusError, UserError


def test_what_to_do_follows_what_was_found() -> None:
    assert Finding("git", False, "git is missing", "apt install git").words == "git is missing; apt install git"
    assert Finding("git", True, "/usr/bin/git").words == "/usr/bin/git"


@pytest.mark.parametrize(
    "error", [UserError("set x"), ApparatusError("proxy", "set x"), OSError("set x")], ids=lambda e: type(e).__name__
)
def test_every_error_of_ours_is_a_finding(error: Exception) -> None:
    def look() -> str:
        raise error

    assert looked("part", look) == Finding("part", False, "set x")
    assert looked("part", lambda: "there") == Finding("part", True, "there")


def test_a_bug_stays_a_bug() -> None:
    def look() -> str:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        looked("part", look)
