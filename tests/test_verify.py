"""Which variants a task has, and what its repository may hold."""

from pathlib import Path

import git
import pytest

from agent_ab import workspace
from agent_ab.model import Task
from agent_ab.verify.verify import foreign_history, variants
from tests.tiny_task import REFERENCE, tiny_task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return tiny_task(tmp_path)


@pytest.fixture
def start(task: Task, tmp_path: Path) -> Path:
    workspace.checkout(task, tmp_path / "start", tmp_path / "start.git")
    return tmp_path / "start"


def history(task: Task, start: Path) -> tuple[str, ...]:
    return foreign_history(start / ".git", task.root / "fixture", task.root / "solution")


def commit_solution(start: Path) -> git.Repo:
    repo = git.Repo(start)
    (start / "calc.py").write_text(REFERENCE)
    repo.index.add(["calc.py"])
    repo.index.commit("The fix")
    return repo


def test_the_variants_are_the_start_the_reference_and_every_patch(task: Task) -> None:
    names = [variant.name for variant in variants(task)]
    assert names == ["the starting code", "the reference", "mutant adds-two", "mutant doubles-one"]


def test_a_fresh_workspace_has_no_foreign_history(task: Task, start: Path) -> None:
    assert history(task, start) == ()


def test_a_second_commit_is_found_with_its_solution(task: Task, start: Path) -> None:
    commit_solution(start).close()
    (start / ".git" / "logs" / "HEAD").unlink(missing_ok=True)
    found = " / ".join(history(task, start))
    assert "2 commits" in found
    assert "the content of solution/calc.py" in found


def test_a_solution_that_no_branch_leads_to_is_found(task: Task, start: Path) -> None:
    repo = git.Repo(start)
    first = repo.head.commit
    commit_solution(start).close()
    repo.head.reset(first, working_tree=True)
    repo.close()
    assert any("the content of solution/calc.py" in sentence for sentence in history(task, start))


def test_a_tag_is_found(task: Task, start: Path) -> None:
    repo = git.Repo(start)
    repo.create_tag("v1")
    repo.close()
    assert history(task, start) == (
        "the repository's references are refs/heads/main, refs/tags/v1, not one branch main",
    )


def test_a_reflog_is_found(task: Task, start: Path) -> None:
    log = start / ".git" / "logs" / "HEAD"
    log.parent.mkdir()
    log.write_text("0000 1111 someone\n")
    assert history(task, start) == ("the repository has a reflog",)


def test_a_solution_file_that_equals_the_fixtures_is_no_leak(task: Task, start: Path) -> None:
    (task.root / "solution" / "tests").mkdir()
    unchanged = (task.root / "fixture" / "tests" / "test_calc.py").read_bytes()
    (task.root / "solution" / "tests" / "test_calc.py").write_bytes(unchanged)
    assert history(task, start) == ()
