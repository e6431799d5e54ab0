"""A stored run as data for other programs: one JSON document, or its tables as CSV or Parquet (docs/data.md)."""

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent_ab.errors import UserError
from agent_ab.export.records import TABLES, RunExport, of_mark, of_pair, plain_type, run_record
from agent_ab.files import appearing
from agent_ab.model import Json
from agent_ab.review import marks
from agent_ab.store.store import Store

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
"""Beginnings of text that a spreadsheet may run as a formula (OWASP, CSV injection), and our own mark."""
BATCH = 20_000
"""Rows of a Parquet row group."""

Write = Callable[[BaseModel], None]


def document(store: Store, run_id: str, verdict: Json = None) -> RunExport:
    """Return a whole run; `verdict` is what `verdict.to_json` returns. Raises UserError."""
    tables: dict[str, list[Any]] = defaultdict(list)
    for table, record in rows(store, run_id):
        tables[table].append(record)
    return RunExport(run=run_record(store.run(run_id)), verdict=verdict, **{name: tables[name] for name in TABLES})


def to_json(exported: RunExport) -> Json:
    """Return a document as JSON-able data."""
    return exported.model_dump(mode="json")


def rows(store: Store, run_id: str) -> Iterator[tuple[str, BaseModel]]:
    """Give every record of a run with its table's name, pair by pair. Raises UserError for an unknown run."""
    store.run(run_id)
    for state in sorted(store.pair_states(run_id), key=lambda state: (state.block, state.id)):
        yield from of_pair(store.load_pair(f"{run_id}/{state.id}"))
    for mark in marks.of_run(store, run_id):
        yield "marks", of_mark(run_id, mark)


def write_csv(store: Store, run_id: str, directory: Path) -> tuple[Path, ...]:
    """Write each table as `<table>.csv` into `directory`; return the files. Raises UserError."""
    return _written(store, run_id, directory, "csv", _csv)


def write_parquet(store: Store, run_id: str, directory: Path) -> tuple[Path, ...]:
    """Write each table as `<table>.parquet` into `directory`; return the files. Raises UserError without pyarrow."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UserError("--parquet needs pyarrow; install it with: .venv/bin/pip install -e '.[parquet]'") from None
    return _written(store, run_id, directory, "parquet", lambda *table: _parquet(arrow, parquet, *table))


def cell(value: Any) -> str:
    """Return a value as it stands in a CSV file: text that a spreadsheet would run as a formula begins with `'`.

    One leading `'` is ours whenever text begins with it, so that taking one off gives every text back.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA) else text


def _written(
    store: Store, run_id: str, directory: Path, suffix: str, opened: Callable[[ExitStack, type[BaseModel], Path], Write]
) -> tuple[Path, ...]:
    store.run(run_id)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        targets = {name: directory / f"{name}.{suffix}" for name in TABLES}
        with ExitStack() as stack:
            partial = {name: stack.enter_context(appearing(target)) for name, target in targets.items()}
            with ExitStack() as files:
                write = {name: opened(files, TABLES[name], partial[name]) for name in TABLES}
                for table, record in rows(store, run_id):
                    write[table](record)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {error.strerror}") from error
    return tuple(targets.values())


def _csv(files: ExitStack, record: type[BaseModel], target: Path) -> Write:
    file: TextIOWrapper = files.enter_context(target.open("w", encoding="utf-8", newline=""))
    writer = csv.writer(file)
    writer.writerow(record.model_fields)
    return lambda row: writer.writerow([cell(value) for value in row.model_dump(mode="json").values()])


def _parquet(arrow: Any, parquet: Any, files: ExitStack, record: type[BaseModel], target: Path) -> Write:
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    kinds[list] = arrow.list_(arrow.string())
    columns = [(name, *plain_type(field.annotation)) for name, field in record.model_fields.items()]
    schema = arrow.schema([arrow.field(name, kinds[kind], nullable=nullable) for name, kind, nullable in columns])
    writer = files.enter_context(parquet.ParquetWriter(target, schema))
    batch: list[Json] = []

    def flush() -> None:
        if batch:
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
            batch.clear()

    def write(row: BaseModel) -> None:
        batch.append(row.model_dump(mode="json"))
        if len(batch) >= BATCH:
            flush()

    files.callback(flush)
    return write
