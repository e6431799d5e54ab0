"""Child processes: output, time limits, and that nothing stays behind."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_ab import process
from agent_ab.process import Given
from tests.patience import cut_off

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
LONG_S = 60.0
"""Longer than any of these programs takes."""


def python(code: str, *args: object) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *map(str, args)]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.01)


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


SURVIVOR = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    with open(sys.argv[1], "w") as f:
        print(os.getpid(), file=f)
    time.sleep(600)
    os._exit(0)
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read().endswith("\\n")):
    time.sleep(0.01)
print("last words", flush=True)
"""
"""Leaves a child in another session that holds both pipes."""


def test_output_and_exit_status_are_returned() -> None:
    done = process.run(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), env=ENV, timeout_s=LONG_S
    )
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert not done.timed_out
    assert not done.truncated


def test_the_child_gets_exactly_the_given_environment() -> None:
    done = process.run(["env"], env=ENV | {"ONLY": "this"}, timeout_s=LONG_S)
    assert sorted(done.stdout.split()) == [b"ONLY=this", b"PATH=" + ENV["PATH"].encode()]


def test_the_child_runs_in_the_given_directory(tmp_path: Path) -> None:
    done = process.run(["pwd", "-P"], env=ENV, timeout_s=LONG_S, cwd=tmp_path)
    assert Path(done.stdout.decode().strip()) == tmp_path.resolve()


def test_a_death_by_signal_is_a_negative_status() -> None:
    done = process.run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), env=ENV, timeout_s=LONG_S)
    assert done.exit_code == -signal.SIGKILL
    assert not done.timed_out


def test_stdin_larger_than_a_pipe_is_fed_while_output_is_read() -> None:
    data = os.urandom(3_000_000)
    done = process.run(["cat"], env=ENV, timeout_s=LONG_S, given=Given(stdin=data), cap_bytes=4_000_000)
    assert done.stdout == data


def test_a_child_that_ignores_its_stdin_ends_normally() -> None:
    done = process.run(["true"], env=ENV, timeout_s=LONG_S, given=Given(stdin=b"x" * 1_000_000))
    assert done.exit_code == 0


def test_a_child_that_closes_its_stdin_may_go_on_talking() -> None:
    code = "import os; os.close(0); print('still here')"
    done = process.run(python(code), env=ENV, timeout_s=LONG_S, given=Given(stdin=b"x" * 1_000_000))
    assert done.stdout == b"still here\n"


def test_without_input_stdin_is_at_its_end() -> None:
    assert process.run(["cat"], env=ENV, timeout_s=LONG_S).exit_code == 0


def test_descriptors_are_inherited_only_when_given(tmp_path: Path) -> None:
    with (tmp_path / "given").open("w+b") as given, (tmp_path / "other").open("w+b") as other:
        os.set_inheritable(other.fileno(), True)
        code = "import os, sys; os.write(int(sys.argv[1]), b'here'); os.fstat(int(sys.argv[2]))"
        argv = python(code, given.fileno(), other.fileno())
        done = process.run(argv, env=ENV, timeout_s=LONG_S, given=Given(fds=(given.fileno(),)))
    assert done.exit_code == 1
    assert b"Bad file descriptor" in done.stderr
    assert (tmp_path / "given").read_bytes() == b"here"


def test_a_flood_is_cut_at_the_cap_and_flagged() -> None:
    code = "import os\nfor _ in range(320): os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)"
    done = process.run(python(code), env=ENV, timeout_s=LONG_S, cap_bytes=10_000)
    assert done.exit_code == 0
    assert (done.stdout, done.stderr) == (b"x" * 10_000, b"y" * 10_000)
    assert done.truncated


def test_output_of_exactly_the_cap_is_whole() -> None:
    done = process.run(python("import os; os.write(1, b'x' * 1000)"), env=ENV, timeout_s=LONG_S, cap_bytes=1000)
    assert len(done.stdout) == 1000
    assert not done.truncated


def test_an_endless_flood_is_stopped_at_the_time_limit() -> None:
    done = cut_off(
        lambda limit_s: process.run(["yes"], env=ENV, timeout_s=limit_s, cap_bytes=10), lambda done: done.truncated
    )
    assert done.timed_out
    assert done.stdout == b"y\n" * 5
    assert done.truncated


def test_both_streams_go_to_the_output_file_in_their_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    code = "import os; os.write(1, b'one\\n'); os.write(2, b'two\\n'); os.write(1, b'three\\n')"
    done = process.run(python(code), env=ENV, timeout_s=LONG_S, output=log)
    assert log.read_bytes() == b"before\none\ntwo\nthree\n"
    assert (done.stdout, done.stderr) == (b"", b"")


def test_the_output_file_is_capped_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os\nfor _ in range(100): os.write(1, b'x' * 65536)"
    done = process.run(python(code), env=ENV, timeout_s=LONG_S, output=log, cap_bytes=5000)
    assert log.stat().st_size == 5000
    assert done.truncated


def test_lost_output_is_an_error_and_ends_the_child() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(OSError, match="No space left"):
        process.run(python(code), env=ENV, timeout_s=LONG_S, output=Path("/dev/full"))


def test_a_child_past_its_time_is_killed_with_its_group() -> None:
    script = "trap '' TERM; sleep 600 & echo $!; wait"
    done = cut_off(
        lambda limit_s: process.run(["sh", "-c", script], env=ENV, timeout_s=limit_s), lambda done: bool(done.stdout)
    )
    assert done.timed_out
    assert done.exit_code == -signal.SIGKILL
    until(lambda: not process.exists(int(done.stdout)))


def test_a_child_in_another_session_that_holds_the_pipes_does_not_hold_us(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    done = process.run(python(SURVIVOR, pid_file), env=ENV, timeout_s=LONG_S)
    survivor = pid_in(pid_file)
    try:
        assert process.exists(survivor)
        assert done.stdout == b"last words\n"
        assert not done.timed_out
    finally:
        os.kill(survivor, signal.SIGKILL)


def test_what_a_stranger_writes_later_is_not_output(tmp_path: Path) -> None:
    go, pid_file = tmp_path / "go", tmp_path / "pid"
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    with open(sys.argv[2], 'w') as f: print(os.getpid(), file=f)\n"
        "    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "    print('late', flush=True)\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
    )
    log = tmp_path / "log"
    process.run(python(code, go, pid_file), env=ENV, timeout_s=LONG_S, output=log)
    go.touch()
    survivor = pid_in(pid_file)
    until(lambda: not process.exists(survivor))
    assert log.read_bytes() == b""


def test_tick_hears_of_the_passing_time() -> None:
    heard: list[float] = []
    process.run(["sleep", "0.3"], env=ENV, timeout_s=LONG_S, tick=heard.append)
    assert len(heard) >= 2
    assert heard == sorted(heard)


def test_an_exception_out_of_tick_ends_the_child(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import os, sys, time\n"
        "with open(sys.argv[1], 'w') as f: print(os.getpid(), file=f)\n"
        "print('ready', flush=True); time.sleep(600)"
    )

    def interrupt(_: float) -> None:
        if pid_file.exists() and pid_file.read_text().endswith("\n"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.run(python(code, pid_file), env=ENV, timeout_s=LONG_S, tick=interrupt)
    assert not process.exists(pid_in(pid_file))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    process.run(["true"], env=ENV, timeout_s=LONG_S)
    before = sorted(Path("/proc/self/fd").iterdir())
    process.run(["cat"], env=ENV, timeout_s=LONG_S, given=Given(stdin=b"x"), output=tmp_path / "log")
    process.run(["sleep", "600"], env=ENV, timeout_s=0.1)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("name", ["no-such-program-here", "/no/such/program", "./missing"])
def test_a_missing_program_is_an_error_and_not_an_exit_status(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        process.run([name], env=ENV, timeout_s=LONG_S, cwd=tmp_path)
    with pytest.raises(FileNotFoundError, match=name), process.started([name], env=ENV, log=tmp_path / "log", name="x"):
        pass


def test_a_program_that_may_not_be_run_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    with pytest.raises(PermissionError, match="program"):
        process.run([str(program)], env=ENV, timeout_s=LONG_S)


def test_a_started_child_is_stopped_when_its_block_ends(tmp_path: Path) -> None:
    with process.started(["sleep", "600"], env=ENV, log=tmp_path / "log", name="sleeper") as child:
        assert child.exit_code() is None
    assert child.exit_code() == -signal.SIGTERM
    assert not process.exists(child.pid)


def test_a_started_child_is_stopped_when_its_block_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError),
        process.started(["sleep", "600"], env=ENV, log=tmp_path / "log", name="s") as child,
    ):
        raise RuntimeError
    assert not process.exists(child.pid)


def test_a_child_that_ignores_term_is_killed_after_the_patience(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'no\\n'))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(600)"
    )
    with process.started(python(code), env=ENV, log=log, name="stubborn", patience_s=(0.2, 0.2)) as child:
        until(lambda: log.read_text() == "ready\n")
    assert child.exit_code() == -signal.SIGKILL
    assert log.read_text() == "ready\nno\nno\n"


def test_a_child_that_has_ended_by_itself_keeps_its_status(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process.started(python("print('said'); raise SystemExit(7)"), env=ENV, log=log, name="brief") as child:
        assert child.wait(LONG_S) == 7
    assert child.exit_code() == 7
    assert log.read_text() == "said\n"


def test_the_rest_of_the_group_goes_with_a_child_that_has_ended(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    with open(sys.argv[1], 'w') as f: print(os.getpid(), file=f)\n"
        "    time.sleep(600)"
    )
    with process.started(python(code, pid_file), env=ENV, log=tmp_path / "log", name="parent") as child:
        assert child.wait(LONG_S) == 0
        orphan = pid_in(pid_file)
    until(lambda: not process.exists(orphan))


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import sys; from pathlib import Path; from agent_ab import process\n"
        "with process.started(['sleep', '600'], env={'PATH': '/usr/bin:/bin'}, log=Path(sys.argv[1] + '.log'), name='s') as c:\n"
        "    Path(sys.argv[1]).write_text(f'{c.pid}\\n'); c.wait(600)"
    )
    env = ENV | {"PYTHONPATH": str(Path(process.__file__).parents[1])}
    argv = [sys.executable, "-c", code, str(pid_file)]
    with process.started(argv, env=env, log=tmp_path / "log", name="parent") as parent:
        grandchild = pid_in(pid_file)
        # The guard is set by the child itself, just before it becomes the program.
        until(lambda: b"sleep" in Path(f"/proc/{grandchild}/cmdline").read_bytes().split(b"\0")[0])
        parent.signal_group(signal.SIGKILL)
        parent.wait(LONG_S)
    until(lambda: not process.exists(grandchild))


def test_a_process_that_never_was_does_not_exist() -> None:
    assert not process.exists(2**22 + 1)
    assert process.exists(os.getpid())


def stopping_us(then: str) -> list[str]:
    """Return a command that stops this process, sleeps for two seconds, lets it go on, and does `then`."""
    return ["sh", "-c", f"kill -STOP $PPID; sleep 2; kill -CONT $PPID; {then}"]


def test_a_child_that_ended_while_we_were_stopped_is_not_timed_out() -> None:
    done = process.run(stopping_us("exit 7"), env=ENV, timeout_s=1.0)
    assert (done.timed_out, done.exit_code) == (False, 7)
    assert done.stood_still_s > 1.0


@pytest.mark.parametrize("tick", [None, lambda _elapsed_s: None])
def test_a_pause_of_ours_is_measured_and_is_no_part_of_the_childs_time(tick: Callable[[float], None] | None) -> None:
    done = process.run(stopping_us("sleep 0.2; echo in time"), env=ENV, timeout_s=1.9, tick=tick)
    assert (done.timed_out, done.stdout) == (False, b"in time\n")
    assert done.stood_still_s > 1.0


def test_a_wait_without_a_pause_stood_still_for_no_time() -> None:
    assert process.run(["sleep", "0.1"], env=ENV, timeout_s=LONG_S).stood_still_s == 0
