"""The built-in agent's tools, as the model sees them."""

import os
import time
from pathlib import Path

import pytest

from tests.agent_program import Json, bash, make_workspace, results_of

LINES = [
    ("true", "[exit status 0]"),
    ("echo out; echo err >&2; exit 3", "out\nerr\n\n[exit status 3]"),
    ("kill -9 $$", "[exit status 137]"),
    ("printf 'a\\377b'", "a\ufffdb\n[exit status 0]"),
    ("exec >&- 2>&-; sleep 0.1; exit 5", "[exit status 5]"),
    ("no-such-program", "/bin/bash: line 1: no-such-program: command not found\n\n[exit status 127]"),
]
CASES = [
    ("read", {"path": "dir"}, "b.py\ninner"),
    ("read", {"path": "calc.py", "offset": 2, "limit": 1}, "    return a - b\n"),
    ("read", {"path": "dir/b.py", "limit": 1}, "x = 1\n\n[1 more lines]"),
    ("read", {"path": "calc.py", "offset": 99}, "(empty)"),
    ("read", {"path": "empty"}, "(empty)"),
    ("read", {"path": "latin.txt"}, "caf\ufffd costs\r\nnothing\n"),
    ("read", {"path": "../settings.json"}, "error: ../settings.json is outside the workspace"),
    ("read", {"path": "/etc/passwd"}, "error: /etc/passwd is outside the workspace"),
    ("read", {"path": "out"}, "error: out is outside the workspace"),
    ("read", {"path": "loop"}, "error: "),
    ("read", {"path": "fifo"}, "error: fifo is not a regular file"),
    ("read", {"path": "x" * 5000}, "error: File name too long"),
    ("write", {"path": "fifo", "content": "x"}, "error: fifo is not a regular file"),
    ("write", {"path": "dir", "content": "x"}, "error: dir is not a regular file"),
    ("write", {"path": "calc.py/x", "content": "x"}, "error: "),
    ("write", {"path": "out", "content": "x"}, "error: out is outside the workspace"),
    ("edit", {"path": "dir/b.py", "old": "1", "new": "2"}, "error: old occurs 2 times; give more of its"),
    ("edit", {"path": "dir/b.py", "old": "z", "new": "2"}, "error: old does not occur in dir/b.py: nothing"),
    ("edit", {"path": "dir/b.py", "old": "", "new": "2"}, "error: old does not occur"),
    ("edit", {"path": "dir/b.py", "old": "x = 1", "new": "x = 1"}, "error: old and new are equal"),
    ("glob", {"pattern": "*.py"}, "calc.py\ndir/b.py\ntest_calc.py"),
    ("glob", {"pattern": "dir/**"}, "dir/b.py"),
    ("glob", {"pattern": "**/?.py"}, "dir/b.py"),
    ("glob", {"pattern": "./[.py"}, "no files"),
    ("grep", {"pattern": "return|y ="}, "calc.py:2:    return a - b\ndir/b.py:2:y = 1"),
    ("grep", {"pattern": "a", "path": "calc.py"}, "calc.py:1:def add(a, b):\ncalc.py:2:    return a - b"),
    ("grep", {"pattern": "("}, "error: not a regular expression: "),
    ("grep", {"pattern": "HEAD|refs"}, "no matches"),
    ("grep", {"pattern": "x", "path": "/"}, "error: / is outside the workspace"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "ws")


@pytest.fixture
def odd(workspace: Path) -> Path:
    (workspace / "dir" / "inner").mkdir(parents=True)
    (workspace / "dir" / "b.py").write_text("x = 1\ny = 1\n")
    (workspace / "out").symlink_to("/etc/passwd")
    (workspace / "loop").symlink_to("loop")
    (workspace / "latin.txt").write_bytes(b"caf\xe9 costs\r\nnothing\n")
    (workspace / "empty").write_bytes(b"")
    os.mkfifo(workspace / "fifo")
    return workspace


def wait_until_gone(pid_file: Path) -> None:
    process = Path("/proc", pid_file.read_text().strip())
    deadline = time.monotonic() + 60
    while process.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not process.exists()


def test_file_tools_answer_or_say_what_is_wrong(odd: Path) -> None:
    answers = results_of(odd, *((name, arguments) for name, arguments, _ in CASES))
    wrong: list[Json] = []
    for (name, arguments, told), answer in zip(CASES, answers, strict=True):
        if not (answer.startswith(told) if told.startswith("error") else answer == told):
            wrong.append((name, arguments, answer))
    assert wrong == []


def test_write_makes_directories_and_keeps_bytes_and_mode(workspace: Path) -> None:
    (workspace / "calc.py").chmod(0o755)
    path = str(workspace / "new" / "deep.txt")
    results_of(
        workspace,
        ("write", {"path": path, "content": "é\r\nend"}),
        ("write", {"path": "calc.py", "content": "x\ud800"}),
    )
    assert (workspace / "new" / "deep.txt").read_bytes() == "é\r\nend".encode()
    assert (workspace / "calc.py").read_text() == "x\ufffd"
    assert (workspace / "calc.py").stat().st_mode & 0o777 == 0o755


def test_edit_leaves_foreign_bytes_alone(odd: Path) -> None:
    results_of(odd, ("edit", {"path": "latin.txt", "old": "nothing", "new": "much"}))
    assert (odd / "latin.txt").read_bytes() == b"caf\xe9 costs\r\nmuch\n"


def test_search_for_a_pattern_that_explodes_is_stopped(workspace: Path) -> None:
    (workspace / "a.txt").write_text("a" * 60 + "!\n")
    answer = results_of(workspace, ("grep", {"pattern": "(a+)+$"}), command_timeout_s=0.3)[0]
    assert answer == "error: stopped after 0.3 s"


def test_long_result_keeps_its_head_and_its_tail(workspace: Path) -> None:
    (workspace / "long.txt").write_text("head\n" + "x" * 100_000 + "\ntail")
    answer = results_of(workspace, ("read", {"path": "long.txt"}), context=8192)[0]
    assert answer.startswith("head\n") and answer.endswith("\ntail") and len(answer) < 3200


def test_command_runs_in_the_workspace_with_a_fixed_environment_and_no_input(workspace: Path) -> None:
    answer = bash(workspace, "pwd; cat; env | sort | cut -d= -f1 | tr '\\n' ' '")
    assert answer == (
        f"{workspace}\nHOME LANG PAGER PATH PWD PYTHONDONTWRITEBYTECODE PYTHONHASHSEED SHLVL TZ _ \n[exit status 0]"
    )


def test_model_sees_output_and_exit_status(workspace: Path) -> None:
    answers = results_of(workspace, *(("bash", {"command": line}) for line, _ in LINES))
    assert answers == [told for _, told in LINES]


def test_flood_of_output_is_cut_while_it_is_read(workspace: Path) -> None:
    answer = bash(workspace, "echo begin; yes | head -c 100000000; echo end", context=8192)
    assert len(answer) < 3200
    assert answer.startswith("begin\n") and answer.endswith("end\n\n[exit status 0]") and "left out" in answer


def test_command_ends_at_its_time_limit_with_all_its_children(workspace: Path) -> None:
    line = "setsid sleep 600 & echo $! > pid; nohup sleep 600 & sleep 600"
    answer = bash(workspace, line, command_timeout_s=0.5)
    assert answer.endswith("[stopped after 0.5 s]")
    wait_until_gone(workspace / "pid")


def test_child_in_the_background_that_holds_the_output_delays_nothing(workspace: Path) -> None:
    line = "(trap '' TERM HUP; setsid sleep 600) & setsid yes & echo $! > pid; echo started"
    answer = bash(workspace, line, context=8192)
    assert answer.endswith("[exit status 0]")
    wait_until_gone(workspace / "pid")
