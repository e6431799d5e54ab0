"""A run of the task `double`, on disk and in a database: its baseline doubles, its candidate does not."""

from dataclasses import replace
from pathlib import Path

from agent_ab.model import Arm, CheckResult, CheckStatus, Pair
from agent_ab.store.store import Store
from tests.builders import attempt
from tests.run_files import pair_of, played
from tests.small_task import small_task

SNAPSHOTS = {
    Arm.BASELINE: {"app.py": "def double(x):\n    return x + x\n"},
    Arm.CANDIDATE: {"app.py": "def double(x):\n    return 0\n"},
}
PAIR = "double-4242-0"
FLAKY = """from pathlib import Path

from agent_ab.judging import Candidate, check, expect, fail

COUNT = Path({count!r})


@check("number", rule="Twice a number is the number plus itself.")
def number(candidate: Candidate) -> None:
    expect(candidate.call(2129), 4258, "double(2129)")


@check("chance", rule="Whatever.")
def chance(candidate: Candidate) -> None:
    turn = len(COUNT.read_text()) if COUNT.exists() else 0
    COUNT.write_text("x" * (turn + 1))
    if turn % 2:
        fail("every second time")
"""


def result(check_id: str, *, passed: bool) -> CheckResult:
    status = CheckStatus.PASS if passed else CheckStatus.FAIL
    return CheckResult(check_id, status, "as it was", "The rule.", True, 0.1, {"reply": 1})


def double_pair() -> Pair:
    good = (result("number", passed=True), result("chance", passed=True))
    bad = (result("number", passed=False), result("chance", passed=False))
    return replace(
        pair_of(),
        id=PAIR,
        task="double",
        baseline=attempt(Arm.BASELINE, checks=good),
        candidate=attempt(Arm.CANDIDATE, 1, checks=bad),
    )


def played_double(tmp_path: Path) -> tuple[Store, Path, Path]:
    """Write the run and its task. Return the open database, runs/ and tasks/."""
    tasks_dir = tmp_path / "tasks"
    small_task(tasks_dir, checks=FLAKY.format(count=str(tmp_path / "count")), probes="")
    (tasks_dir / "double" / "probes.py").unlink()
    store, runs_dir = played(tmp_path, double_pair(), snapshots=SNAPSHOTS)
    return store, runs_dir, tasks_dir
