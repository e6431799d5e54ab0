"""What a task's `checks.py` and `probes.py` import: the judge's side of the box.

The judge stays in this process and keeps the expected values; the candidate's code runs in a box of its own, one fresh
process per call, and only JSON and the files that it left in /state come back.
"""

import hashlib
import json
import math
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from agent_ab import sandbox
from agent_ab.config import Sandbox
from agent_ab.model import Json, Task

REPLY_CAP_BYTES = 1_000_000
STATE_CAP_BYTES = 64_000_000
RECORD_CAP_CHARS = 20_000
"""Of one entry of the evidence, as JSON text."""
ROWS_CAP = 200
"""Rows of one database that the evidence shows."""
SQL_CPU_S = 1.0
"""CPU time that the queries on one database may take together; a view that loops ends here."""
SQL_STEPS_BETWEEN_LOOKS = 20
CELL_CAP_BYTES = 262_144
"""Of one value in a database. Some SQL functions take quadratic time within one step."""
ROWS_CAP_BYTES = 64_000_000
"""Of all rows that a judge reads from one database."""


class CheckFailed(Exception):
    """The candidate does not keep the rule; the message is one sentence for the reader of the result."""


class Stopped(Exception):
    """The whole round of checks is being given up; says nothing about the candidate."""


@dataclass(frozen=True, slots=True)
class Item:
    """One check or probe, as its decorator left it in the task's module."""

    id: str
    rule: str
    """The sentence of the instruction (check), or what is looked at (probe)."""
    scored: bool
    judge: "Callable[[Candidate], None]"


def check(check_id: str, *, rule: str) -> "Callable[[Callable[[Candidate], None]], Item]":
    """Make the decorated function a scored check that enforces `rule`, a sentence of instruction.md."""
    return lambda judge: Item(check_id, rule, True, judge)


def probe(probe_id: str, *, about: str) -> "Callable[[Callable[[Candidate], None]], Item]":
    """Make the decorated function an unscored probe of an edge case."""
    return lambda judge: Item(probe_id, about, False, judge)


def fail(reason: str) -> NoReturn:
    """Fail the running check for `reason`, one sentence. Raises CheckFailed."""
    raise CheckFailed(reason)


def expect(actual: Json, expected: Json, what: str) -> None:
    """Fail unless `actual` is `expected` in exact types and values, all through (True is not 1, 1 is not 1.0)."""
    difference = _difference(actual, expected, what)
    if difference:
        fail(difference)


def _difference(actual: Json, expected: Json, where: str) -> str:
    if type(actual) is not type(expected):
        return (
            f"{where} is {_shown(actual)} of type {type(actual).__name__}; "
            f"expected {_shown(expected)} of type {type(expected).__name__}"
        )
    if isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return f"{where} has the keys {_shown(sorted(actual))}; expected {_shown(sorted(expected))}"
        return next((d for k in expected if (d := _difference(actual[k], expected[k], f"{where}.{k}"))), "")
    if isinstance(expected, list | tuple):
        if len(actual) != len(expected):
            return f"{where} has {len(actual)} items, {_shown(actual)}; expected {len(expected)}, {_shown(expected)}"
        pairs = enumerate(zip(actual, expected, strict=True))
        return next((d for i, (a, e) in pairs if (d := _difference(a, e, f"{where}[{i}]"))), "")
    return "" if actual == expected else f"{where} is {_shown(actual)}; expected {_shown(expected)}"


def _shown(value: Json) -> str:
    text = ascii(value)
    return text if len(text) <= 120 else text[:117] + "..."


@dataclass(frozen=True, slots=True)
class Bench:
    """What all checks of one snapshot share."""

    task: Task
    snapshot: Path
    settings: Sandbox
    harness: Path
    """box/harness.py, where the box's user can read it."""
    driver: Path
    """The task's driver.py, likewise."""
    stopped: Callable[[], bool] = lambda: False
    """Asked while a call runs; True gives the round up."""


class Candidate:
    """The code under judgement as one check sees it: its own empty /state, nothing left over from other checks."""

    def __init__(self, bench: Bench, room: Path) -> None:
        """Prepare `/state` and a place for the judge's private copies inside `room`, an empty directory of ours."""
        self._bench = bench
        self._state, self._private = room / "state", room / "private"
        self._state.mkdir(mode=0o755)
        self._private.mkdir(mode=0o700)
        self._left_s = bench.task.check_timeout_s
        self._databases: list[sqlite3.Connection] = []
        self.record: list[Json] = []
        """The evidence so far: each call, each file put, each file and row read."""
        self._box = sandbox.Box(
            bench.settings,
            (
                sandbox.Mount(bench.snapshot, "/workspace"),
                sandbox.Mount(bench.harness, "/check/harness.py"),
                sandbox.Mount(bench.driver, "/check/driver.py"),
                sandbox.Mount(self._state, "/state", writable=True),
            ),
        )
        self._box.own()

    def call(self, request: Json, timeout_s: float | None = None) -> Json:
        """Return the driver's reply to `request` from one fresh process whose working directory is `/state`.

        All calls of one check share the task's `check_timeout_s`; `timeout_s` can only shorten what is left of it.
        Raises CheckFailed for anything but exactly one well-formed reply.
        """
        limit_s = min(self._left_s, timeout_s if timeout_s is not None else self._left_s)
        entry: dict[str, Json] = {"call": request}
        self._note(entry)
        if limit_s <= 0:
            fail(f"the check's time of {self._bench.task.check_timeout_s:g} s is used up")
        token = secrets.token_hex(16)
        inside = self._box.inside
        argv = [
            sandbox.python(self._bench.settings.kind),
            "-I",
            "-B",
            "--check-hash-based-pycs",
            "always",
            inside(self._bench.harness),
        ]
        argv += [inside(self._bench.driver), inside(self._bench.snapshot / self._bench.task.import_path)]
        begin = time.monotonic()
        result = self._box.run(
            argv,
            cwd=self._state,
            env={},
            timeout_s=limit_s,
            stdin=json.dumps({"token": token, "request": request}).encode(),
            cap_bytes=REPLY_CAP_BYTES,
            tick=self._tick,
        )
        self._left_s -= time.monotonic() - begin
        last_words = _last_line(result.stderr)
        entry |= {"exit_code": result.exit_code, "last_words": last_words, "output_truncated": result.truncated}
        if result.timed_out:
            fail(f"no reply within {limit_s:g} s")
        reply = _reply(result.stdout, token, result.exit_code, last_words)
        entry["reply"] = reply
        return reply

    def put(self, name: str, data: bytes) -> None:
        """Write a file into `/state` before a call, replacing whatever is there under `name`."""
        _plain_name(name)
        self._note({"put": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        path = self._state / name
        try:
            with suppress(FileNotFoundError):
                path.unlink()
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            fail(f"/state/{name} cannot be replaced: {error.strerror}")
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if self._box.uid is not None:
                os.fchown(fd, self._box.uid, self._box.uid)

    def state(self, name: str) -> Path:
        """Return a private copy of the regular file that the candidate left as `/state/NAME`. Raises CheckFailed."""
        _plain_name(name)
        copy = self._copy(name)
        if copy is None:
            fail(f"the candidate left no file {name} in its working directory")
        self._note({"state": name, "size": copy.stat().st_size, "sha256": _sha256(copy)})
        return copy

    def database(self, name: str) -> sqlite3.Connection:
        """Return a read-only connection to a private copy of the SQLite file `/state/NAME`.

        A transaction that the candidate's process left unfinished is rolled back first, as SQLite does for anyone who
        opens the file. Queries are limited in time and size, and views and triggers cannot call anything unsafe. The
        rows that the judge reads become evidence. Raises CheckFailed, and sqlite3.Error when the file is damaged.
        """
        copy = self.state(name)
        for suffix in ("-journal", "-wal"):
            side = self._copy(name + suffix, copy.name + suffix)
            # A journal may name a super-journal, a path anywhere on our disk that SQLite would read and delete.
            if side is not None and suffix == "-journal" and side.read_bytes().endswith(_JOURNAL_MAGIC):
                fail(f"the candidate left a journal of {name} that refers to other files")
        connection = sqlite3.connect(copy, isolation_level=None)
        self._databases.append(connection)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL_CAP_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
        end = time.thread_time() + SQL_CPU_S
        connection.set_progress_handler(lambda: time.thread_time() > end, SQL_STEPS_BETWEEN_LOOKS)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON"):
            connection.execute(f"PRAGMA {pragma}")
        seen = _SeenRows()
        self._note({"database": name, "rows": seen.rows})
        connection.row_factory = seen
        return connection

    def close(self) -> None:
        """Close every database that the check opened."""
        for connection in self._databases:
            connection.close()
        self.record = [_capped(entry) for entry in self.record]

    def _tick(self, _elapsed_s: float) -> None:
        if self._bench.stopped():
            raise Stopped

    def _note(self, entry: Json) -> None:
        self.record.append(entry)

    def _copy(self, name: str, as_name: str | None = None) -> Path | None:
        target = self._private / (as_name or f"{len(self.record)}-{name}")
        directory = -1
        try:
            directory = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            # Looked at before it is opened: opening a device can have effects.
            seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(seen.st_mode):
                fail(f"the candidate left {name} as {_kind(seen.st_mode)}, not as a regular file")
            if seen.st_size > STATE_CAP_BYTES:
                fail(f"the candidate left {name} with {seen.st_size} bytes; at most {STATE_CAP_BYTES} are read")
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            fail(f"{name}, which the candidate left, cannot be read: {error.strerror}")
        finally:
            if directory >= 0:
                os.close(directory)
        with os.fdopen(fd, "rb") as source, target.open("wb") as sink:
            sink.write(source.read(STATE_CAP_BYTES))
        return target


_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""Ends a rollback journal that names a super-journal (sqlite.org/fileformat.html, section 3)."""


class _SeenRows:
    """A row factory that keeps the first rows as evidence and refuses to read without end."""

    def __init__(self) -> None:
        self.rows: list[Json] = []
        self._bytes = 0

    def __call__(self, _cursor: sqlite3.Cursor, row: tuple[Json, ...]) -> tuple[Json, ...]:
        self._bytes += sum(64 + (len(cell) if isinstance(cell, str | bytes) else 0) for cell in row)
        if self._bytes > ROWS_CAP_BYTES:
            fail(f"the candidate left a database with more than {ROWS_CAP_BYTES} bytes of rows")
        if len(self.rows) < ROWS_CAP:
            self.rows.append([cell if isinstance(cell, int | None) else _shown(cell) for cell in row])
        return row


def _reply(stdout: bytes, token: str, exit_code: int, last_words: str) -> Json:
    if len(stdout) >= REPLY_CAP_BYTES:
        fail(f"the reply is longer than {REPLY_CAP_BYTES} bytes")
    if not stdout:
        fail(f"no reply: the process ended with status {exit_code}" + (f" ({last_words})" if last_words else ""))
    lines = stdout.split(b"\n")
    if len(lines) != 2 or lines[1] or not lines[0].startswith(token.encode() + b" "):
        fail("something other than the one reply was written to the reply channel")
    try:
        return json.loads(
            lines[0][len(token) + 1 :], parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        fail(f"the reply is not plain JSON: {error}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("an object has the same key twice")
    return mapping


def _last_line(stderr: bytes) -> str:
    lines = stderr[-4000:].decode("utf-8", "replace").split("\n")
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return one_line(line)[:200]


def _capped(entry: Json) -> Json:
    text = json.dumps(entry)
    return _encodable(entry) if len(text) <= RECORD_CAP_CHARS else {"truncated": text[:RECORD_CAP_CHARS]}


def _encodable(value: Json) -> Json:
    """Return `value` with every half of a surrogate pair, which no file or database takes, spelt out."""
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_encodable(inner) for inner in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def one_line(text: str) -> str:
    """Return `text` on one line, without control characters and whatever else no terminal, file or database takes."""
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)


def _plain_name(name: str) -> None:
    if not name or "/" in name or name in (".", "..") or "\0" in name:
        raise ValueError(f"{name!r} is not a plain file name")


def _kind(mode: int) -> str:
    names = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO"}
    return names.get(stat.S_IFMT(mode), "a special file")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
