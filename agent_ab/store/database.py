"""The database file: opened to write, or so that nothing is written, and brought to the present schema."""

import json
import os
import sqlite3
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from agent_ab.errors import UserError
from agent_ab.wording import plain_line


def _connect(path: Path, busy_s: float, mode: str = "mode=rwc") -> Engine:
    def opened() -> sqlite3.Connection:
        return sqlite3.connect(f"file:{quote(str(path))}?{mode}", timeout=busy_s, check_same_thread=False, uri=True)

    # NaN is no JSON: SQLite's own functions would break on it in every later query. Without a pool no connection outlives
    # its session, whoever forgets to close a store.
    serializer = partial(json.dumps, allow_nan=False)
    engine = create_engine("sqlite:///FILE", creator=opened, json_serializer=serializer, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        if mode == "mode=rwc":
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine


def to_read(path: Path, busy_s: float) -> Engine | None:
    """Return the database at `path` where nothing can be written; None where something can. Raises UserError.

    A database in WAL mode needs files beside it, which a read-only disk does not take; it is then opened as one that
    nobody changes. https://sqlite.org/wal.html#read_only_databases
    """
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return None
    fault: object = "its schema is of an older agent-ab, and must be changed"
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        engine = _connect(path, busy_s, mode)
        try:
            with engine.connect() as connection:
                version = _version(connection)
            if version == _newest(path, version):
                return engine
            break
        except DatabaseError as error:
            fault = error.orig
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            # Opened as one that nobody changes, it would be shown without them.
            fault = f"its last changes lie in {log.name}"
            break
    raise UserError(f"{path}: cannot be read where nothing can be written: {fault}; copy it, and what lies beside it")


def _newest(path: Path, version: str | None) -> str:
    """Return the present schema's version. Raises UserError when the database at `path` has a later one."""
    steps = (files("agent_ab.store") / "migrations" / "versions").iterdir()
    known = sorted(step.name.partition("_")[0] for step in steps if step.name[0] == "m")
    if version is not None and version not in known:
        raise UserError(
            f"{path}: was written by a newer agent-ab: its schema is {plain_line(str(version), 60)}, this one knows up to"
            f" {known[-1]}; use the newer agent-ab, or another database"
        )
    return known[-1]


def to_write(path: Path, busy_s: float) -> Engine:
    """Return the database at `path`, made or brought to the present schema. Raises UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = _connect(path, busy_s)
        _migrate(path, engine)
    except (DatabaseError, OSError) as error:
        reason = getattr(error, "orig", None) or error
        raise UserError(f"{path}: cannot be used as the database: {reason}") from error
    return engine


def _migrate(path: Path, engine: Engine) -> None:
    with engine.connect() as connection:
        version = _version(connection)
        newest = _newest(path, version)
        if version == newest:
            return
    # Alembic is slow to import, and a database needs it once.
    import alembic.command
    import alembic.config

    config = alembic.config.Config()
    config.set_main_option("script_location", str(files("agent_ab.store") / "migrations"))
    with engine.begin() as connection:
        # Whoever opens the same new file at the same time waits here, and finds it done.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        if _version(connection) != newest:
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found
