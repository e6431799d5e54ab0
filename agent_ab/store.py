"""SQLModel rows <-> model, in one SQLite file. Bulky evidence stays on disk, named here with its sha256."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from pydantic import TypeAdapter
from sqlalchemy import Engine, event
from sqlalchemy.exc import DatabaseError
from sqlmodel import Session, SQLModel, create_engine, select

from agent_ab.errors import UserError
from agent_ab.model import (
    Arm,
    Attempt,
    CheckResult,
    CheckStatus,
    Exchange,
    ExchangeLog,
    FileDigest,
    Json,
    Pair,
    RefusedRequest,
    Timings,
)
from agent_ab.tables import AttemptRow, CheckRow, EvidenceRow, ExchangeRow, PairRow, RunRow

BUSY_S = 30.0
"""How long a statement waits for another process's write."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `agent-ab runs`."""

    id: str
    created_at: str
    profile: str
    pairs: int


_ATTEMPT: TypeAdapter[Attempt] = TypeAdapter(Attempt)
_PAIR: TypeAdapter[Pair] = TypeAdapter(Pair)


def pair_to_json(pair: Pair) -> Json:
    """Return `pair` as JSON-able data; `pair_from_json` is its inverse."""
    return _PAIR.dump_python(pair, mode="json")


def pair_from_json(data: Json) -> Pair:
    """Return the pair that `pair_to_json` wrote. Raises pydantic.ValidationError."""
    return _PAIR.validate_python(data)


class Store:
    """One database file, migrated to the present schema when opened."""

    def __init__(self, path: Path) -> None:
        """Open or create the database at `path`. Raises UserError when it is not ours or cannot be written."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._engine = _connect(path)
            _migrate(self._engine)
        except (DatabaseError, OSError) as error:
            reason = getattr(error, "orig", None) or error
            raise UserError(f"{path}: cannot be used as the database: {reason}") from error

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def save_run(self, run_id: str, profile: str, version: str, plan: Json) -> None:
        """Record a run's plan before anything starts."""
        with self._write() as session:
            session.add(RunRow(id=run_id, created_at=_now(), version=version, profile=profile, plan=plan))

    def save_pair(self, pair: Pair) -> None:
        """Record a finished pair, whole or not at all."""
        with self._write() as session:
            session.add(_pair_row(pair))
            session.flush()
            for attempt in (pair.baseline, pair.candidate):
                for row in _attempt_rows(pair, attempt):
                    session.add(row)

    def runs(self) -> tuple[RunSummary, ...]:
        """Return every run, newest first."""
        with Session(self._engine) as session:
            pairs = [row.run_id for row in session.exec(select(PairRow))]
            rows = session.exec(select(RunRow)).all()
        rows = sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)
        return tuple(RunSummary(row.id, row.created_at, row.profile, pairs.count(row.id)) for row in rows)

    def pair_names(self) -> tuple[str, ...]:
        """Return the names of all pairs, oldest first."""
        with Session(self._engine) as session:
            rows = session.exec(select(PairRow)).all()
        return tuple(f"{row.run_id}/{row.id}" for row in sorted(rows, key=lambda r: (r.saved_at, r.run_id, r.id)))

    def load_pair(self, name: str) -> Pair:
        """Return one pair by `<run>/<pair>`; exchanges come without their bodies. Raises UserError."""
        run_id, _, pair_id = name.partition("/")
        with Session(self._engine) as session:
            row = session.get(PairRow, (run_id, pair_id))
            if row is None:
                raise UserError(f"{self.path}: no pair {name!r}; `agent-ab pairs` lists them")
            attempts = {arm: _load_attempt(session, run_id, pair_id, arm) for arm in Arm}
        return pair_from_json(
            {
                "run": row.run_id,
                "id": row.id,
                "task": row.task,
                "seed": row.seed,
                "repeat": row.repeat,
                "first_arm": row.first_arm,
                "variable": row.variable,
                "baseline": attempts[Arm.BASELINE],
                "candidate": attempts[Arm.CANDIDATE],
                "proof": row.proof,
                "outcome": row.outcome,
                "flips": row.flips,
                "findings": row.findings,
                "divergence": row.divergence,
                "aftermath": row.aftermath,
            }
        )

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with Session(self._engine) as session:
            try:
                yield session
                session.commit()
            except DatabaseError as error:
                session.rollback()
                raise UserError(f"{self.path}: cannot be written: {error.orig}") from error


def _connect(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine


def _migrate(engine: Engine) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(files("agent_ab") / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, "head")


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _pair_row(pair: Pair) -> PairRow:
    data = pair_to_json(pair)
    return PairRow(
        run_id=pair.run,
        id=pair.id,
        task=pair.task,
        seed=pair.seed,
        repeat=pair.repeat,
        first_arm=pair.first_arm,
        variable=pair.variable,
        outcome=pair.outcome,
        proof=data["proof"],
        flips=data["flips"],
        findings=data["findings"],
        divergence=data["divergence"],
        aftermath=data["aftermath"],
        saved_at=_now(),
    )


_OWN_TABLES = {"checks", "log", "evidence"}


def _attempt_rows(pair: Pair, attempt: Attempt) -> Iterable[SQLModel]:
    key: dict[str, Any] = {"run_id": pair.run, "pair_id": pair.id, "arm": attempt.arm.value}
    body = _ATTEMPT.dump_python(attempt, mode="json", exclude=_OWN_TABLES)
    if attempt.log:
        body["refused"] = [_REFUSED.dump_python(r, mode="json") for r in attempt.log.refused]
    yield AttemptRow(
        **key,
        outcome=attempt.outcome,
        position=attempt.position,
        started_at=attempt.started_at,
        duration_s=attempt.duration_s,
        agent_s=attempt.agent.duration_s if attempt.agent else None,
        agent_end=attempt.agent.end if attempt.agent else None,
        passed=attempt.passed,
        scored=len(attempt.scored),
        edited_production=attempt.patch.edited_production if attempt.patch else None,
        invalid_reason=attempt.invalid_reason,
        body=body,
    )
    for ordinal, check in enumerate(attempt.checks):
        yield CheckRow(
            **key,
            check_id=check.id,
            scored=check.scored,
            ordinal=ordinal,
            status=check.status,
            reason=check.reason,
            rule=check.rule,
            duration_s=check.duration_s,
        )
    for exchange in attempt.log.exchanges if attempt.log else ():
        yield _exchange_row(key, exchange)
    for file in attempt.evidence:
        yield EvidenceRow(**key, path=file.path, sha256=file.sha256, size=file.size, mode=file.mode)


_REFUSED: TypeAdapter[RefusedRequest] = TypeAdapter(RefusedRequest)
_TIMING_COLUMNS = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n", "draft_n", "draft_n_accepted")


def _exchange_row(key: dict[str, Any], exchange: Exchange) -> ExchangeRow:
    timings: dict[str, Any] = {name: getattr(exchange.timings, name, None) for name in _TIMING_COLUMNS}
    return ExchangeRow(
        **key,
        ordinal=exchange.index,
        path=exchange.path,
        agent_sha256=exchange.agent_sha256,
        server_sha256=exchange.server_sha256,
        status=exchange.status,
        finish_reason=exchange.finish_reason,
        error=exchange.error,
        **timings,
        started_s=exchange.started_s,
        first_byte_s=exchange.first_byte_s,
        last_byte_s=exchange.last_byte_s,
        tool_calls=len(exchange.tool_calls),
        concurrent=exchange.concurrent,
        streamed=exchange.streamed,
        pinned=dict(exchange.pinned),
    )


def _load_attempt(session: Session, run_id: str, pair_id: str, arm: Arm) -> Json:
    def rows(table: Any) -> Any:
        return session.exec(
            select(table).where(table.run_id == run_id, table.pair_id == pair_id, table.arm == arm.value)
        ).all()

    row = session.get(AttemptRow, (run_id, pair_id, arm.value))
    assert row is not None
    body = dict(row.body)
    refused = body.pop("refused", None)
    checks = [
        CheckResult(c.check_id, CheckStatus(c.status), c.reason, c.rule, c.scored, c.duration_s, None)
        for c in sorted(rows(CheckRow), key=lambda c: c.ordinal)
    ]
    exchanges = [_load_exchange(e) for e in sorted(rows(ExchangeRow), key=lambda e: e.ordinal)]
    log = (
        None if refused is None else ExchangeLog(tuple(exchanges), tuple(_REFUSED.validate_python(r) for r in refused))
    )
    evidence = [FileDigest(e.path, e.sha256, e.size, e.mode) for e in sorted(rows(EvidenceRow), key=lambda e: e.path)]
    return body | {"checks": checks, "log": log, "evidence": evidence}


def _load_exchange(row: ExchangeRow) -> Exchange:
    timings = None
    if row.prompt_n is not None:
        timings = Timings(**{name: getattr(row, name) for name in _TIMING_COLUMNS})
    return Exchange(
        index=row.ordinal,
        path=row.path,
        agent_sha256=row.agent_sha256,
        server_sha256=row.server_sha256,
        request=None,
        pinned=row.pinned,
        status=row.status,
        content="",
        reasoning="",
        tool_calls=tuple(None for _ in range(row.tool_calls)),
        finish_reason=row.finish_reason,
        usage=None,
        timings=timings,
        error=row.error,
        started_s=row.started_s,
        first_byte_s=row.first_byte_s,
        last_byte_s=row.last_byte_s,
        concurrent=row.concurrent,
        streamed=row.streamed,
    )
