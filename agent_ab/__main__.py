"""The entry of `agent-ab` and of `python -m agent_ab`: signals first, then the imports, which take their time."""

import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def _interrupt(_signum: int, _frame: FrameType | None) -> NoReturn:
    # Once is enough: a second signal must not break the clean-up that the first one started.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> NoReturn:
    """Run the command line and exit with its status; SIGTERM and SIGHUP unwind the same blocks as Ctrl-C."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    try:
        from agent_ab.cli import run_command

        status = run_command()
    except KeyboardInterrupt:
        status = INTERRUPTED
    # Typer turns an interrupt into this status without a word.
    if status == INTERRUPTED:
        sys.stderr.write("error: interrupted; everything that was started has been stopped\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
