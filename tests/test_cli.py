"""What the command line says to mistakes, and how it exits."""

from pathlib import Path

import pytest

from agent_ab import __version__
from agent_ab.cli.options import task_asked
from tests.command import agent_ab, here
from tests.small_suite import small_task


def test_help_teaches_with_an_example(tmp_path: Path) -> None:
    done = here(tmp_path, "pair", "--help")
    assert done.status == 0 and "Example: agent-ab pair --task transfer-repair" in done.stdout


def test_version_is_printed(tmp_path: Path) -> None:
    assert agent_ab(tmp_path, "--version").stdout == f"agent-ab {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "scripted-solve"], "build-planner, csv-ledger, expiring-cache, transfer-repair"),
        (["--tasks-dir", ".", "--profile", "scripted-solve"], "--task: name the task to run; .: it holds none"),
        (["--task", "transfer-repare"], "did you mean transfer-repair?"),
        (["--task", "transfer-repair", "--profile", "cpu-dmo"], "did you mean cpu-demo"),
        (["--task", "transfer-repair", "--seed", "-1"], "--seed -1"),
        (["--task", "transfer-repair", "--agent", "oracel"], "did you mean oracle?"),
        (["--task", "transfer-repair", "--agent", "opencode"], 'give a profile with agent.kind = "opencode"'),
        (["--task", "transfer-repair", "--tasks-dir", "nowhere"], "nowhere"),
        (["--task", "transfer-repair", "--seeds-file", "nowhere.toml"], "nowhere.toml"),
        (["--task", "transfer-repair", "--runs-dir", "no/such/parent"], "no/such/parent"),
        (["--task", "transfer-repair", "--db", "no/such/parent.db"], "no/such/parent.db"),
        (["--task", "transfer-repair", "--profiles-dir", "nowhere"], "no profiles directory nowhere"),
        (["--task", "transfer-repair", "--sandbox", "docker"], "docker"),
        (["--task", "transfer-repair", "--repeat", "-1"], "--repeat"),
    ],
    ids=lambda value: value[-2].lstrip("-") if isinstance(value, list) else "",
)
def test_a_mistake_gets_one_line_and_status_2_and_leaves_nothing_behind(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = here(tmp_path, "pair", *words)
    assert (done.status, done.stdout) == (2, "")
    assert said in done.error
    assert not (tmp_path / "runs").exists()


def test_the_only_task_of_a_directory_needs_no_name(tmp_path: Path) -> None:
    small_task(tmp_path)
    done = here(tmp_path, "pair", "--tasks-dir", "tasks", "--db", "no/such/parent.db")
    assert done.status == 2 and "no/such/parent.db" in done.error
    assert task_asked(None, tmp_path / "tasks") == "tiny"


def test_a_seed_that_is_no_integer_is_refused(tmp_path: Path) -> None:
    done = here(tmp_path, "pair", "--task", "transfer-repair", "--seed", "abc")
    assert done.status == 2 and "--seed 'abc': not an integer" in done.error


def test_an_unknown_command_is_refused(tmp_path: Path) -> None:
    done = here(tmp_path, "pare")
    assert done.status == 2 and "'pare'" in done.error


@pytest.mark.parametrize("command", ["show", "pairs"])
def test_a_missing_database_is_named_and_not_created(tmp_path: Path, command: str) -> None:
    done = here(tmp_path, command)
    assert done.status == 2 and "runs.db: no such database" in done.error
    assert list(tmp_path.iterdir()) == []
