"""Checks and probes of a task against a frozen snapshot, side by side, each candidate call in a fresh box."""

import importlib
import itertools
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path

from agent_ab.config import Sandbox
from agent_ab.errors import UserError
from agent_ab.judging import Bench, Candidate, CheckFailed, Item, one_line
from agent_ab.model import CheckResult, CheckStatus, Task
from agent_ab.snapshot import remove

HARNESS = Path(__file__).parent / "box" / "harness.py"
POLL_S = 0.1
REASON_CHARS = 400

# What judge code raises when it stumbles over a reply of an unexpected shape or over a damaged file.
_STUMBLES = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    sqlite3.Error,
)

_load_lock = threading.Lock()
_load_count = itertools.count()


def items(task: Task) -> tuple[Item, ...]:
    """Return the task's checks, then its probes, in file order. Raises UserError for a module that does not load."""
    modules = ["checks"] + (["probes"] if (task.root / "probes.py").exists() else [])
    with _load_lock:
        package = f"agent_ab_task_{next(_load_count)}"
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(task.root)]
        sys.modules[package] = module_from_spec(spec)
        found: list[Item] = []
        try:
            for name in modules:
                module = importlib.import_module(f"{package}.{name}")
                own = [
                    v for v in vars(module).values() if isinstance(v, Item) and v.judge.__module__ == module.__name__
                ]
                found += sorted(own, key=lambda item: not item.scored)
        except (ImportError, SyntaxError, NameError, TypeError) as error:
            raise UserError(f"{task.root}: {name}.py does not load: {error}") from None
        finally:
            for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
                del sys.modules[name]
    ids = [item.id for item in found]
    if not ids:
        raise UserError(f"{task.root / 'checks.py'}: no function is decorated with @check")
    twice = next((i for i in ids if ids.count(i) > 1), None)
    if twice:
        raise UserError(f"{task.root}: two checks or probes have the id {twice!r}")
    return tuple(found)


def run(
    task: Task,
    snapshot_dir: Path,
    sandbox: Sandbox,
    *,
    workers: int | None = None,
    tick: Callable[[float], None] | None = None,
) -> tuple[CheckResult, ...]:
    """Judge the snapshot by every check and probe of `task`, `workers` at a time (default: the machine's cores).

    `tick` is called with the elapsed seconds. Raises ApparatusError when a box cannot be started; whatever the candidate
    does is a failed check.
    """
    todo = items(task)
    begin = time.monotonic()
    stop = threading.Event()
    room = Path(tempfile.mkdtemp(prefix="agent-ab-checks-"))
    # The box's user must be able to reach what is mounted, and nobody to list it.
    room.chmod(0o711)
    try:
        harness, driver = (_readable(source, room) for source in (HARNESS, task.root / "driver.py"))
        bench = Bench(task, snapshot_dir, sandbox, harness, driver, stop.is_set)
        with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
            futures = [pool.submit(_judge, bench, item, room / str(index)) for index, item in enumerate(todo)]
            try:
                _await(futures, begin, tick)
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
            return tuple(future.result() for future in futures)
    finally:
        remove(room)


def _await(futures: "list[Future[CheckResult]]", begin: float, tick: Callable[[float], None] | None) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        if tick:
            tick(time.monotonic() - begin)


def _readable(source: Path, room: Path) -> Path:
    target = room / source.name
    shutil.copyfile(source, target)
    target.chmod(0o444)
    return target


def _ours(error: BaseException) -> bool:
    """Return whether `error` comes out of the box's own code: a bug of ours says nothing about the candidate."""
    frames = (frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(name in ("agent_ab.sandbox", "agent_ab.bubblewrap", "agent_ab.process") for name in frames)


def _judge(bench: Bench, item: Item, room: Path) -> CheckResult:
    room.mkdir(mode=0o711)
    begin = time.monotonic()
    candidate = Candidate(bench, room)
    status, reason = CheckStatus.PASS, "as the rule says"
    try:
        item.judge(candidate)
    except CheckFailed as failure:
        status, reason = CheckStatus.FAIL, str(failure)
    except _STUMBLES as error:
        if _ours(error):
            raise
        status, reason = CheckStatus.FAIL, f"the judge could not read what came back: {type(error).__name__}: {error}"
    finally:
        candidate.close()
        remove(room)
    return CheckResult(
        id=item.id,
        status=status,
        reason=" ".join(one_line(reason).split())[:REASON_CHARS],
        rule=item.rule,
        scored=item.scored,
        duration_s=time.monotonic() - begin,
        evidence=candidate.record,
    )
