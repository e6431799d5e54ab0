"""What the entry makes of what nobody expected: one line and a status that no CI takes for a verdict."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import agent_ab.cli
from agent_ab import __main__ as entry

AGENT_AB = (sys.executable, "-m", "agent_ab")


StatusOf = Callable[[BaseException], int]


@pytest.fixture
def status_of(monkeypatch: pytest.MonkeyPatch) -> StatusOf:
    """Return a function: what the entry exits with when the command line raises this."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(error: BaseException) -> int:
        def command() -> int:
            raise error

        monkeypatch.setattr(agent_ab.cli, "run_command", command)
        with pytest.raises(SystemExit) as ended:
            entry.main()
        return int(ended.value.code or 0)

    return run


@pytest.mark.parametrize(
    "error", [OverflowError("Python int too large"), MemoryError(), RecursionError("too deep"), ImportError("no scipy")]
)
def test_an_unexpected_exception_ends_in_one_line_with_its_log_and_never_as_reject(
    error: Exception, status_of: StatusOf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(error) == 4
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    log = _log(told)
    assert "Traceback" in log.read_text()
    assert type(error).__name__ in log.read_text()
    log.unlink()


def test_an_unexpected_exception_prints_nothing_that_steers_a_terminal_or_a_ci_runner(
    status_of: StatusOf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(ValueError("one\n::error::two \x1b[31m")) == 4
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "\n::" not in told
    _log(told).unlink()


def test_the_traceback_is_printed_where_it_cannot_be_written(
    status_of: StatusOf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert status_of(OverflowError("too large")) == 4
    assert "Traceback" in capsys.readouterr().err


def test_a_working_directory_that_is_gone_is_one_clear_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *AGENT_AB, "doctor"]
    env = {**os.environ, "PYTHONPATH": str(_root())}
    found = subprocess.run(command, cwd=gone, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.startswith("error: the working directory")


def test_a_reader_who_leaves_early_is_no_failure_of_ours() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        found = subprocess.run([*AGENT_AB, "--version"], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 141
    assert found.stderr == ""


def test_an_interrupt_where_a_question_is_asked_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asks(**_: object) -> int:
        raise typer.Abort

    monkeypatch.setattr(sys.modules["agent_ab.cli.app"], "app", asks)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err.startswith("error: interrupted")


def test_closed_streams_change_no_status() -> None:
    shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", *AGENT_AB]
    assert subprocess.run([*shell, "--version"], check=False).returncode == 0
    assert subprocess.run([*shell, "gate", "--db", "absent.db"], check=False).returncode == 2


def _log(told: str) -> Path:
    found = re.search(r"log: (.*)\)", told)
    assert found
    return Path(found[1])


def _root() -> Path:
    """Return the directory that the package is imported from."""
    return Path(entry.__file__).resolve().parents[1]
