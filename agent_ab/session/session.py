"""One start of agent-ab that plays: tidy after the dead, alone on the database, and gone without a trace however it ends."""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from agent_ab.engine.engine import cache_dir
from agent_ab.errors import UserError
from agent_ab.files import locked
from agent_ab.model import Observer
from agent_ab.session import children, orphans, recovery
from agent_ab.snapshot import remove
from agent_ab.store.store import Store

_scratches: list[Path] = []


@contextmanager
def session(observer: Observer) -> Iterator[Path]:
    """Sweep up after dead starts, then keep the record by which a later one could sweep up after this one.

    While the block runs, all temporary files lie in one recorded directory, which is given. Raises UserError when there
    is no place for the record, ApparatusError when a dead start's process does not die.
    """
    folder = cache_dir() / "live"
    orphans.sweep(folder, observer)
    scratch = Path(tempfile.gettempdir()) / f"{orphans.PREFIX}{secrets.token_hex(4)}"
    with orphans.Ledger.kept(folder, scratch) as ledger:
        scratch.mkdir()
        # The box's unprivileged user must be able to pass through, not to list.
        scratch.chmod(0o711)
        before, tempfile.tempdir = tempfile.tempdir, str(scratch)
        _scratches.append(scratch)
        try:
            with children.recorded(ledger.note):
                yield scratch
        finally:
            tempfile.tempdir = before
            remove(scratch)
            _scratches.remove(scratch)


@contextmanager
def playing(db: Path, runs_dir: Path, observer: Observer) -> Iterator[Store]:
    """Open the database for playing into it, alone: another start that plays into it is waited for.

    What a killed start left of its runs in `runs_dir` is put in order first. Raises UserError, ApparatusError.
    """
    with session(observer), ExitStack() as stack:
        try:
            stack.enter_context(locked(db.with_name(f"{db.name}.lock"), f"plays into {db}", observer))
        except OSError as error:
            raise UserError(f"{db}: cannot be used as the database: {error.strerror}") from error
        store = Store(db)
        stack.callback(store.close)
        recovery.recover(store, runs_dir, observer)
        yield store


def abandon() -> None:
    """End all children and remove the scratch files at once, in the middle of anything; for who exits next."""
    children.kill_all()
    for scratch in _scratches:
        with suppress(OSError):
            remove(scratch)
