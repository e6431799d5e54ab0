"""Signs of life on stderr: one live line on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from agent_ab.model import Event, Step

PLAIN_EVERY_S = 10.0
"""Without a terminal, the agent's progress is printed so often."""


class Progress:
    """An observer that shows events; use as a context manager."""

    def __init__(self, console: Console) -> None:
        """Show on `console`, which should be stderr, so that stdout holds results only."""
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
        """End the live line."""
        if self._live:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        line = describe(event)
        if not line or line == self._last:
            return
        if self._live:
            self._live.update(Text(line, style="dim", no_wrap=True, overflow="ellipsis"))
            if event.message == "ends":
                self._console.print(Text(line, style="dim"))
        elif event.message in ("begins", "ends", "saved") or time.monotonic() - self._printed_at >= PLAIN_EVERY_S:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._printed_at = time.monotonic()
        self._last = line


def describe(event: Event) -> str:
    """Return one event as a line, or an empty string for what needs no line."""
    if event.arm is None or event.step is None:
        took = f" ({event.elapsed_s:.0f} s)" if event.elapsed_s >= 1 else ""
        return "" if event.message == "saved" else event.message + took
    head = f"{event.arm:<9}  {event.step:<9}"
    if event.message == "begins":
        limit = f"  (limit {event.limit_s:.0f} s)" if event.limit_s else ""
        return f"{head}  ...{limit}" if event.step in (Step.SERVER, Step.AGENT) else ""
    if event.message == "ends":
        return f"{head}  {event.elapsed_s:6.1f} s"
    left = f", {max(0.0, event.limit_s - event.elapsed_s):.0f} s left" if event.limit_s else ""
    counts = f"  {event.turns} turns, {event.tokens} tokens" if event.step is Step.AGENT else ""
    return f"{head}  {event.elapsed_s:6.1f} s{left}{counts}"
