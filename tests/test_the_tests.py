"""What holds for the tests themselves: they try the same everywhere, and say what they cannot try."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.fakes import wrap

DRAWN = """
{loaded}
import tests.conftest
from hypothesis import given, settings, strategies as st

@settings(max_examples=300)
@given(st.tuples(st.text(), st.integers(), st.floats()))
def test_drawn(drawn):
    print(ascii(drawn))

test_drawn()
"""


def drawn(loaded: str) -> str:
    """Return all examples of one property, tried by a process of its own that has imported `loaded` first."""
    argv = [sys.executable, "-c", DRAWN.format(loaded=loaded)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_examples_are_the_same_in_every_run_whatever_other_tests_have_imported() -> None:
    first = drawn("import agent_ab.agents.builtin_agent, agent_ab.gate.gate, agent_ab.report.report")
    assert first.count("\n") > 200
    assert drawn("") == first


def test_what_needs_a_box_is_skipped_with_the_reason_where_there_is_none(tmp_path: Path) -> None:
    none = wrap.program(tmp_path / "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/live/test_agents.py", "-q"]
    environment = {**os.environ, "AGENT_AB_BWRAP": str(none)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "NO SANDBOX, so pairs are not tested: " in done.stdout and "No permissions to create" in done.stdout
