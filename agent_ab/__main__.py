"""The entry of `agent-ab` and of `python -m agent_ab`: signals first, then the imports, which take their time."""

import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

from agent_ab import interrupts

INTERRUPTED = 130
READER_GONE = 141
OUR_BUG = 4
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt(signum: int, _frame: FrameType | None) -> NoReturn:
    """Unwind everything, wherever it is."""
    for other in SIGNALS:
        signal.signal(other, _give_up)
    interrupts.note(signum)
    raise KeyboardInterrupt


def _give_up(_signum: int, _frame: FrameType | None) -> NoReturn:
    """End everything at once: the clean-up that the first signal started takes too long for somebody."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    # It may be in the middle of being imported.
    abandon = getattr(sys.modules.get("agent_ab.session.session"), "abandon", None)
    if abandon:
        abandon()
    os.write(2, b"error: interrupted twice; stopped at once, finished pairs are kept\n")
    os._exit(INTERRUPTED)


def _somewhere() -> bool:
    """Return whether the working directory exists; databases, runs and every child's start depend on it."""
    try:
        Path.cwd()
    except OSError as error:
        sys.stderr.write(f"error: the working directory cannot be entered: {error.strerror}; change to another one\n")
        return False
    return True


def _own_up(error: Exception) -> int:
    """Tell of an exception that nobody expected, in one line; the status is INVALID's, since Python's own is REJECT."""
    told = "".join(traceback.format_exception(error))
    last = traceback.format_exception_only(error)[-1].strip()
    try:
        handle, log = tempfile.mkstemp(prefix="agent-ab-error-", suffix=".log")
        os.write(handle, told.encode(errors="backslashreplace"))
        os.close(handle)
    except OSError:
        sys.stderr.write(told)
        log = "above"
    sys.stderr.write(f"error: this is a bug of agent-ab, or its machine failed it: {ascii(last)[1:-1]} (log: {log})\n")
    return OUR_BUG


def main() -> NoReturn:
    """Run the command line and exit with its status; SIGTERM and SIGHUP unwind the same blocks as Ctrl-C.

    A second signal cuts the unwinding short.
    """
    for signum in SIGNALS:
        signal.signal(signum, interrupt)
    # `>&-`: what is printed goes nowhere, and the status is what it would be.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        if not _somewhere():
            sys.exit(2)
        from agent_ab.cli import run_command

        status = run_command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        # `agent-ab runs | head`: nobody is left to tell, and the interpreter's own last flush would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = READER_GONE
    except Exception as error:  # noqa: BLE001 - whatever it is, the status must not be 1, which is REJECT
        status = _own_up(error)
    # Typer turns an interrupt into this status without a word.
    if status == INTERRUPTED:
        sys.stderr.write("error: interrupted; everything that was started has been stopped\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
