"""A task small enough to be read at a glance, for tests of whatever handles tasks."""

from pathlib import Path

from agent_ab import tasks
from agent_ab.model import Task

TASK_TOML = """title = "Double"
production = ["app.py"]
public_tests = ["python3", "-m", "unittest"]
check_timeout_s = 10.0
starting_passes = "zero"

[fixture]
commit = "none yet"
manifest = "none yet"
"""
DRIVER = "def main(request):\n    import app\n    return app.double(request)\n"
CHECKS = """from agent_ab.judging import Candidate, check, expect


@check("zero", rule="Twice nothing is nothing.")
def zero(candidate: Candidate) -> None:
    expect(candidate.call(0), 0, "double(0)")


@check("number", rule="Twice a number is the number plus itself.")
def number(candidate: Candidate) -> None:
    expect(candidate.call(2129), 4258, "double(2129)")
"""
PROBES = """from agent_ab.judging import Candidate, expect, probe

from .checks import expect as same


@probe("text", about="Text is doubled too.")
def text(candidate: Candidate) -> None:
    same(candidate.call("ab"), "abab", "double('ab')")
"""
FIXTURE = {"app.py": "def double(x):\n    return 0\n", "run.sh": "#!/bin/sh\n", "data/lines.txt": "one\r\ntwo"}


def write(tree: Path, files: dict[str, str]) -> None:
    """Write `files` below `tree`, bytes as given."""
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(text.encode())


def task_directory(tasks_dir: Path, **files: str) -> Path:
    """Write the task `double` into `tasks_dir`, with `files` (`checks="..."`, `driver="..."`) in place of its own."""
    root = tasks_dir / "double"
    write(root / "fixture", FIXTURE)
    (root / "fixture" / "run.sh").chmod(0o755)
    write(root / "solution", {"app.py": "def double(x):\n    return x + x\n"})
    write(root, {"instruction.md": "Twice nothing is nothing.\nTwice a number\nis the number plus itself.\n"})
    write(root, {"driver.py": files.get("driver", DRIVER), "checks.py": files.get("checks", CHECKS)})
    write(root, {"probes.py": files.get("probes", PROBES)})
    write(root, {"task.toml": files.get("toml", TASK_TOML)})
    return root


def small_task(tasks_dir: Path, **files: str) -> Task:
    """Write and load the task `double`."""
    task_directory(tasks_dir, **files)
    return tasks.load("double", tasks_dir)
