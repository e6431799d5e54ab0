"""A whole task of two checks in a directory of its own, to be broken in one place by a test."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

from agent_ab import tasks, workspace
from agent_ab.errors import UserError
from agent_ab.model import Task
from agent_ab.verify.rules import Limits

LIMITS = Limits(checks=2, probes=1)
START = "def add(a, b):\n    return a\n\n\ndef double(a):\n    return a * 2\n"
REFERENCE = START.replace("return a\n", "return a + b\n")

TASK = """
title = "Repair add"
production = ["calc.py"]
public_tests = ["python3", "-m", "unittest", "discover", "-s", "tests", "-t", "."]
starting_passes = "doubles-one"
"""
INSTRUCTION = """# Repair add

`add(a, b)` returns the sum of both numbers, however
large. `double(a)` returns twice the number, as it does today.
"""
PUBLIC = """import unittest
import calc


class CalcTest(unittest.TestCase):
    def test_calc(self):
        self.assertEqual(calc.add(5, 0), 5)
        self.assertEqual(calc.double(0), 0)
"""
DRIVER = """def main(request):
    import calc

    return getattr(calc, request["do"])(*request["numbers"])
"""
CHECKS = """from agent_ab.judging import check, expect


@check("adds-two", rule="`add(a, b)` returns the sum of both numbers, however large.")
def adds(candidate):
    expect(candidate.call({"do": "add", "numbers": [7300021, 3]}), 7300024, "the sum")


@check("doubles-one", rule="`double(a)` returns twice the number")
def doubles(candidate):
    expect(candidate.call({"do": "double", "numbers": [4]}), 8, "twice the number")
"""
PROBES = """from agent_ab.judging import expect, probe


@probe("negative", about="Negative numbers.")
def negative(candidate):
    expect(candidate.call({"do": "add", "numbers": [-1, -2]}), -3, "the sum")
"""


def patch(reference: str, mutant: str) -> str:
    """Return the patch that turns the reference's calc.py into a mutant's."""
    return "".join(difflib.unified_diff(reference.splitlines(True), mutant.splitlines(True), "a/calc.py", "b/calc.py"))


def tiny_task(tasks_dir: Path, changes: Mapping[str, str] | None = None, *, without: str = "") -> Task:
    """Write the task with the files of `changes` in place of its own, and with its fixture recorded in task.toml."""
    files = {
        "task.toml": TASK,
        "instruction.md": INSTRUCTION,
        "driver.py": DRIVER,
        "checks.py": CHECKS,
        "probes.py": PROBES,
        "fixture/calc.py": START,
        "fixture/tests/__init__.py": "",
        "fixture/tests/test_calc.py": PUBLIC,
        "solution/calc.py": REFERENCE,
        **(changes or {}),
    }
    reference = files["solution/calc.py"]
    added = next(line for line in reference.splitlines() if "return a" in line)
    files.setdefault("mutants/adds-two.patch", patch(reference, reference.replace(added, "    return a - b", 1)))
    files.setdefault("mutants/doubles-one.patch", patch(reference, reference.replace("a * 2", "a ** 2")))
    files.pop(without, None)
    root = tasks_dir / "tiny"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    commit, manifest = _recorded(tasks.load("tiny", tasks_dir), tasks_dir / "scratch")
    with (root / "task.toml").open("a", encoding="utf-8") as file:
        file.write(f'\n[fixture]\ncommit = "{commit}"\nmanifest = "{manifest}"\n')
    return tasks.load("tiny", tasks_dir)


def _recorded(task: Task, scratch: Path) -> tuple[str, str]:
    scratch.mkdir()
    try:
        workspace.checkout(task, scratch / "workspace", scratch / "trusted.git")
    except UserError as error:
        commit, manifest = re.findall(r'"([0-9a-f]{40,})"', str(error))
        return commit, manifest
    raise AssertionError("a task without [fixture] is refused")
