import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_ab import judging
from agent_ab.checks import HARNESS
from agent_ab.config import Sandbox
from agent_ab.judging import Bench, Candidate, CheckFailed, expect, fail
from agent_ab.model import SandboxKind
from agent_ab.snapshot import remove
from tests.small_task import small_task


class Desk:
    """A candidate without a box, and the directory that stands for its `/state`."""

    def __init__(self, root: Path, body: str) -> None:
        task = small_task(root / "tasks", driver="import os, sys\n\n\ndef main(request):\n" + body)
        (root / "room").mkdir()
        settings = Sandbox(kind=SandboxKind.NONE)
        snapshot = task.root / "solution"
        self.candidate = Candidate(Bench(task, snapshot, settings, HARNESS, task.root / "driver.py"), root / "room")
        self.state = root / "room" / "state"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, "    return request\n")
    yield made
    made.candidate.close()


def replies(tmp_path: Path, body: str, request: Any = None) -> Any:
    desk = Desk(tmp_path, "".join(f"    {line}\n" for line in body.split("\n")))
    try:
        return desk.candidate.call(request)
    finally:
        desk.candidate.close()


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (1, 1),
        ("a", "a"),
        (None, None),
        ([1, {"a": (2, 3.0)}], [1, {"a": (2, 3.0)}]),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ],
)
def test_equal_values_of_equal_types_are_expected(actual: Any, expected: Any) -> None:
    expect(actual, expected, "it")


@pytest.mark.parametrize(
    ("actual", "expected", "reason"),
    [
        (True, 1, "it is True of type bool; expected 1 of type int"),
        (1.0, 1, "it is 1.0 of type float; expected 1 of type int"),
        ((1,), [1], "it is (1,) of type tuple; expected [1] of type list"),
        ([1, 2], [1], "it has 2 items, [1, 2]; expected 1, [1]"),
        ({"a": [0, True]}, {"a": [0, 1]}, "it.a[1] is True of type bool; expected 1 of type int"),
        ({"a": 1}, {"b": 1}, "it has the keys ['a']; expected ['b']"),
        ("\x1b[31m", "red", "it is '\\x1b[31m'; expected 'red'"),
        (float("nan"), float("nan"), "it is nan; expected nan"),
    ],
)
def test_anything_else_fails_with_one_sentence(actual: Any, expected: Any, reason: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        expect(actual, expected, "it")
    assert str(caught.value) == reason


def test_a_failure_carries_its_reason() -> None:
    with pytest.raises(CheckFailed, match="no good"):
        fail("no good")


def test_a_call_returns_the_drivers_reply(desk: Desk) -> None:
    request = {"a": [1, 2.5, "ž", None, True], "big": 10**40}
    assert desk.candidate.call(request) == request
    assert desk.candidate.record[0]["reply"] == request


def test_calls_share_the_state_and_nothing_else(tmp_path: Path) -> None:
    desk = Desk(
        tmp_path,
        "    open('log', 'a').write('x')\n    import app\n    app.n = n = getattr(app, 'n', 0) + 1\n    return n\n",
    )
    assert [desk.candidate.call(None), desk.candidate.call(None)] == [1, 1]
    assert desk.candidate.state("log").read_text() == "xx"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("os._exit(3)", "no reply: the process ended with status 3"),
        ("raise ValueError('odd\\x1b[0m')", r"status 1 \(ValueError: odd\\x1b\[0m\)"),
        ("return (1,)", "tuple"),
        ("os.write(3, b'x\\n')\nreturn 1", "something other than the one reply"),
        ("os.write(3, b'T 1\\n')\nos._exit(0)", "something other than the one reply"),
        ("return 'x' * 2_000_000", "longer than"),
        ("while True:\n    pass", "no reply within 0.5 s"),
        ("os.kill(os.getpid(), 9)", "no reply: the process ended with status 137"),
    ],
)
def test_whatever_is_not_one_reply_fails(tmp_path: Path, body: str, reason: str) -> None:
    desk = Desk(tmp_path, "".join(f"    {line}\n" for line in body.split("\n")))
    with pytest.raises(CheckFailed, match=reason):
        desk.candidate.call(None, timeout_s=0.5 if "while" in body else None)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "1e999", '{"a": 1, "a": 1}', "1 2", "[", "[" * 100_000, "9" * 5000]
)
def test_a_forged_reply_must_be_plain_json_too(tmp_path: Path, number: str) -> None:
    body = f"token = sys._getframe(1).f_locals['token']\nos.write(3, f'{{token}} '.encode() + {number.encode()!r} + b'\\n')\nos._exit(0)"
    with pytest.raises(CheckFailed, match="the reply is not plain JSON"):
        replies(tmp_path, body)


def test_all_calls_of_a_check_share_its_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "    import time\n    time.sleep(request)\n")
    with pytest.raises(CheckFailed, match=r"no reply within 0\.2 s"):
        desk.candidate.call(60, timeout_s=0.2)
    desk.candidate._left_s = 0.0
    with pytest.raises(CheckFailed, match="the check's time of 10 s is used up"):
        desk.candidate.call(0)


def test_a_file_is_put_before_a_call_and_replaces_what_is_there(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "    return open('in', 'rb').read().hex()\n")
    (tmp_path / "outside").write_text("kept")
    (desk.state / "in").symlink_to(tmp_path / "outside")
    desk.candidate.put("in", b"\x00\xff")
    assert desk.candidate.call(None) == "00ff"
    assert (tmp_path / "outside").read_text() == "kept"


def test_a_file_is_not_put_over_a_directory(desk: Desk) -> None:
    (desk.state / "in").mkdir()
    with pytest.raises(CheckFailed, match="/state/in cannot be replaced"):
        desk.candidate.put("in", b"")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b"])
def test_only_plain_names_are_asked_for(desk: Desk, name: str) -> None:
    with pytest.raises(ValueError, match="not a plain file name"):
        desk.candidate.state(name)


def test_the_state_is_a_private_copy(desk: Desk) -> None:
    (desk.state / "out").write_bytes(b"one")
    copy = desk.candidate.state("out")
    (desk.state / "out").write_bytes(b"two")
    assert copy.read_bytes() == b"one"
    assert copy.parent.stat().st_mode & 0o077 == 0


def test_only_a_regular_file_of_bounded_size_is_read(desk: Desk, tmp_path: Path) -> None:
    (desk.state / "link").symlink_to("/etc/passwd")
    (desk.state / "directory").mkdir()
    os.mkfifo(desk.state / "fifo")
    with (desk.state / "huge").open("wb") as file:
        file.truncate(10**12)
    for name, reason in {
        "missing": "left no file missing",
        "link": "as a symbolic link",
        "directory": "as a directory",
        "fifo": "as a FIFO",
        "huge": "1000000000000 bytes",
    }.items():
        with pytest.raises(CheckFailed, match=reason):
            desk.candidate.state(name)


def database(desk: Desk, sql: str) -> sqlite3.Connection:
    connection = sqlite3.connect(desk.state / "w.db")
    connection.executescript(sql)
    connection.close()
    return desk.candidate.database("w.db")


def test_a_database_is_read_and_its_rows_become_evidence(desk: Desk) -> None:
    rows = database(desk, "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2.5, NULL)").execute(
        "SELECT * FROM t"
    )
    assert rows.fetchall() == [(1, "x"), (2.5, None)]
    assert desk.candidate.record[-1] == {"database": "w.db", "rows": [[1, "'x'"], ["2.5", None]]}


def test_a_database_cannot_be_written_by_the_judge(desk: Desk) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        database(desk, "CREATE TABLE t (a)").execute("INSERT INTO t VALUES (1)")


@pytest.mark.parametrize(
    "view",
    [
        "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c) SELECT count(*) AS a FROM c",
        "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c) SELECT zeroblob(100000) AS a FROM c",
        "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c) "
        "SELECT instr(hex(zeroblob(60000)), hex(zeroblob(30000)) || '1') AS a FROM c",
        "SELECT zeroblob(1000000000) AS a",
        "SELECT load_extension('/tmp/x') AS a",
    ],
)
def test_a_view_in_place_of_a_table_cannot_hold_the_judge_up(
    desk: Desk, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "SQL_CPU_S", 0.2)
    connection = database(desk, f"CREATE VIEW t AS {view}")
    with pytest.raises((sqlite3.Error, CheckFailed)):
        connection.execute("SELECT a FROM t").fetchall()


def test_a_file_that_is_no_database_is_an_sqlite_error(desk: Desk) -> None:
    (desk.state / "w.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(sqlite3.DatabaseError):
        desk.candidate.database("w.db").execute("SELECT * FROM t").fetchall()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_transaction_that_was_cut_off_is_rolled_back_and_a_finished_one_is_not(desk: Desk, mode: str) -> None:
    child = os.fork()
    if child == 0:
        try:
            connection = sqlite3.connect(desk.state / "w.db", isolation_level=None)
            connection.execute(f"PRAGMA journal_mode = {mode}")
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("CREATE TABLE t (a)")
            connection.execute("INSERT INTO t VALUES ('made')")
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO t VALUES (?)", [("x" * 2000,)] * 200)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (desk.state / f"w.db-{'journal' if mode == 'delete' else 'wal'}").stat().st_size > 0
    assert desk.candidate.database("w.db").execute("SELECT a FROM t").fetchall() == [("made",)]


def test_a_journal_that_names_another_file_is_not_followed(desk: Desk) -> None:
    (desk.state / "w.db").write_bytes(b"")
    (desk.state / "w.db-journal").write_bytes(b"\0" * 512 + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(CheckFailed, match="refers to other files"):
        desk.candidate.database("w.db")


def test_evidence_is_capped(desk: Desk) -> None:
    desk.candidate.call("x" * 500_000)
    desk.candidate.close()
    assert len(desk.candidate.record[0]["truncated"]) == judging.RECORD_CAP_CHARS


def test_evidence_can_be_written_whatever_the_candidate_says(desk: Desk) -> None:
    desk.candidate.call({"half \ud800": ["\udcff", float(10**30)]})
    desk.candidate.close()
    assert desk.candidate.record[0]["reply"] == {"half \\ud800": ["\\udcff", 1e30]}
    json.dumps(desk.candidate.record, ensure_ascii=False).encode()


def test_text_for_people_is_one_printable_line() -> None:
    assert judging.one_line("a\nb\tž\x1b[0m\udcff\0") == "a b ž\\x1b[0m\\udcff\\x00"


def test_a_locked_state_is_a_failed_check() -> None:
    room = Path(tempfile.mkdtemp(prefix="agent-ab-test-"))
    desk = Desk(room, "    return request\n")
    (desk.state / "out").write_bytes(b"x")
    for path in (room, *room.rglob("*")):
        os.chown(path, 61999, 61999) if os.geteuid() == 0 else None
    desk.state.chmod(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setuid(61999)
            try:
                desk.candidate.state("out")
            except CheckFailed as failure:
                status = 0 if "cannot be read: Permission denied" in str(failure) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    remove(room)
