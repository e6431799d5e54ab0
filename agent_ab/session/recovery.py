"""Put in order what a killed start left of its runs: finished pairs are kept, half-finished ones are removed."""

from pathlib import Path

from agent_ab.errors import ApparatusError
from agent_ab.model import Arm, Event, Observer, Pair, RunKind, RunStatus
from agent_ab.paths import RunPaths
from agent_ab.snapshot import remove
from agent_ab.store import evidence
from agent_ab.store.store import RunSummary, Store

CUT_OFF = "cut off: the process was killed, or the machine went down"


def recover(store: Store, runs_dir: Path, observer: Observer) -> None:
    """Tidy every run that is not finished, and end those that the database holds for running.

    Call it only when nobody plays into the database.
    """
    for run in store.runs():
        if run.status == RunStatus.FINISHED:
            continue
        if (runs_dir / run.id).is_dir():
            _tidy(store, RunPaths(runs_dir / run.id), observer)
        if run.status == RunStatus.RUNNING:
            _close(store, run, runs_dir)


def _tidy(store: Store, run: RunPaths, observer: Observer) -> None:
    saved = {state.id for state in store.pair_states(run.root.name)}
    for folder in sorted(run.root.iterdir()):
        if folder.name in saved or folder.is_symlink() or not folder.is_dir() or not _is_a_pairs(folder):
            continue
        name = f"{run.root.name}/{folder.name}"
        pair = _finished(run, folder.name)
        if pair is not None:
            store.save_pair(pair)
            message = f"{name} was finished but not in the database: it is now"
        else:
            remove(folder)
            message = (
                f"{name} was half finished when its run was cut off: removed, it starts again from its first attempt"
            )
        observer(Event(None, None, message, lasting=True))


def _is_a_pairs(folder: Path) -> bool:
    """Return whether a directory holds nothing but what a pair's does."""
    names = {arm.value for arm in Arm} | {"pair.json"}
    return all(entry.name in names or entry.name.startswith(".pair.json") for entry in list(folder.iterdir()))


def _close(store: Store, run: RunSummary, runs_dir: Path) -> None:
    if run.kind == RunKind.PAIR and store.forget_run(run.id):
        remove(runs_dir / run.id)
    elif run.kind == RunKind.PAIR:
        store.end_run(run.id, RunStatus.FINISHED)
    else:
        store.end_run(run.id, RunStatus.STOPPED, CUT_OFF)


def _finished(run: RunPaths, pair_id: str) -> Pair | None:
    """Return the pair if it was played to its end and all its evidence is there and whole."""
    try:
        evidence.load_pair(run, pair_id)
        return evidence.recorded_pair(run, pair_id)
    except ApparatusError:
        return None
