"""How the two arms went on from where they parted: turns, tools, files, tests, ends, repetition. Pure."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic import TypeAdapter

from agent_ab.divergence.reply_diff import End, end_of
from agent_ab.model import Attempt, Exchange, Json

LOOP_TIMES = 4
"""So often a passage stands at a reply's end before the reply counts as looping."""
LOOP_LEAST = 64
"""Characters that the repeated passages cover at least."""
LOOP_PERIOD = 400
"""Longest passage that is looked for, in characters."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One action that a reply asks for."""

    name: str
    arguments: Mapping[str, Json] | None
    """None when they are no JSON object."""
    text: str
    """The arguments as the model wrote them."""


@dataclass(frozen=True, slots=True)
class Course:
    """What one arm did from the first exchange that is not equal."""

    turns: int
    """Exchanges from there on."""
    turns_in_all: int
    tools: tuple[str, ...]
    """Names of the tools that were called, in order."""
    touched: tuple[str, ...]
    """Paths that were given to tools which write, in order, each once; relative where they lie in the workspace."""
    changed: tuple[str, ...]
    """Paths that the whole attempt's patch changes."""
    test_runs: int
    """Commands that run tests."""
    finish_reasons: Mapping[str, int]
    """`stop`, `tool_calls`, `length` ...; `error` for a reply without a reason."""
    budget_stops: int
    """Replies that ended at the response budget or the context's end."""
    malformed_calls: int
    """Calls whose arguments are no JSON object, and replies that the server could not parse as calls."""
    repeated_turns: int
    """Length of the longest run of turns that ask for exactly the same; 1 when no turn is like the one before."""
    looping_replies: int
    """Replies that end in one passage over and over."""
    ended: str
    """How the agent ended, with its last words."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """How both went on."""

    common: int
    """Equal exchanges before."""
    baseline: Course
    candidate: Course
    tool_distance: int
    """Fewest insertions, deletions and replacements that turn the one sequence of tools into the other."""


def follow(baseline: Attempt, candidate: Attempt, common: int) -> Aftermath:
    """Return how two attempts went on after `common` equal exchanges; their logs must have come with bodies."""
    left, right = _course(baseline, common), _course(candidate, common)
    return Aftermath(common, left, right, edit_distance(left.tools, right.tools))


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the Levenshtein distance of two sequences (Wagner and Fischer 1974, one row at a time)."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


def calls_of(exchange: Exchange) -> tuple[ToolCall, ...]:
    """Return the actions of a reply: its tool calls, or the one JSON action that the built-in agent's other protocol has."""
    if exchange.tool_calls:
        return tuple(_call(call) for call in exchange.tool_calls)
    action = _object(exchange.content)
    if action is None or not isinstance(action.get("tool"), str):
        return ()
    rest = {key: value for key, value in action.items() if key != "tool"}
    return (ToolCall(action["tool"], rest, json.dumps(rest, ensure_ascii=False)),)


def _call(call: Json) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    function = function if isinstance(function, dict) else {}
    text = function.get("arguments")
    text = text if isinstance(text, str) else ""
    return ToolCall(str(function.get("name") or ""), _object(text or "{}"), text)


def _object(text: str) -> dict[str, Json] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _course(attempt: Attempt, common: int) -> Course:
    exchanges = attempt.log.exchanges if attempt.log else ()
    after = exchanges[common:]
    calls = [call for exchange in after for call in calls_of(exchange)]
    run = attempt.agent
    root = f"{attempt.world.get('workspace', '')}/"
    return Course(
        turns=len(after),
        turns_in_all=len(exchanges),
        tools=tuple(call.name for call in calls),
        touched=tuple(dict.fromkeys(path.removeprefix(root) for call in calls for path in _written(call))),
        changed=attempt.patch.files if attempt.patch else (),
        test_runs=sum(runs_tests(call) for call in calls),
        finish_reasons=dict(sorted(Counter(e.finish_reason or "error" for e in after).items())),
        budget_stops=sum(e.finish_reason == "length" for e in after),
        malformed_calls=sum(malformed_calls(exchange) for exchange in after),
        repeated_turns=max((len(list(group)) for _, group in groupby(after, _asked)), default=0),
        looping_replies=sum(loops(e.content) or loops(e.reasoning) for e in after),
        ended=(f"{run.end}: {run.note}" if run.note else run.end.value) if run else attempt.invalid_reason or "unknown",
    )


_WRITES = re.compile(r"write|edit|patch|create|replace|insert", re.IGNORECASE)
_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file")


def _written(call: ToolCall) -> tuple[str, ...]:
    if not _WRITES.search(call.name) or call.arguments is None:
        return ()
    values = (call.arguments.get(key) for key in _PATH_KEYS)
    return tuple(value for value in values if isinstance(value, str))[:1]


_TESTS = re.compile(
    r"\b(?:pytest|py\.test|unittest|nose2?|tox|(?:make|npm|cargo|go|yarn|pnpm) (?:run )?test|ctest|jest)\b"
)


def runs_tests(call: ToolCall) -> bool:
    """Return whether a call is a command that runs tests, going by its words."""
    commands = [call.arguments.get(key) for key in ("command", "cmd")] if call.arguments else []
    return any(isinstance(command, str) and _TESTS.search(command) is not None for command in commands)


def malformed_calls(exchange: Exchange) -> int:
    """Return how many calls have arguments that are no JSON object; a reply that the server could not parse counts as one."""
    if end_of(exchange) is End.MODEL_ERROR:
        return 1
    return 0 if end_of(exchange) is End.CUT else sum(call.arguments is None for call in calls_of(exchange))


def _asked(exchange: Exchange) -> tuple[str, ...]:
    calls = tuple(f"{call.name} {call.text}" for call in calls_of(exchange))
    # A turn without a call repeats only when it says the same again.
    return calls or ("", exchange.content, exchange.reasoning)


def loops(text: str) -> bool:
    """Return whether `text` ends in one passage `LOOP_TIMES` times over, with a part of it at the very end or not."""
    tail = text.rstrip()[-LOOP_PERIOD * (LOOP_TIMES + 1) :]
    for period in range(1, min(LOOP_PERIOD, len(tail) // LOOP_TIMES) + 1):
        covered = max(period * LOOP_TIMES, LOOP_LEAST)
        window = tail[-covered:]
        if len(window) == covered and window[period:] == window[:-period] and not window.isspace():
            return True
    return False


_AFTERMATH: TypeAdapter[Aftermath] = TypeAdapter(Aftermath)


def to_json(aftermath: Aftermath) -> Json:
    """Return `aftermath` as JSON-able data; `from_json` is its inverse."""
    return _AFTERMATH.dump_python(aftermath, mode="json")


def from_json(data: Json) -> Aftermath:
    """Return the aftermath that `to_json` wrote. Raises pydantic.ValidationError."""
    return _AFTERMATH.validate_python(data)
