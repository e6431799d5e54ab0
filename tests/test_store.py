"""What goes into the database comes out again, whole or not at all."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.model import Arm, ExchangeLog, RefusedRequest
from agent_ab.pair import judge
from agent_ab.store import Store, pair_from_json, pair_to_json
from tests.builders import attempt, exchange, pair


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "runs.db")
    made.save_run("20260101-000000", "cpu-demo", "0.1.0", {"pairs": []})
    yield made
    made.close()


def rows(store: Store, table: str) -> int:
    with sqlite3.connect(store.path) as connection:
        count: int = connection.execute(f"select count(*) from {table}").fetchone()[0]
    connection.close()
    return count


def test_a_pair_survives_the_trip_through_json() -> None:
    judged = judge(pair())
    assert pair_from_json(pair_to_json(judged)) == judged


def test_a_saved_pair_is_loaded_with_everything_but_the_bodies(store: Store) -> None:
    refused = RefusedRequest("GET", "/metrics", "path", "e" * 64)
    log = ExchangeLog((exchange(0), exchange(1, timings=None)), (refused,))
    judged = judge(pair(candidate=attempt(Arm.CANDIDATE, 1, log=log)))
    store.save_pair(judged)
    loaded = store.load_pair(judged.name)
    assert (loaded.outcome, loaded.flips, loaded.proof) == (judged.outcome, judged.flips, judged.proof)
    assert loaded.candidate.server == judged.candidate.server
    assert loaded.candidate.log is not None and loaded.candidate.log.refused == (refused,)
    assert loaded.candidate.log.exchanges[0].timings == exchange(0).timings
    assert loaded.candidate.log.exchanges[1].timings is None
    assert [c.id for c in loaded.baseline.checks] == [c.id for c in judged.baseline.checks]


def test_an_attempt_without_a_log_is_loaded_without_one(store: Store) -> None:
    judged = judge(pair(candidate=attempt(Arm.CANDIDATE, log=None)))
    store.save_pair(judged)
    assert store.load_pair(judged.name).candidate.log is None


def test_the_same_pair_twice_is_refused_and_leaves_the_first_untouched(store: Store) -> None:
    judged = judge(pair())
    store.save_pair(judged)
    with pytest.raises(UserError, match=r"runs\.db"):
        store.save_pair(judged)
    assert (rows(store, "pair"), rows(store, "attempt"), rows(store, "check_result")) == (1, 2, 20)


def test_a_pair_that_cannot_be_saved_leaves_no_row_behind(store: Store) -> None:
    judged = judge(pair())
    twice = replace(judged, candidate=replace(judged.candidate, checks=(*judged.candidate.checks,) * 2))
    with pytest.raises(UserError):
        store.save_pair(twice)
    assert (rows(store, "pair"), rows(store, "attempt")) == (0, 0)


def test_a_pair_of_an_unknown_run_is_refused(store: Store) -> None:
    with pytest.raises(UserError):
        store.save_pair(replace(judge(pair()), run="nowhere"))


def test_the_database_is_in_wal_mode_and_carries_its_schema_version(store: Store) -> None:
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert connection.execute("select version_num from alembic_version").fetchone() == ("m002",)
    connection.close()


def test_opening_twice_keeps_what_is_there(store: Store) -> None:
    store.save_pair(judge(pair()))
    again = Store(store.path)
    assert again.pair_names() == ("20260101-000000/transfer-repair-4242-0",)
    again.close()


def test_a_file_that_is_no_database_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("my notes, not a database")
    with pytest.raises(UserError, match=r"notes\.db"):
        Store(path)
    assert path.read_text() == "my notes, not a database"
