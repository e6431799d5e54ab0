"""Signs of life on stderr: live lines on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from agent_ab.model import Event, Step

PLAIN_EVERY_S = 10.0
"""Without a terminal, progress within a step is printed so often."""


class Progress:
    """An observer that shows events; use as a context manager."""

    def __init__(self, console: Console) -> None:
        """Show on `console`, which should be stderr, so that stdout holds results only."""
        self.headline = ""
        """What stands above the current step while it is shown live; empty: no such line."""
        self.every_step = True
        """Without a terminal, whether the end of each step is worth a line."""
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._printed_at = 0.0
        self._last = ""

    def __enter__(self) -> "Progress":
        """Begin to show."""
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the live lines."""
        if self._live:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        line = describe(event)
        if not line or line == self._last:
            return
        if self._live:
            step = Text(line, style="dim", no_wrap=True, overflow="ellipsis")
            head = Text(self.headline, no_wrap=True, overflow="ellipsis")
            self._live.update(Group(head, step) if self.headline else step)
            if event.lasting or (event.message == "ends" and self.every_step):
                self._console.print(Text(line, style="dim"))
        elif self._worth_a_line(event):
            self.say(line)
        self._last = line

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._printed_at = time.monotonic()

    def _worth_a_line(self, event: Event) -> bool:
        if event.lasting or (self.every_step and event.message in ("begins", "ends", "saved")):
            return True
        return time.monotonic() - self._printed_at >= PLAIN_EVERY_S


def describe(event: Event) -> str:
    """Return one event as a line, or an empty string for what needs no line."""
    if event.arm is None or event.step is None:
        took = f" ({event.elapsed_s:.0f} s)" if event.elapsed_s >= 1 else ""
        return "" if event.message == "saved" else event.message + took
    head = f"{event.who or event.arm:<9}  {event.step:<9}"
    if event.message == "begins":
        limit = f"  (limit {event.limit_s:.0f} s)" if event.limit_s else ""
        return f"{head}  ...{limit}" if event.step in (Step.SERVER, Step.AGENT) else ""
    if event.message == "ends":
        return f"{head}  {event.elapsed_s:6.1f} s"
    left = f", {max(0.0, event.limit_s - event.elapsed_s):.0f} s left" if event.limit_s else ""
    counts = f"  {event.turns} turns, {event.tokens} tokens" if event.step is Step.AGENT else ""
    return f"{head}  {event.elapsed_s:6.1f} s{left}{counts}"
