"""What a killed start left of its runs is put in order: finished pairs stay, half-finished ones go."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.model import Event, Pair, PairOutcome
from agent_ab.paths import RunPaths
from agent_ab.session.recovery import CUT_OFF, recover
from agent_ab.store.store import Store
from tests.run_files import RUN, pair_of, plan_of, write_pair

PAIR = pair_of()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "runs.db")
    yield made
    made.close()


def running(store: Store, root: Path, kind: str) -> RunPaths:
    """A run that was killed before it could say so."""
    run = RunPaths(root / "runs" / RUN)
    run.root.mkdir(parents=True)
    run.plan.write_text("{}")
    store.save_run(RUN, "cpu-demo", "0.1.0", plan_of(PAIR), kind=kind)
    return run


def recovered(store: Store, root: Path) -> list[str]:
    told: list[Event] = []
    recover(store, root / "runs", told.append)
    return [event.message for event in told]


def test_a_half_finished_pair_is_removed_and_said_to_start_again(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    half = run.attempt(PAIR.id, PAIR.first_arm).root
    half.mkdir(parents=True)
    (half / "server.log").write_text("loading")
    (said,) = recovered(store, tmp_path)
    assert PAIR.id in said and "half finished" in said and "starts again" in said
    assert not run.pair(PAIR.id).exists() and run.plan.exists()
    record = store.run(RUN)
    assert (record.status, record.note) == ("stopped", CUT_OFF)


def test_a_finished_pair_that_did_not_reach_the_database_is_taken_in(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    write_pair(run, PAIR)
    (said,) = recovered(store, tmp_path)
    assert "is now" in said
    assert store.load_pair(PAIR.name).outcome is PairOutcome.BROKEN
    assert run.pair_json(PAIR.id).exists()
    assert recovered(store, tmp_path) == []


@pytest.mark.parametrize("damage", ["pair.json", "baseline/exchanges.jsonl", "candidate/snapshot.tar"])
def test_a_finished_pair_whose_evidence_is_not_whole_is_set_aside_and_named(
    store: Store, tmp_path: Path, damage: str
) -> None:
    run = running(store, tmp_path, "suite")
    write_pair(run, PAIR)
    path = run.pair(PAIR.id) / damage
    path.write_bytes(path.read_bytes()[:-9])
    (said,) = recovered(store, tmp_path)
    assert PAIR.name in said and "cannot be taken in: evidence: " in said and "counts as not run" in said
    assert store.pair_names() == () and not run.pair(PAIR.id).exists()
    assert (run.quarantine / PAIR.id / "pair.json").exists()
    assert recovered(store, tmp_path) == []


def counting(predicted: int) -> Pair:
    """Return the pair with a reply whose server claims to have generated so many tokens."""
    assert PAIR.baseline.log
    first, *rest = PAIR.baseline.log.exchanges
    assert first.timings
    wild = replace(first, timings=replace(first.timings, predicted_n=predicted))
    return replace(PAIR, baseline=replace(PAIR.baseline, log=replace(PAIR.baseline.log, exchanges=(wild, *rest))))


def test_a_pair_that_the_database_cannot_hold_is_set_aside_and_the_others_are_taken_in(
    store: Store, tmp_path: Path
) -> None:
    run = running(store, tmp_path, "suite")
    other = pair_of(seed=5)
    write_pair(run, counting(2**63))
    write_pair(run, other)
    said = recovered(store, tmp_path)
    assert [words for line in said for words in ("is now", "predicted_n") if words in line] == ["predicted_n", "is now"]
    assert store.pair_names() == (other.name,) and (run.quarantine / PAIR.id).is_dir()
    assert recovered(store, tmp_path) == []


def test_what_an_earlier_version_recorded_is_refused_by_the_database_alone(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    write_pair(run, PAIR)
    text = run.pair_json(PAIR.id).read_text()
    assert '"attempted": 1' in text
    run.pair_json(PAIR.id).write_text(text.replace('"attempted": 1', f'"attempted": {2**63}'))
    (said,) = recovered(store, tmp_path)
    assert "runs.db cannot hold it: Python int too large" in said and (run.quarantine / PAIR.id).is_dir()


def test_a_pair_that_is_set_aside_twice_keeps_both_directories(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    for _ in range(2):
        write_pair(run, counting(2**63))
        recovered(store, tmp_path)
        store.end_run(RUN, "running")
    assert sorted(path.name for path in run.quarantine.iterdir()) == [PAIR.id, f"{PAIR.id}.1"]


def test_a_single_pair_that_is_set_aside_keeps_its_run(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "pair")
    write_pair(run, counting(2**63))
    recovered(store, tmp_path)
    assert (run.quarantine / PAIR.id).is_dir() and store.run(RUN).status == "stopped"


def test_a_pair_in_the_database_is_left_as_it_is(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    store.save_pair(write_pair(run, PAIR))
    assert recovered(store, tmp_path) == []
    assert run.pair_json(PAIR.id).exists() and len(store.pair_names()) == 1


def test_nothing_stays_of_a_single_pair_that_was_cut_off(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "pair")
    run.attempt(PAIR.id, PAIR.first_arm).root.mkdir(parents=True)
    recovered(store, tmp_path)
    assert store.runs() == () and not run.root.exists()


def test_a_single_pair_that_was_saved_is_finished(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "pair")
    store.save_pair(write_pair(run, PAIR))
    recovered(store, tmp_path)
    assert store.run(RUN).status == "finished" and run.root.exists()


def test_a_stopped_run_is_tidied_and_stays_as_it_stopped(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    write_pair(run, PAIR)
    store.end_run(RUN, "stopped", "interrupted")
    (said,) = recovered(store, tmp_path)
    assert "is now" in said and store.run(RUN).note == "interrupted"


def test_a_finished_run_is_not_looked_at(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    write_pair(run, PAIR)
    store.end_run(RUN, "finished")
    assert recovered(store, tmp_path) == [] and run.pair(PAIR.id).exists()


def test_what_is_no_pairs_directory_is_left_alone(store: Store, tmp_path: Path) -> None:
    run = running(store, tmp_path, "suite")
    for name in ("lives", "notes"):
        (run.root / name).mkdir()
        (run.root / name / "mine.txt").touch()
    (run.root / "link").symlink_to(tmp_path)
    (run.root / "notes.txt").touch()
    assert recovered(store, tmp_path) == []
    assert (run.lives / "mine.txt").exists() and (run.root / "notes" / "mine.txt").exists()
    assert (run.root / "notes.txt").exists() and (run.root / "link").is_symlink()


def test_evidence_that_is_elsewhere_is_not_missed(store: Store, tmp_path: Path) -> None:
    store.save_run(RUN, "cpu-demo", "0.1.0", plan_of(PAIR), kind="suite")
    assert recovered(store, tmp_path) == []
    assert store.run(RUN).status == "stopped"
