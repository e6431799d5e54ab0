"""A database is opened as it may be: written and migrated, or read where nothing can be written."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from agent_ab.divergence import aftermath, divergence, parting
from agent_ab.errors import UserError
from agent_ab.store.store import Store
from tests.command import ROOT, Done, agent_ab
from tests.run_files import RUN, pair_of, played

PAIR = f"{RUN}/transfer-repair-4242-0"
READING = (["runs"], ["pairs"], ["show"], ["show", RUN], ["diff", PAIR], ["gate"], ["report"], ["export", "--json"])
DRIVE = """
import json, sys
from dataclasses import astuple
from pathlib import Path
from tests.command import here
print(json.dumps([astuple(here(Path(sys.argv[1]), *words)) for words in json.loads(sys.argv[2])]))
"""
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1" "$4"'


def commands(folder: Path, *lines: list[str], read_only: bool) -> list[Done]:
    """Run `agent-ab` with each of `lines` in `folder`, which is on a read-only disk or not."""
    words = [sys.executable, "-c", DRIVE, str(folder), json.dumps(lines)]
    if read_only:
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
        words = [*unshare, "sh", "-c", READ_ONLY, "sh", str(folder), sys.executable, DRIVE, json.dumps(lines)]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        pytest.skip(f"no read-only mount here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return [Done(*fields) for fields in json.loads(done.stdout)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = pair_of()
    found = divergence.between(made.baseline, made.candidate)
    went_on = aftermath.follow(made.baseline, made.candidate, found.raw.common)
    stored = replace(made, divergence=parting.to_json(found), aftermath=aftermath.to_json(went_on))
    store, _ = played(tmp_path, stored, pair_of(seed=5))
    store.close()
    return tmp_path


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_every_command_that_reads_says_the_same_on_a_read_only_disk(folder: Path) -> None:
    beside = sorted(path.name for path in folder.iterdir())
    found = commands(folder, *READING, read_only=True)
    expected = commands(folder, *READING, read_only=False)
    assert [done.status for done in expected] == [0, 0, 0, 0, 0, 3, 0, 0]
    assert [astuple(done) for done in found] == [astuple(done) for done in expected]
    assert sorted(path.name for path in folder.iterdir()) == beside


def test_what_is_not_yet_in_the_file_is_never_left_out_on_a_read_only_disk(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "runs.db")) as connection:
        connection.execute("update run set note = 'later'")
        connection.commit()
        assert (folder / "runs.db-wal").stat().st_size
        (folder / "runs.db-shm").rename(folder / "gone")
        (done,) = commands(folder, ["runs"], read_only=True)
    assert done.status == 2
    assert "cannot be read where nothing can be written: its last changes lie in runs.db-wal; copy it" in done.error


def test_a_command_that_writes_says_what_a_read_only_disk_says(folder: Path) -> None:
    (done,) = commands(folder, ["import", "results.csv"], read_only=True)
    assert done.status == 2 and "runs.db: cannot be used as the database: " in done.error


def test_while_another_process_plays_a_reader_sees_what_it_has_saved(folder: Path) -> None:
    with closing(Store(folder / "runs.db")) as writer, closing(Store(folder / "runs.db", to_write=False)) as reader:
        writer.save_run("later", "demo", "0.1", {})
        assert [run.id for run in reader.runs()] == ["later", RUN]


def test_an_older_database_is_brought_to_the_present_schema_by_a_command_that_reads(tmp_path: Path) -> None:
    (tmp_path / "runs.db").touch()
    done = agent_ab(tmp_path, "runs")
    assert done.status == 0, done.stderr
    assert (tmp_path / "runs.db").stat().st_size


def test_an_older_database_on_a_read_only_disk_says_so(tmp_path: Path) -> None:
    (tmp_path / "runs.db").touch()
    (done,) = commands(tmp_path, ["runs"], read_only=True)
    assert done.status == 2 and "its schema is of an older agent-ab, and must be changed; copy it" in done.error


@pytest.mark.parametrize("words", [("runs",), ("import", "results.csv")])
def test_a_database_of_a_newer_agent_ab_is_the_users_mistake_and_left_as_it_is(
    folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "results.csv").write_text("task,seed,arm,checks_passed\na,1,baseline,1\na,1,candidate,1\n")
    change(folder / "runs.db", "update alembic_version set version_num = 'm999'")
    before = (folder / "runs.db").read_bytes()
    done = agent_ab(folder, *words)
    assert done.status == 2
    assert "runs.db: was written by a newer agent-ab: its schema is m999, this one knows up to m0" in done.error
    assert (folder / "runs.db").read_bytes() == before


def test_a_database_without_a_table_is_named(folder: Path) -> None:
    change(folder / "runs.db", "alter table pair rename to other")
    done = agent_ab(folder, "pairs")
    assert done.status == 4
    assert done.error == "error: database: runs.db cannot be read: no such table: pair"


def test_a_name_with_the_marks_of_an_address_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=ro#%41 b.db"
    Store(path).close()
    assert path.is_file()
    Store(path, to_write=False).close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_text("no database")
    with pytest.raises(UserError, match=r"runs\.db: cannot be used as the database: file is not a database"):
        Store(tmp_path / "runs.db", to_write=False)
