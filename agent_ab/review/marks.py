"""What people say of flips, and what rerunning a check on the same snapshots said: rows of table `mark`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from sqlmodel import col, select

from agent_ab.errors import UserError
from agent_ab.store.store import Store
from agent_ab.store.tables import MarkRow, PairRow


class MarkKind(StrEnum):
    """What a person takes a flip for. None of them changes a verdict by itself."""

    REAL = "real"
    """The candidate's code is right or wrong as the checks say."""
    FLAKY_CHECK = "flaky check"
    """The check is suspected of chance; it is run again on both frozen snapshots."""
    ENVIRONMENT = "environment"
    """Something around the model made the difference."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark on one flip."""

    pair_id: str
    check_id: str
    kind: MarkKind
    note: str
    made_at: str = ""
    """UTC, ISO 8601; empty until it is stored."""
    reruns: Mapping[str, Sequence[str]] | None = None
    """Of a `flaky check`: verdicts on both snapshots, by arm."""
    quarantined: bool = False
    """The check disagreed with itself: it counts in neither arm."""


def add(store: Store, run_id: str, mark: Mark) -> Mark:
    """Store one mark, beside those that are there, and return it as it stands. Raises UserError.

    A quarantine was measured: no later mark on the same flip takes it away.
    """
    before = next((m for m in of_run(store, run_id) if (m.pair_id, m.check_id) == (mark.pair_id, mark.check_id)), None)
    if before and before.quarantined and not mark.quarantined:
        mark = replace(mark, quarantined=True, reruns=mark.reruns or before.reruns)
    with store.session() as session:
        if session.get(PairRow, (run_id, mark.pair_id)) is None:
            raise UserError(f"{store.path}: holds no pair {run_id}/{mark.pair_id} to mark")
    mark = replace(mark, made_at=mark.made_at or datetime.now(UTC).isoformat())
    row = MarkRow(
        run_id=run_id,
        pair_id=mark.pair_id,
        check_id=mark.check_id,
        kind=mark.kind.value,
        note=mark.note,
        made_at=mark.made_at,
        reruns=None if mark.reruns is None else {arm: list(verdicts) for arm, verdicts in mark.reruns.items()},
        quarantined=mark.quarantined,
    )
    with store.writing() as session:
        session.add(row)
    return mark


def history(store: Store, run_id: str) -> tuple[Mark, ...]:
    """Return every mark of a run, in the order in which they were made."""
    with store.session() as session:
        rows = session.exec(select(MarkRow).where(MarkRow.run_id == run_id).order_by(col(MarkRow.id))).all()
        return tuple(
            Mark(r.pair_id, r.check_id, MarkKind(r.kind), r.note, r.made_at, r.reruns, r.quarantined) for r in rows
        )


def of_run(store: Store, run_id: str) -> tuple[Mark, ...]:
    """Return the mark that stands of each marked flip: the last one."""
    return tuple({(mark.pair_id, mark.check_id): mark for mark in history(store, run_id)}.values())


def quarantined(store: Store, run_id: str) -> frozenset[tuple[str, str]]:
    """Return (task, check) of every check that a rerun has shown to disagree with itself in this run."""
    with store.session() as session:
        tasks = dict(session.exec(select(PairRow.id, PairRow.task).where(PairRow.run_id == run_id)).all())
    return frozenset((tasks[mark.pair_id], mark.check_id) for mark in of_run(store, run_id) if mark.quarantined)


def disagrees(reruns: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a check gave different verdicts on one and the same snapshot."""
    return any(len(set(verdicts)) > 1 for verdicts in reruns.values())
