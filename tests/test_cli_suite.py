"""`run`, `runs` and `show` of a run: mistakes are refused before anything starts, and a dry run plays nothing."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_ab.cli import app
from agent_ab.errors import UserError
from agent_ab.store.store import Store
from tests.command import ROOT
from tests.run_files import played


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def refusal(folder: Path, *words: str) -> str:
    with inside(folder):
        result = CliRunner().invoke(app, [*words])
    assert isinstance(result.exception, UserError), result.output
    assert not (folder / "runs").exists() and not (folder / "runs.db").exists()
    return str(result.exception)


def output(folder: Path, *words: str) -> str:
    with inside(folder):
        result = CliRunner().invoke(app, [*words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_two_equal_arms_are_refused_before_hours_are_played(tmp_path: Path) -> None:
    same = (ROOT / "profiles" / "scripted-solve.toml").read_text(encoding="utf-8").split("[candidate.")[0]
    (tmp_path / "same.toml").write_text(same, encoding="utf-8")
    assert "`agent-ab aa` plays one setting against itself" in refusal(tmp_path, "run", "--profile", "same.toml")
    assert "6 are the fewest" in refusal(tmp_path, "controls", "--profile", "scripted-solve", "--seeds", "1")


def test_more_repeats_than_anybody_plays_are_refused_before_a_plan_is_made(tmp_path: Path) -> None:
    with inside(tmp_path):
        assert CliRunner().invoke(app, ["run", "--dry-run", "--repeats", "100000000"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "transfer-repare"], "did you mean transfer-repair"),
        (["--tasks", "csv-ledger,csv-ledger"], "names a task twice"),
        (["--seeds", "1,x"], "--seeds 'x': not an integer"),
        (["--seeds", "1,1"], "names a seed twice"),
        (["--tasks", ""], "names none; leave the option out for all"),
        (["--seeds", " , "], "names none; leave the option out for all"),
        (["--profile", "scripted-solv"], "did you mean scripted-solve"),
        (["--policy", "nowhere.toml"], "nowhere.toml"),
        (["--db", "no/such/parent.db"], "no/such/parent.db"),
    ],
    ids=lambda value: value[-2] if isinstance(value, list) else "",
)
def test_a_mistake_is_refused_and_nothing_is_made(tmp_path: Path, words: list[str], said: str) -> None:
    assert said in refusal(tmp_path, "run", *words)


def test_a_dry_run_shows_the_plan_and_makes_nothing(tmp_path: Path) -> None:
    shown = " ".join(output(tmp_path, "run", "--profile", "scripted-solve", "--dry-run", "--repeats", "2").split())
    assert "4 tasks x 2 seeds x 2 repeats: 16 pairs, 0 done; 32 attempts to play" in shown
    assert "1 4242 baseline 8 8 2 8675309 candidate 8 8" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_as_data_lists_what_would_be_played(tmp_path: Path) -> None:
    words = ("run", "--profile", "scripted-solve", "--dry-run", "--json", "--tasks", "csv-ledger", "--seeds", "7,4242")
    data = json.loads(output(tmp_path, *words))
    assert [left["id"] for left in data["left"]] == ["csv-ledger-7-0", "csv-ledger-4242-0"]
    assert [block["seed"] for block in data["blocks"]] == [7, 4242] and data["estimate_s"] is None


def test_the_hours_are_estimated_from_pairs_of_the_same_profile(tmp_path: Path) -> None:
    store, _ = played(tmp_path)
    store.close()
    words = ("run", "--profile", "cpu-demo", "--dry-run", "--json", "--tasks", "transfer-repair", "--seeds", "1")
    assert json.loads(output(tmp_path, *words))["estimate_s"] == 24.0


def test_runs_are_listed_and_one_of_them_shown(tmp_path: Path) -> None:
    store, _ = played(tmp_path)
    (run,) = store.runs()
    store.close()
    (listed,) = json.loads(output(tmp_path, "runs", "--json"))
    assert (listed["run"], listed["kind"], listed["outcomes"]) == (run.id, "pair", {"BROKEN": 1})
    assert run.id in output(tmp_path, "runs")
    data = json.loads(output(tmp_path, "show", run.id, "--json"))
    assert data["tries"][0]["outcome"] == "BROKEN" and data["pairs"] is None


def test_an_unknown_run_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    store, _ = played(tmp_path)
    (run,) = store.runs()
    store.close()
    with inside(tmp_path):
        result = CliRunner().invoke(app, ["show", run.id[:-1]])
    assert isinstance(result.exception, UserError) and run.id in str(result.exception)


def test_every_option_of_run_is_explained() -> None:
    shown = output(ROOT, "run", "--help")
    assert "Example: agent-ab run" in shown and "--max-hours" in shown


def test_the_store_is_not_made_by_looking(tmp_path: Path) -> None:
    assert "no such database" in refusal(tmp_path, "runs")
    Store(tmp_path / "runs.db").close()
    assert json.loads(output(tmp_path, "runs", "--json")) == []
