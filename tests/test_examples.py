"""What the property tests try: the same examples wherever and whenever they run."""

import subprocess
import sys

from tests.conftest import ROOT

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
