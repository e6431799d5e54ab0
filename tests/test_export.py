"""A run as JSON, CSV and Parquet: the same rows in each, and no cell that a spreadsheet would run."""

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agent_ab.errors import UserError
from agent_ab.export import ctrf, export, records
from agent_ab.model import AgentEnd, AgentRun, Arm
from agent_ab.review import marks
from agent_ab.review.marks import Mark, MarkKind
from agent_ab.store.store import Store
from tests.builders import attempt, check
from tests.command import here
from tests.run_files import RUN, pair_of, played

HOSTILE = '=HYPERLINK("http://evil","x"),"a\nb'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    hostile = replace(check("check-0"), reason=HOSTILE, rule="-1+1")
    agent = AgentRun(AgentEnd.CRASHED, 1, 10.0, 120.0, note="@SUM(A1)")
    made = replace(
        pair_of(),
        candidate=attempt(Arm.CANDIDATE, 9, checks=(hostile, *pair_of().candidate.checks[1:]), agent=agent),
    )
    store, _ = played(tmp_path, made, pair_of(7, (10, 10)))
    marks.add(store, RUN, Mark(made.id, "check-3", MarkKind.REAL, "'quoted"))
    yield store
    store.close()


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_all_three_forms_hold_the_same_rows(store: Store, tmp_path: Path) -> None:
    data = export.to_json(export.document(store, RUN))
    export.write_csv(store, RUN, tmp_path / "csv")
    export.write_parquet(store, RUN, tmp_path / "parquet")
    assert data["schema"] == 1 and data["run"]["id"] == RUN and data["verdict"] is None
    assert {name: len(data[name]) for name in records.TABLES} == {
        "pairs": 2,
        "attempts": 4,
        "checks": 40,
        "exchanges": 8,
        "marks": 1,
    }
    for name in records.TABLES:
        table = pq.read_table(tmp_path / "parquet" / f"{name}.parquet")
        assert table.to_pylist() == data[name]
        written = read_csv(tmp_path / "csv" / f"{name}.csv")
        assert written == [{key: export.cell(value) for key, value in row.items()} for row in data[name]]


def test_no_cell_of_a_csv_file_begins_as_a_formula(store: Store, tmp_path: Path) -> None:
    for path in export.write_csv(store, RUN, tmp_path / "csv"):
        for row in read_csv(path):
            for key, text in row.items():
                numeric = key not in ("reason", "rule", "note", "agent_note", "findings")
                assert not text.lstrip().startswith(("=", "+", "@", "\t", "\r")), (path.name, key)
                assert numeric or not text.startswith("-")
    (hostile, *_) = [row for row in read_csv(tmp_path / "csv" / "checks.csv") if "HYPERLINK" in row["reason"]]
    assert hostile["reason"] == f"'{HOSTILE}" and hostile["rule"] == "'-1+1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        ("plain", "plain"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1+1", "'  =1+1"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("＝1", "'＝1"),
        ("'so", "''so"),
        (["a", "=b"], '["a", "=b"]'),
    ],
)
def test_a_cell_is_neutral_and_can_be_taken_back(value: Any, text: str) -> None:
    assert export.cell(value) == text
    if isinstance(value, str):
        assert text.removeprefix("'") == value or (text == value and not value.startswith("'"))


def test_nothing_half_written_is_left_when_a_run_is_unknown(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run 'nothing'"):
        export.write_csv(store, "nothing", tmp_path / "csv")
    assert not (tmp_path / "csv").exists()


def test_a_directory_that_cannot_be_is_told(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        export.write_csv(store, RUN, tmp_path / "file")


def test_parquet_without_pyarrow_names_the_extra(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install -e .\.\[parquet\]"):
        export.write_parquet(store, RUN, tmp_path / "parquet")


def test_the_command_writes_each_form(store: Store, tmp_path: Path) -> None:
    done = here(tmp_path, "export", "--csv", "csv", "--parquet", "pq", "--eval-log", "log.json", "--ctrf", "ctrf.json")
    assert done.status == 0, done.stderr
    assert all((tmp_path / line).is_file() for line in done.stdout.splitlines())
    assert len(done.stdout.splitlines()) == 12
    assert json.loads((tmp_path / "ctrf.json").read_text())["specVersion"] == ctrf.SPEC_VERSION
    printed = here(tmp_path, "export", RUN, "--json").data
    assert printed["verdict"]["verdict"] == "INCONCLUSIVE" and len(printed["pairs"]) == 2
    assert here(tmp_path, "export", "--schema").data == records.json_schema()


def test_the_report_gives_the_same_data(store: Store, tmp_path: Path) -> None:
    assert here(tmp_path, "report", "--json").data == here(tmp_path, "export", "--json").data
    written = here(tmp_path, "report", "--parquet", "tables").stdout.splitlines()
    assert written == [f"tables/{name}.parquet" for name in records.TABLES]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name what to write"),
        (["20260101-999999", "--json"], "no run '20260101-999999'"),
        (["--eval-log", "log.eval"], "give the file one of .json"),
        (["--ctrf", "runs.db/ctrf.json"], "--ctrf runs.db/ctrf.json: cannot be written"),
    ],
)
def test_a_mistake_is_told_in_one_line(store: Store, tmp_path: Path, words: list[str], told: str) -> None:
    done = here(tmp_path, "export", *words)
    assert done.status == 2 and told in done.error


def test_an_empty_database_says_how_to_fill_it(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "runs.db")):
        done = here(tmp_path, "export", "--json")
    assert done.status == 2 and "holds no pair yet" in done.error
