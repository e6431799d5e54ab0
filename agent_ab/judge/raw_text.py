"""What a model may have written, word for word, so that a server made the recorded reply of it. Pure.

A reply is recorded in parts: reasoning, content, tool calls. The marks between them are the chat template's and were not
recorded. Each guess at them is one *style*; a wrong one does no harm: the judge uses only a style in which the baseline's
own reply is possible word for word, and accuses nobody of a mark that was guessed.
"""

from dataclasses import dataclass, field
from itertools import product

from agent_ab.judge.case import Guess
from agent_ab.model import Exchange

OPENINGS = ("", "```json\n", "```json", "<think>\n\n</think>\n\n", "\n", "\n\n", " ")
"""Before the first text, when there is no reasoning: what a server takes away."""
THOUGHTS = ("", "<think>\n", "<think>")
"""Before the reasoning; many templates end the prompt with it."""
AFTER_THOUGHTS = ("\n</think>\n\n", "</think>\n\n", "\n</think>\n", "</think>")
BEFORE_CALLS = ("", "\n", "\n\n")
CALL = '<tool_call>\n{"name": "'
ARGUMENTS = '", "arguments": '
CALL_ENDS = "}\n</tool_call>"
"""The Hermes form, which Qwen and others write; other forms do not keep the arguments as they were written."""


@dataclass(frozen=True, slots=True)
class Style:
    """One guess at the marks."""

    opening: str
    thought: str
    after_thought: str
    before_calls: str


def styles(*replies: Exchange) -> tuple[Style, ...]:
    """Return the guesses that make a difference for any of `replies`, the likeliest first."""
    thinking = any(reply.reasoning for reply in replies)
    silent = any(not reply.reasoning for reply in replies)
    calling = any(reply.tool_calls for reply in replies)
    options = (
        OPENINGS if silent else OPENINGS[:1],
        THOUGHTS if thinking else THOUGHTS[:1],
        AFTER_THOUGHTS if thinking and any(r.content or r.tool_calls for r in replies) else AFTER_THOUGHTS[:1],
        BEFORE_CALLS if calling else BEFORE_CALLS[:1],
    )
    return tuple(Style(*chosen) for chosen in product(*options))


def guess(reply: Exchange, style: Style) -> Guess:
    """Return the reply as one text."""
    text = _Text()
    if reply.reasoning:
        text.mark(style.thought).recorded(reply.reasoning)
        if reply.content or reply.tool_calls:
            text.mark(style.after_thought)
    else:
        text.mark(style.opening)
    text.recorded(reply.content)
    for index, call in enumerate(reply.tool_calls):
        text.mark(style.before_calls if index == 0 else "\n").mark(CALL)
        function = call.get("function") if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        text.recorded(str(function.get("name") or ""))
        # A call whose arguments have not begun may have stopped inside of its name's mark.
        if arguments := function.get("arguments"):
            text.mark(ARGUMENTS).recorded(str(arguments))
        if index + 1 < len(reply.tool_calls) or whole(reply):
            text.mark(CALL_ENDS)
    return Guess("".join(text.pieces), tuple(text.spans))


@dataclass(slots=True)
class _Text:
    pieces: list[str] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0

    def mark(self, text: str) -> "_Text":
        self.pieces.append(text)
        self.size += len(text.encode("utf-8", "surrogatepass"))
        return self

    def recorded(self, text: str) -> "_Text":
        begin = self.size
        self.mark(text)
        if text:
            self.spans.append((begin, self.size))
        return self


def whole(reply: Exchange) -> bool:
    """Return whether the model ended the reply by itself."""
    return reply.error is None and reply.finish_reason in ("stop", "tool_calls")
