"""The database: one SQLite file of runs and their finished pairs. Bulky evidence stays on disk, named with its sha256."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, func
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, NoResultFound, OperationalError, StatementError
from sqlalchemy.orm import defer, load_only
from sqlmodel import Session, col, delete, select

from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import NOT_PLAYED, Arm, Json, Outcome, Pair, PairOutcome, RunStatus
from agent_ab.schedule import digest
from agent_ab.store import database
from agent_ab.store.rows import attempt_data, attempt_rows, pair_data, pair_from_json, pair_row, pair_to_json
from agent_ab.store.tables import AttemptRow, CheckRow, EvidenceRow, ExchangeRow, PairRow, RunRow
from agent_ab.wording import plain_line

__all__ = ["PairState", "RunRecord", "RunSummary", "Store", "pair_from_json", "pair_to_json"]

BUSY_S = 30.0
"""How long a statement waits for another process's write."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `agent-ab runs`."""

    id: str
    created_at: str
    profile: str
    pairs: int
    """Rows of pairs, VOID tries included."""
    kind: str = "pair"
    status: str = "finished"
    blocks: int = 1
    outcomes: tuple[tuple[PairOutcome, int], ...] = ()
    """How many rows of each outcome there are."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run's row: the plan, stored before anything started, and how it stands."""

    id: str
    created_at: str
    ended_at: str | None
    status: str
    """`running`, `finished` or `stopped`."""
    note: str
    kind: str
    profile: str
    version: str
    plan: Json
    plan_sha256: str
    blocks: int
    """How many blocks are planned by now."""
    policy: Json
    policy_sha256: str | None


@dataclass(frozen=True, slots=True)
class PairState:
    """What the schedule must know of a pair that is in the database."""

    id: str
    task: str
    seed: int
    repeat: int
    block: int
    attempted: int
    again: bool
    outcome: PairOutcome
    saved_at: str


@dataclass(frozen=True, slots=True)
class VoidTry:
    """A try of a pair that does not count."""

    pair: str
    arm: Arm | None
    """Whose attempt was INVALID; None when both ran to their end and were no pair."""
    reason: str


class NotStorable(ApparatusError):
    """The database is well, and cannot hold what it was given."""


class Store:
    """One database file, of the present schema: an older one is migrated when it is opened."""

    def __init__(self, path: Path, busy_s: float = BUSY_S, *, to_write: bool = True) -> None:
        """Open or create the database at `path`, in which a statement waits up to `busy_s` for another process's write.

        Without `to_write` nothing is written, migrations aside: the file may lie on a read-only disk. Raises UserError
        when it is not ours, is of a newer schema, or cannot be used.
        """
        self.path = path
        self._engine = (None if to_write else database.to_read(path, busy_s)) or database.to_write(path, busy_s)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def save_run(
        self,
        run_id: str,
        profile: str,
        version: str,
        plan: Json,
        *,
        kind: str = "pair",
        blocks: int = 1,
        policy: Json = None,
    ) -> None:
        """Record a run's plan, and the policy that will judge it, before anything starts."""
        with self._write() as session:
            session.add(_run_row(run_id, profile, version, plan, kind=kind, blocks=blocks, policy=policy))

    def save_finished(
        self, run_id: str, profile: str, version: str, plan: Json, pairs: Iterable[Pair], *, kind: str
    ) -> None:
        """Record a run that was played elsewhere with all its pairs, whole or not at all."""
        with self._write() as session:
            row = _run_row(run_id, profile, version, plan, kind=kind)
            row.status, row.ended_at = RunStatus.FINISHED, _now()
            session.add(row)
            session.flush()
            for pair in pairs:
                _add_pair(session, pair)
                # Else all rows of a large import are held until its end.
                session.flush()
                session.expunge_all()

    def end_run(self, run_id: str, status: str, note: str = "") -> None:
        """Record how a run ended, or (status `running`) that it goes on."""
        with self._write() as session:
            row = session.get_one(RunRow, run_id)
            row.status, row.note = status, note
            row.ended_at = None if status == "running" else _now()
            session.add(row)

    def set_blocks(self, run_id: str, blocks: int) -> None:
        """Record that a run has been extended to `blocks` blocks."""
        with self._write() as session:
            row = session.get_one(RunRow, run_id)
            row.blocks = blocks
            session.add(row)

    def forget_run(self, run_id: str) -> bool:
        """Remove the row of a run that holds no pair; return whether there was one."""
        with self._write() as session:
            row = session.get(RunRow, run_id)
            if row is None or session.exec(select(PairRow.id).where(PairRow.run_id == run_id)).first():
                return False
            session.exec(delete(RunRow).where(col(RunRow.id) == run_id))
            return True

    def save_pair(self, pair: Pair) -> None:
        """Record a finished pair, whole or not at all."""
        with self._write() as session:
            _add_pair(session, pair)

    def runs(self) -> tuple[RunSummary, ...]:
        """Return every run, newest first."""
        counted = select(PairRow.run_id, PairRow.outcome, func.count()).group_by(PairRow.run_id, PairRow.outcome)
        # Plans are large, and a damaged one must hide no other run.
        with self.session() as session:
            counts: dict[str, dict[str, int]] = {}
            for run_id, outcome, count in session.exec(counted):
                counts.setdefault(run_id, {})[outcome] = count
            rows = session.exec(select(RunRow).options(defer(RunRow.plan), defer(RunRow.policy))).all()
        rows = sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)
        return tuple(_summary(row, counts.get(row.id, {})) for row in rows)

    def run(self, run_id: str) -> RunRecord:
        """Return one run. Raises UserError."""
        with self.session() as session:
            row = session.get(RunRow, run_id)
        if row is None:
            raise UserError(f"{self.path}: no run {run_id!r}; `agent-ab runs` lists them")
        return RunRecord(**row.model_dump())

    def latest_run(self, kind: str, profile: str, plan_sha256: str | None = None) -> RunRecord | None:
        """Return the newest run of `kind` of the profile so named, with the plan that has `plan_sha256` if it is given."""
        found = select(RunRow).where(RunRow.kind == kind, RunRow.profile == profile)
        if plan_sha256 is not None:
            found = found.where(RunRow.plan_sha256 == plan_sha256)
        with self.session() as session:
            row = session.exec(found.order_by(col(RunRow.created_at).desc(), col(RunRow.id).desc())).first()
        return None if row is None else RunRecord(**row.model_dump())

    def pair_states(self, run_id: str) -> tuple[PairState, ...]:
        """Return the finished pairs of a run, VOID tries included, in the order in which they were saved."""
        names = PairState.__dataclass_fields__
        facts = load_only(*(getattr(PairRow, name) for name in names))
        with self.session() as session:
            rows = session.exec(select(PairRow).where(PairRow.run_id == run_id).options(facts)).all()
            states = [
                PairState(**{name: getattr(row, name) for name in names} | {"outcome": PairOutcome(row.outcome)})
                for row in rows
            ]
        return tuple(sorted(states, key=lambda state: (state.saved_at, state.id)))

    def durations(self, profile: str, *arms: Arm) -> dict[str, list[float]]:
        """Return how many seconds each pair of a profile took whose arms were both played, by task; or these arms of it."""
        both = select(PairRow.task, func.sum(AttemptRow.duration_s)).join(
            AttemptRow, (col(AttemptRow.run_id) == PairRow.run_id) & (col(AttemptRow.pair_id) == PairRow.id)
        )
        both = both.join(RunRow, col(RunRow.id) == PairRow.run_id).where(RunRow.profile == profile)
        both = both.where(PairRow.outcome != PairOutcome.VOID, col(PairRow.proven))
        both = both.where(col(AttemptRow.arm).in_(arms or tuple(Arm)))
        found: dict[str, list[float]] = {}
        with self.session() as session:
            for task, seconds in session.exec(both.group_by(PairRow.run_id, PairRow.id, PairRow.task)):
                found.setdefault(task, []).append(seconds)
        return found

    def voids(self, run_id: str) -> tuple[VoidTry, ...]:
        """Return the VOID tries of a run, in the order of their names, with the arm whose attempt broke."""
        pairs = select(PairRow.id, PairRow.outcome, PairRow.proof).where(PairRow.run_id == run_id)
        broken = select(AttemptRow.pair_id, AttemptRow.arm, AttemptRow.invalid_reason).where(
            AttemptRow.run_id == run_id, AttemptRow.outcome == Outcome.INVALID
        )
        with self.session() as session:
            arms = {pair: (Arm(arm), why) for pair, arm, why in session.exec(broken) if not why.startswith(NOT_PLAYED)}
            rows = session.exec(pairs.where(PairRow.outcome == PairOutcome.VOID)).all()
        voids = []
        for pair_id, _, proof in sorted(rows):
            unproven = next((f"{line['name']}: {line['detail']}" for line in proof if not line["ok"]), "")
            arm, reason = arms.get(pair_id, (None, unproven))
            voids.append(VoidTry(pair_id, arm, reason))
        return tuple(voids)

    def pair_names(self) -> tuple[str, ...]:
        """Return the names of all pairs, oldest first."""
        with self.session() as session:
            rows = session.exec(select(PairRow.saved_at, PairRow.run_id, PairRow.id)).all()
        return tuple(f"{run_id}/{pair_id}" for _, run_id, pair_id in sorted(rows))

    def load_pair(self, name: str) -> Pair:
        """Return one pair by `<run>/<pair>`; exchanges come without their bodies. Raises UserError."""
        run_id, _, pair_id = name.partition("/")
        with self.session() as session:
            row = session.get(PairRow, (run_id, pair_id))
            if row is None:
                raise UserError(f"{self.path}: no pair {name!r}; `agent-ab pairs` lists them")
            return pair_from_json(pair_data(row, {arm: _attempt(session, row, arm) for arm in Arm}))

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Give a session to read with; nothing that is changed in it stays. Raises ApparatusError for what is damaged."""
        with self._readable(), Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session whose changes are kept whole or not at all. Raises UserError when they cannot be written."""
        with self._write() as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection for statements that only read."""
        with self._readable(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Name the database in what SQLite, or JSON and the types of a row, say of what it holds."""
        try:
            yield
        except (DatabaseError, sqlite3.DatabaseError, ValidationError, json.JSONDecodeError, NoResultFound) as error:
            fault = plain_line(str(getattr(error, "orig", error)))
            raise ApparatusError("database", f"{self.path} cannot be read: {fault}") from error

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with Session(self._engine) as session:
            try:
                yield session
                session.commit()
            except (IntegrityError, DataError, OverflowError, UnicodeEncodeError) as error:
                session.rollback()
                raise NotStorable("database", f"{self.path} cannot hold it: {getattr(error, 'orig', error)}") from error
            except OperationalError as error:
                session.rollback()
                raise ApparatusError("database", f"{self.path} cannot be written: {error.orig}") from error
            except DatabaseError as error:
                session.rollback()
                raise UserError(f"{self.path}: cannot be written: {error.orig}") from error
            except StatementError as error:
                # What could not be made JSON.
                session.rollback()
                raise NotStorable("database", f"{self.path} cannot hold it: {error.orig}") from error


def _run_row(
    run_id: str, profile: str, version: str, plan: Json, *, kind: str, blocks: int = 1, policy: Json = None
) -> RunRow:
    return RunRow(
        id=run_id,
        created_at=_now(),
        version=version,
        profile=profile,
        kind=kind,
        plan=plan,
        plan_sha256=digest(plan),
        blocks=blocks,
        policy=policy,
        policy_sha256=None if policy is None else digest(policy),
    )


def _add_pair(session: Session, pair: Pair) -> None:
    session.add(pair_row(pair, _now()))
    session.flush()
    for attempt in (pair.baseline, pair.candidate):
        for row in attempt_rows(pair, attempt):
            session.add(row)


def _summary(row: RunRow, counts: Mapping[str, int]) -> RunSummary:
    outcomes = tuple((outcome, counts[outcome.value]) for outcome in PairOutcome if outcome.value in counts)
    return RunSummary(
        row.id, row.created_at, row.profile, sum(counts.values()), row.kind, row.status, row.blocks, outcomes
    )


def _attempt(session: Session, pair: PairRow, arm: Arm) -> Json:
    def rows(table: Any) -> Sequence[Any]:
        of_attempt = (table.run_id == pair.run_id, table.pair_id == pair.id, table.arm == arm.value)
        return session.exec(select(table).where(*of_attempt)).all()

    row = session.get_one(AttemptRow, (pair.run_id, pair.id, arm.value))
    return attempt_data(row, rows(CheckRow), rows(ExchangeRow), rows(EvidenceRow))


def _now() -> str:
    return datetime.now(UTC).isoformat()
