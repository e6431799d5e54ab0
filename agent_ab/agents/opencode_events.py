"""What `opencode run --format json --print-logs` tells: JSON events and log lines, mixed. Pure.

Events (one JSON object a line): `step_start`, `text`, `tool_use`, `step_finish` with the reply's finish reason, `error`.
Log lines (`timestamp=... level=INFO message=...`) add what the events leave out: that a request went out, that a tool
began, that the session was compacted. A version without them loses those words and nothing else.
"""

import json
import re
from dataclasses import dataclass

from agent_ab.model import Json

MORE = ("tool-calls", "unknown")
"""Finish reasons after which OpenCode goes on by itself."""
LEFT = "agent_ab: left running: "
"""How the adapter's own last lines begin: a process that outlived OpenCode."""
LONGEST = 120

_ALLOWED = re.compile(r' message=evaluated permission=(\S+) pattern=("(?:[^"\\]|\\.)*"|\S+)')
_ASKED = re.compile(r" message=stream .*\bagent=(\S+)")


@dataclass(slots=True)
class Story:
    """A run so far, told line by line."""

    step: int = 0
    """Number of the last step that began; a step is one reply and its tool calls."""
    moves: int = 0
    """Grows with every sign that the work goes on."""
    finish: str = ""
    """Finish reason of the last step; empty while a step is open."""
    empty: bool = True
    """The last step had neither text nor a tool call."""
    running: str = ""
    """The tool call that is under way."""
    error: str = ""
    compactions: int = 0
    """Times that OpenCode had the conversation summarised: side requests without tools."""
    left: tuple[str, ...] = ()
    """Command lines of what still ran when OpenCode had ended."""

    @property
    def finished(self) -> bool:
        """Return whether the last word of the work was spoken."""
        return self.finish != "" and self.finish not in MORE

    def take(self, line: str) -> None:
        """Take the next line."""
        if line.startswith('{"type":'):
            try:
                event = json.loads(line)
            except ValueError:
                return
            self.moves += 1
            self._event(event)
        elif line.startswith(LEFT):
            self.left += (_short(line.removeprefix(LEFT)),)
        elif asked := _ASKED.search(line):
            self.moves += 1
            # It goes on after all, whatever the last step's reason was.
            self.finish = ""
            self.compactions += asked[1] == "compaction"
        elif allowed := _ALLOWED.search(line):
            self.moves += 1
            self.running = _short(f"{allowed[1]} {allowed[2]}")

    def _event(self, event: Json) -> None:
        part = event.get("part") or {}
        match event.get("type"):
            case "step_start":
                self.step += 1
                # The log may have told of this step's first tool already: `running` is left alone.
                self.finish, self.empty, self.error = "", True, ""
            case "text":
                self.empty = self.empty and not str(part.get("text", "")).strip()
            case "tool_use":
                self.empty, self.running = False, ""
            case "step_finish":
                self.finish = str(part.get("reason") or "unknown")
                self.running = ""
            case "error":
                self.error = _message(event.get("error"))

    def words(self, *, cut_off: bool, hung: bool = False) -> str:
        """Return how the run ended, in at most a few clauses; `cut_off`: by the clock or a signal, not by itself."""
        clauses = [self._end(cut_off)]
        if hung:
            clauses.append("OpenCode did not exit by itself and was ended")
        if self.compactions:
            clauses.append(f"the conversation was compacted {self.compactions} times")
        if self.left:
            clauses.append(f"left running: {', '.join(self.left[:3])}")
        return "; ".join(clauses)

    def _end(self, cut_off: bool) -> str:
        where = f"in step {self.step}" if self.step else "before its first reply"
        if self.error:
            return f"error {where}: {self.error}"
        if cut_off and not self.finished:
            return f"cut off {where}" + (f" while its tool ran: {self.running}" if self.running else "")
        if not self.step:
            return "ended without a reply"
        if self.finish == "length":
            return f"ended as if done {where}, whose reply had used up its response budget"
        if self.finished and self.empty:
            return f"ended as if done {where}, whose reply was empty"
        return f"completed {where}" if self.finished else f"ended {where}, which was not finished"


def _message(error: Json) -> str:
    data = error.get("data") if isinstance(error, dict) else None
    text = data.get("message") if isinstance(data, dict) else None
    return _short(str(text or (error.get("name") if isinstance(error, dict) else error)), 300)


def _short(text: str, longest: int = LONGEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."
