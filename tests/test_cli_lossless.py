"""What `lossless` and `replay` say to mistakes; tests/live/test_lossless.py has them work."""

from pathlib import Path

import pytest

from agent_ab.model import RunKind
from agent_ab.store.store import Store
from tests.builders import pair
from tests.command import here


def test_help_tells_what_the_classes_mean_and_gives_an_example(tmp_path: Path) -> None:
    told = " ".join(here(tmp_path, "lossless", "--help").stdout.split())
    assert "Example: agent-ab lossless --profile cpu-demo" in told and "outside support" in told
    assert "Example: agent-ab replay" in here(tmp_path, "replay", "--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["lossless", "--classes", "poems"],
            "no request of the class 'poems'; there are: code, json, prose, reasoning, tools",
        ),
        (["lossless", "--requests", "nowhere.jsonl"], "nowhere.jsonl: no recorded requests"),
        (["replay", "some/pair"], "runs.db: no such database"),
        (["replay", "some/pair", "--url", "http://127.0.0.1:1", "--profile", "cpu-demo"], "--url and --profile"),
        (["replay", "some/pair", "--key-variable", "KEY"], "--key-variable"),
        (["lossless", "some/pair", "--profile", "cpu-demo"], "the pair some/pair has its own"),
        (["lossless", "some/pair", "--task", "csv-ledger"], "--task csv-ledger"),
    ],
    ids=lambda value: "-".join(value[:3]) if isinstance(value, list) else "",
)
def test_a_mistake_gets_one_line_and_status_2_and_leaves_nothing_behind(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = here(tmp_path, *words)
    assert (done.status, done.stdout) == (2, "")
    assert said in done.error
    assert not (tmp_path / "runs").exists()


def test_a_pair_without_a_profile_or_without_its_evidence_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    stored = pair()
    plan = {"profile": {"variable": "server.speculation"}}
    store.save_run(stored.run, "x", "0", plan, kind=RunKind.PAIR)
    store.save_pair(stored)
    store.close()
    assert "did you mean" in here(tmp_path, "replay", stored.name[:-1]).error
    assert "the evidence is not there" in here(tmp_path, "lossless", stored.name).error
