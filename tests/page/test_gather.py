"""A stored run with its evidence -> a file."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.model import Pair
from agent_ab.report.page import dossier, gather
from agent_ab.store.store import Store
from tests.page.runs import RUN, played


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "runs.db")) as made:
        yield made


def save(store: Store, pairs: list[Pair], kind: str = "suite") -> None:
    store.save_run(RUN, "demo", "0.1.0", {"pairs": [], "profile": {"variable": "server.speculation"}}, kind=kind)
    for pair in pairs:
        store.save_pair(pair)
    store.end_run(RUN, "finished")


def test_a_run_without_a_finished_pair_has_no_report(store: Store, tmp_path: Path) -> None:
    save(store, [])
    with pytest.raises(UserError, match="no finished pair yet"):
        gather.subject_of(store, RUN, tmp_path / "runs.db", tmp_path)
    with pytest.raises(UserError, match="no run 'other'"):
        gather.subject_of(store, "other", tmp_path / "runs.db", tmp_path)


def test_the_subject_is_the_run_its_pairs_and_its_verdict(store: Store, tmp_path: Path) -> None:
    save(store, [played(0, candidate=9), played(1)])
    subject = gather.subject_of(store, None, Path("runs.db"), tmp_path)
    assert [pair.id for pair in subject.pairs] == ["build-planner-0-0", "csv-ledger-0-0"]
    assert subject.run.profile == "demo" and subject.verdict is not None and subject.marks == ()


def test_missing_evidence_is_said_and_the_page_is_made_all_the_same(store: Store, tmp_path: Path) -> None:
    save(store, [played(0)])
    subject = gather.subject_of(store, None, Path("runs.db"), tmp_path / "runs")
    gather.write_page(subject, tmp_path / "runs", tmp_path / "report.html")
    assert 'data-evidence="missing"' in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_the_users_mistake(store: Store, tmp_path: Path) -> None:
    save(store, [played(0)])
    subject = gather.subject_of(store, None, Path("runs.db"), tmp_path)
    with pytest.raises(UserError, match="is a directory"):
        gather.write_page(subject, tmp_path, tmp_path)
    with pytest.raises(UserError, match="its directory does not exist"):
        gather.write_page(subject, tmp_path, tmp_path / "nowhere" / "report.html")


def test_what_flipped_takes_the_room_first_and_the_rest_is_linked(recorded_runs: Path) -> None:
    store = Store(recorded_runs / "runs.db")
    run = next(r.id for r in store.runs() if r.profile == "scripted-known-bad")
    subject = gather.subject_of(store, run, recorded_runs / "runs.db", recorded_runs / "runs")
    store.close()
    target = recorded_runs / "sub" / "report.html"
    every = list(gather.dossiers(subject, recorded_runs / "runs", target, 10_000_000))
    assert [d.evidence for d in every] == ["whole"] * 8 and [d.number for d in every] == list(range(1, 9))
    data = dossier.unpack(every[0])
    assert data["href"] == f"../runs/{subject.pairs[0].name}" and data["turns"] and data["files"]["baseline"]
    few = list(gather.dossiers(subject, recorded_runs / "runs", target, len(every[0].packed) + 1))
    assert [d.evidence for d in few] == ["whole"] + ["linked"] * 7
    assert "turns" not in dossier.unpack(few[1]) and dossier.unpack(few[1])["checks"]


def test_changed_evidence_is_called_damaged_and_not_shown(recorded_runs: Path, tmp_path: Path) -> None:
    store = Store(recorded_runs / "runs.db")
    run = next(r.id for r in store.runs() if r.profile == "scripted-placebo")
    subject = gather.subject_of(store, run, recorded_runs / "runs.db", recorded_runs / "runs")
    store.close()
    log = recorded_runs / "runs" / subject.pairs[0].name / "baseline" / "agent.log"
    whole = log.read_bytes()
    log.write_bytes(whole + b"x")
    try:
        first = next(iter(gather.dossiers(subject, recorded_runs / "runs", tmp_path / "x.html", 10_000_000)))
    finally:
        log.write_bytes(whole)
    assert first.evidence == "damaged"
    assert dossier.unpack(first)["findings"][0].startswith("the evidence cannot be used: ")
