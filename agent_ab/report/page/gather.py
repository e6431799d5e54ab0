"""A run's pairs out of the database and what was said out of the evidence -> the page, written to a file."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from agent_ab import __version__
from agent_ab.errors import ApparatusError, UserError
from agent_ab.files import appearing
from agent_ab.gate import judged
from agent_ab.model import Json, Pair, RunKind
from agent_ab.paths import RunPaths
from agent_ab.report.page import compose, dossier, render
from agent_ab.report.page.compose import Subject
from agent_ab.report.page.contents import Dossier, RunFacts
from agent_ab.report.page.lines import Numbered, numbered
from agent_ab.review import marks
from agent_ab.store import evidence
from agent_ab.store.store import RunRecord, Store

EVIDENCE_CHARS = 9_000_000
"""Most characters of packed conversations that one page holds; the rest is linked."""


def subject_of(store: Store, run_id: str | None, db: Path, runs_dir: Path) -> Subject:
    """Return what a report is about: a run (by default the newest comparison), its pairs, its verdict. Raises UserError."""
    record = judged.chosen_run(store, run_id)
    pairs = tuple(store.load_pair(f"{record.id}/{state.id}") for state in store.pair_states(record.id))
    if not pairs:
        raise UserError(f"{store.path}: run {record.id} holds no finished pair yet; there is nothing to report")
    return Subject(
        run=_facts(record),
        pairs=pairs,
        verdict=judged.verdict_of(store, record.id),
        marks=marks.of_run(store, record.id),
        db=str(db),
        runs_dir=str(runs_dir),
    )


def _facts(record: RunRecord) -> RunFacts:
    return RunFacts(
        id=record.id,
        created_at=record.created_at,
        status=record.status,
        note=record.note,
        kind=record.kind,
        profile=record.profile,
        version=record.version,
        plan=record.plan,
        plan_sha256=record.plan_sha256,
        policy_sha256=record.policy_sha256,
    )


def write_page(subject: Subject, runs_dir: Path, target: Path, budget: int = EVIDENCE_CHARS) -> None:
    """Write the page of `subject` to `target`, evidence from `runs_dir` in it. Raises UserError."""
    if target.is_dir():
        raise UserError(f"--html {target}: is a directory; name a file, report.html for example")
    if not target.absolute().parent.is_dir():
        raise UserError(f"--html {target}: its directory does not exist")
    packed = dossiers(subject, runs_dir, target, budget)
    page = compose.compose(subject, packed, f"agent_ab {__version__}")
    try:
        with appearing(target) as partial:
            partial.write_text(render.render(page), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--html {target}: cannot be written: {error.strerror}") from None


def dossiers(subject: Subject, runs_dir: Path, target: Path, budget: int) -> Iterator[Dossier]:
    """Give each pair's data in the order of their numbers; those that flipped take their share of `budget` first."""
    every = numbered(subject.pairs)
    whole = _whole(_in_order_of_need(every), subject, runs_dir, target, budget)
    yield from (whole[n.number] for n in every)


def _in_order_of_need(every: Sequence[Numbered]) -> list[Numbered]:
    return sorted(every, key=lambda n: (not n.pair.flips, n.number))


def _whole(
    ordered: Sequence[Numbered], subject: Subject, runs_dir: Path, target: Path, budget: int
) -> dict[int, Dossier]:
    made: dict[int, Dossier] = {}
    left = budget
    for n in ordered:
        data = dossier.recorded(n, subject.marks, _href(n.pair, runs_dir, target))
        packed = None
        state = "missing" if subject.run.kind == RunKind.IMPORT else "linked"
        if left > 0 and state == "linked":
            full, state = _with_evidence(data, n.pair, runs_dir)
            packed = dossier.pack(n.number, full, state)
            left -= len(packed.packed) if state == "whole" else 0
        if packed is None or left < 0:
            packed = dossier.pack(n.number, data, state if packed is None else "linked")
            left = min(left, 0) if packed.evidence == "linked" else left
        made[n.number] = packed
    return made


def _with_evidence(data: Json, pair: Pair, runs_dir: Path) -> tuple[Json, str]:
    """Return a pair's data with its conversations, or with what is wrong with the evidence."""
    run = RunPaths(runs_dir / pair.run)
    if not run.pair_json(pair.id).is_file():
        return data, "missing"
    try:
        full = evidence.load_pair(run, pair.id)
    except ApparatusError as error:
        return data | {"findings": [f"the evidence cannot be used: {error}", *data["findings"]]}, "damaged"
    disagreed = list(evidence.disagreements(pair, full))
    return dossier.with_evidence(data | {"findings": [*disagreed, *data["findings"]]}, full), "whole"


def _href(pair: Pair, runs_dir: Path, target: Path) -> str:
    """Return the way from the page to a pair's evidence, relative so that both can move together."""
    place = (runs_dir / pair.run / pair.id).absolute()
    try:
        return quote(Path(os.path.relpath(place, target.absolute().parent)).as_posix())
    except ValueError:
        # Another drive.
        return place.as_uri()
