"""Put in order what a killed start left of its runs: finished pairs are kept, half-finished ones are removed.

A finished pair that cannot be taken in is set aside with all its evidence: it must not stand in every later start's way.
"""

from itertools import count
from pathlib import Path

from agent_ab.model import Arm, Event, Observer, RunKind, RunStatus
from agent_ab.paths import RunPaths
from agent_ab.snapshot import remove
from agent_ab.store import evidence
from agent_ab.store.store import NotStorable, RunSummary, Store
from agent_ab.wording import plain_line

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
        if not run.pair_json(folder.name).is_file():
            remove(folder)
            message = (
                f"{name} was half finished when its run was cut off: removed, it starts again from its first attempt"
            )
        elif fault := _take_in(store, run, folder.name):
            place = _set_aside(run, folder)
            message = f"{name} cannot be taken in: {fault}; it is set aside in {place} and counts as not run"
        else:
            message = f"{name} was finished but not in the database: it is now"
        observer(Event(None, None, message, lasting=True))


def _is_a_pairs(folder: Path) -> bool:
    """Return whether a directory holds nothing but what a pair's does."""
    names = {arm.value for arm in Arm} | {"pair.json"}
    return all(entry.name in names or entry.name.startswith(".pair.json") for entry in list(folder.iterdir()))


def _close(store: Store, run: RunSummary, runs_dir: Path) -> None:
    paths = RunPaths(runs_dir / run.id)
    single = run.kind == RunKind.PAIR and not paths.quarantine.exists()
    if single and store.forget_run(run.id):
        remove(paths.root)
    elif single:
        store.end_run(run.id, RunStatus.FINISHED)
    else:
        store.end_run(run.id, RunStatus.STOPPED, CUT_OFF)


def _take_in(store: Store, run: RunPaths, pair_id: str) -> str:
    """Save a pair that was played to its end if all its evidence is there and whole; return why not, or an empty string."""
    try:
        evidence.load_pair(run, pair_id)
        pair = evidence.recorded_pair(run, pair_id)
    except Exception as error:  # noqa: BLE001 - whatever a file does to its reader, it must not do it at every start
        return plain_line(str(error) or type(error).__name__, 300)
    try:
        store.save_pair(pair)
    except NotStorable as error:
        return plain_line(str(error), 300)
    return ""


def _set_aside(run: RunPaths, folder: Path) -> Path:
    """Move a pair's directory to where no pair is looked for, and return where that is."""
    run.quarantine.mkdir(exist_ok=True)
    places = (run.quarantine / (f"{folder.name}.{number}" if number else folder.name) for number in count())
    place = next(place for place in places if not place.exists())
    return folder.rename(place)
