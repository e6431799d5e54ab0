"""What goes into the database comes out again, whole or not at all."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import NOT_PLAYED, Arm, ExchangeLog, Outcome, PairOutcome, RefusedRequest
from agent_ab.pair.pair import judge
from agent_ab.schedule import digest
from agent_ab.store.store import NotStorable, Store
from tests.builders import attempt, exchange, pair


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "runs.db")
    made.save_run("20260101-000000", "cpu-demo", "0.1.0", {"pairs": []})
    yield made
    made.close()


def rows(store: Store, table: str) -> int:
    with closing(sqlite3.connect(store.path)) as connection, connection:
        count: int = connection.execute(f"select count(*) from {table}").fetchone()[0]
    connection.close()
    return count


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
    with pytest.raises(NotStorable, match=r"runs\.db"):
        store.save_pair(judged)
    assert (rows(store, "pair"), rows(store, "attempt"), rows(store, "check_result")) == (1, 2, 20)


def test_a_pair_that_cannot_be_saved_leaves_no_row_behind(store: Store) -> None:
    judged = judge(pair())
    twice = replace(judged, candidate=replace(judged.candidate, checks=(*judged.candidate.checks,) * 2))
    with pytest.raises(NotStorable):
        store.save_pair(twice)
    assert (rows(store, "pair"), rows(store, "attempt")) == (0, 0)


def test_a_pair_of_an_unknown_run_is_refused(store: Store) -> None:
    with pytest.raises(NotStorable):
        store.save_pair(replace(judge(pair()), run="nowhere"))


WILD = (
    {"duration_s": float("nan")},
    {"position": 2**63},
    {"invalid_reason": "half a character: \ud800"},
)


@pytest.mark.parametrize("change", WILD, ids=lambda change: next(iter(change)))
def test_what_sqlite_cannot_hold_is_refused_and_leaves_no_row_behind(store: Store, change: dict[str, Any]) -> None:
    judged = judge(pair())
    with pytest.raises(NotStorable, match=r"runs\.db cannot hold it: "):
        store.save_pair(replace(judged, candidate=replace(judged.candidate, **change)))
    assert (rows(store, "pair"), rows(store, "attempt")) == (0, 0)


def test_a_plan_with_a_number_that_is_no_json_is_refused(store: Store) -> None:
    with pytest.raises(NotStorable, match=r"runs\.db cannot hold it: Out of range float"):
        store.save_run("20260102-000000", "cpu-demo", "0.1.0", {"limit": float("nan")})
    assert len(store.runs()) == 1


def test_a_damaged_row_is_named_and_hides_no_other(store: Store) -> None:
    store.save_run("20260102-000000", "cpu-demo", "0.1.0", {})
    store.save_pair(judge(pair()))
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("update run set plan = '{' where id = '20260102-000000'")
        connection.execute("update pair set proof = '{'")
    connection.close()
    assert len(store.runs()) == 2 and len(store.pair_states("20260101-000000")) == 1
    assert store.run("20260101-000000").plan == {"pairs": []}
    for read in (lambda: store.run("20260102-000000"), lambda: store.load_pair(judge(pair()).name)):
        with pytest.raises(ApparatusError, match=r"runs\.db cannot be read: Expecting property name"):
            read()


def test_the_database_is_in_wal_mode_and_carries_its_schema_version(store: Store) -> None:
    with closing(sqlite3.connect(store.path)) as connection, connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        steps = sorted(path.name[:4] for path in (files("agent_ab.store") / "migrations/versions").iterdir())
        assert connection.execute("select version_num from alembic_version").fetchone() == (steps[-1],)
    connection.close()


def test_opening_twice_keeps_what_is_there(store: Store) -> None:
    store.save_pair(judge(pair()))
    again = Store(store.path)
    assert again.pair_names() == ("20260101-000000/transfer-repair-4242-0",)
    again.close()


def test_a_new_database_that_several_processes_open_at_once_serves_them_all(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from agent_ab.store.store import Store; Store(Path(sys.argv[1])).close()"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "new.db")]
    opening = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in opening] == [("", 0)] * 3


def test_a_file_that_is_no_database_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("my notes, not a database")
    with pytest.raises(UserError, match=r"notes\.db"):
        Store(path)
    assert path.read_text() == "my notes, not a database"


def test_a_run_is_stored_with_its_plan_its_policy_and_their_digests(store: Store) -> None:
    plan, policy = {"seeds": [1, 2]}, {"margin": 0.05}
    store.save_run("20260102-000000", "cpu-demo", "0.1.0", plan, kind="suite", blocks=2, policy=policy)
    found = store.run("20260102-000000")
    assert (found.plan, found.policy, found.blocks, found.status) == (plan, policy, 2, "running")
    assert (found.plan_sha256, found.policy_sha256) == (digest(plan), digest(policy))
    latest = store.latest_run("suite", "cpu-demo")
    assert latest == found
    assert store.latest_run("suite", "another") is None


def test_an_unknown_run_is_the_users_mistake(store: Store) -> None:
    with pytest.raises(UserError, match=r"no run 'nowhere'"):
        store.run("nowhere")


def test_a_run_ends_goes_on_and_grows(store: Store) -> None:
    store.end_run("20260101-000000", "stopped", "interrupted")
    ended = store.run("20260101-000000")
    assert (ended.status, ended.note, ended.ended_at is None) == ("stopped", "interrupted", False)
    store.end_run("20260101-000000", "running")
    store.set_blocks("20260101-000000", 5)
    going = store.run("20260101-000000")
    assert (going.status, going.note, going.ended_at, going.blocks) == ("running", "", None, 5)


def test_a_run_is_forgotten_only_while_it_holds_no_pair(store: Store) -> None:
    store.save_run("20260102-000000", "cpu-demo", "0.1.0", {})
    assert store.forget_run("20260102-000000")
    assert not store.forget_run("20260102-000000")
    store.save_pair(judge(pair()))
    assert not store.forget_run("20260101-000000")


def test_the_runs_are_listed_newest_first_with_their_outcomes(store: Store) -> None:
    store.save_run("20260102-000000", "cpu-demo", "0.1.0", {}, kind="suite")
    store.save_pair(judge(pair()))
    newest, oldest = store.runs()
    assert (newest.kind, newest.pairs, newest.outcomes) == ("suite", 0, ())
    assert (oldest.kind, oldest.pairs, oldest.outcomes) == ("pair", 1, ((PairOutcome.BOTH_PASS, 1),))


def test_the_state_of_each_finished_pair_is_known_without_loading_it(store: Store) -> None:
    judged = judge(pair())
    store.save_pair(replace(judged, outcome=PairOutcome.VOID))
    store.save_pair(replace(judged, id=f"{judged.id}.2", attempted=2, block=3))
    first, second = store.pair_states(judged.run)
    assert (first.outcome, first.attempted, first.block) == (PairOutcome.VOID, 1, 0)
    assert (second.id, second.attempted, second.block) == (f"{judged.id}.2", 2, 3)


def test_a_locked_database_is_a_broken_apparatus_and_what_was_to_be_saved_can_be_saved_later(tmp_path: Path) -> None:
    made = Store(tmp_path / "runs.db", busy_s=0.05)
    made.save_run("20260101-000000", "cpu-demo", "0.1.0", {"pairs": []})
    judged = judge(pair())
    with closing(sqlite3.connect(made.path)) as other:
        other.execute("begin immediate")
        with pytest.raises(ApparatusError, match="database is locked"):
            made.save_pair(judged)
    made.save_pair(judged)
    assert (rows(made, "pair"), rows(made, "attempt")) == (1, 2)
    made.close()


def test_a_full_disk_is_a_broken_apparatus_and_leaves_no_part_of_a_pair(tmp_path: Path) -> None:
    made = Store(tmp_path / "runs.db")
    made.save_run("20260101-000000", "cpu-demo", "0.1.0", {"pairs": []})
    pages = made.path.stat().st_size // 4096
    made.close()
    # SQLite's own word for a full disk, a few pages from here.
    event.listen(
        made._engine, "connect", lambda connection, _: connection.execute(f"pragma max_page_count={pages + 9}")
    )
    saved = 0
    with pytest.raises(ApparatusError, match="disk is full"):
        for saved in range(100):
            made.save_pair(replace(judge(pair()), id=str(saved)))
    assert (rows(made, "pair"), rows(made, "attempt"), rows(made, "check_result")) == (saved, 2 * saved, 20 * saved)
    made.close()


def test_a_read_only_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unable to open database file"):
        Store(Path("/proc/runs.db"))


def test_voids_are_told_with_the_arm_that_broke(store: Store) -> None:
    broken = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died", checks=(), evidence=())
    unplayed = attempt(
        Arm.BASELINE, outcome=Outcome.INVALID, invalid_reason=f"{NOT_PLAYED}: so", checks=(), evidence=()
    )
    store.save_pair(judge(pair(unplayed, broken)))
    other = attempt(Arm.CANDIDATE, world={"workspace": "/elsewhere"})
    store.save_pair(judge(replace(pair(candidate=other), id="unequal")))
    first, second = store.voids("20260101-000000")
    assert (first.arm, first.reason) == (Arm.CANDIDATE, "server: died")
    assert second.arm is None and second.reason.startswith("same world: ")


def test_durations_are_those_of_whole_pairs_by_task(store: Store) -> None:
    store.save_pair(judge(pair()))
    assert store.durations("cpu-demo") == {"transfer-repair": [24.0]}
    assert store.durations("cpu-demo", Arm.CANDIDATE) == {"transfer-repair": [12.0]}
    assert store.durations("another") == {}
