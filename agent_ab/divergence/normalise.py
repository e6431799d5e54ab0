"""Named rules that take out of a text what no two runs share: for comparing two logs only, never in the traffic."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce

from agent_ab.model import Json

CALL_IDS = "call-ids"
"""The rule that is always applied: a tool call's id is the server's dice, so ids count by their order of appearance."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that differs between runs though nothing happened differently."""

    name: str
    about: str
    """What differs, as words for a sentence: `a duration`."""
    change: Callable[[str], str]
    """Takes it out of a text."""
    results_only: bool = False
    """Holds for what tools print, not for what people and models write."""


_PADDING = re.compile(r"([= ])\1+|(?<!\S)([-_])\2{3,}(?!\S)")


def _marking(mark: str, *patterns: str) -> Callable[[str], str]:
    """Return a function that writes `mark` for what the patterns find; what they call `key` stays."""
    compiled = [re.compile(pattern, re.MULTILINE) for pattern in patterns]

    def put(match: re.Match[str]) -> str:
        return (match.groupdict().get("key") or "") + mark

    def change(text: str) -> str:
        marked = reduce(lambda t, pattern: pattern.sub(put, t), compiled, text)
        if marked == text:
            return text
        # A shorter number is padded with more blanks, or framed by a longer rule of `=`.
        lines = zip(marked.split("\n"), text.split("\n"), strict=True)
        return "\n".join(new if new == old else _PADDING.sub(r"\1\2", new) for new, old in lines)

    return change


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = r"(?:(?:Mon|Tue(?:s)?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? )"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AP]M\b)?"
_ZONE = r"(?: ?(?:Z\b|UTC\b|GMT\b|CET\b|CEST\b|[A-Z]{2}T\b|[A-Z]DT\b|[+-]\d{2}:?\d{2}\b))?"
_UNIT = r"(?:ns|nsec|nanoseconds?|[uµ]s|[uµ]sec|microseconds?|ms|msec|milliseconds?|s|secs?|seconds?|mins?|minutes?)"
_NAME = r"[^\s/\"'`:;,()\[\]{}<>]+"

RULES: tuple[Rule, ...] = (
    Rule(
        "temporary-paths",
        "a temporary path",
        _marking("<temporary>", rf"(?:/var)?/tmp/{_NAME}", rf"/var/folders/\S+?/T/{_NAME}", r"\btmp[a-z0-9_]{8}\b"),
    ),
    Rule(
        "generated-ids",
        "a generated id",
        _marking(
            "<id>",
            r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",
            r"\b(?:ses|session|msg|prt|call|req|run|tool|toolu|chatcmpl)[-_](?=[A-Za-z0-9]*\d)[A-Za-z0-9]{12,}\b",
        ),
    ),
    Rule("addresses", "a memory address", _marking("<address>", r"\b0x[0-9a-fA-F]{6,16}\b")),
    Rule(
        "times",
        "a time",
        _marking(
            "<time>",
            rf"\b\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}{_ZONE}",
            rf"\b{_DAY}?{_MONTH} +\d{{1,2}},? {_CLOCK}{_ZONE}(?: \d{{4}}\b)?{_ZONE}",
            rf"\b{_DAY}?\d{{1,2}} {_MONTH} \d{{4}},? {_CLOCK}{_ZONE}",
            rf"(?<![\w:.])\d{{1,2}}:\d{{2}}:\d{{2}}(?:[.,]\d+)?{_ZONE}(?![\w:])",
            r"(?<![\w:.])(?:[01]\d|2[0-3]):[0-5]\d(?![\w:])",
        ),
    ),
    Rule(
        "dates",
        "a date",
        _marking(
            "<date>",
            r"\b\d{4}-\d{2}-\d{2}\b",
            r"\b\d{4}/\d{2}/\d{2}\b",
            rf"\b{_DAY}?{_MONTH} +\d{{1,2}},? +\d{{4}}\b",
            rf"\b{_DAY}?\d{{1,2}} {_MONTH} \d{{4}}\b",
            rf"\b{_DAY}{_MONTH} +\d{{1,2}}\b",
        ),
    ),
    Rule("epochs", "a time in seconds since 1970", _marking("<epoch>", r"(?<![\w.])1[6-9]\d{8}(?:\d{3}){0,3}(?!\w)")),
    Rule(
        "durations",
        "a duration",
        _marking(
            "<duration>",
            rf"(?<![\w.])(?:\d+h ?)?(?:\d+m ?)?\d+(?:\.\d+)?(?:e-\d+)? ?{_UNIT}\b",
            r"(?P<key>^(?:real|user|sys)[ \t]+)\d+\.\d+$",
            r"(?P<key>\b(?:duration|elapsed|took|time|wall|cpu)\w*[\"']?[ \t]*[:=][ \t]*[\"']?)\d+(?:\.\d+)?(?:e-\d+)?",
        ),
    ),
    Rule(
        "pids",
        "a process id",
        _marking(
            "<pid>",
            r"(?P<key>\b(?:p?pid|P?PID|[Pp]rocess|[Kk]illed)\b[\"']?[ \t]*[:=#]?[ \t]*)\d+\b",
            r"(?P<key>^\[\d+\][+-]?[ \t]+)\d+\b",
            r"^[ \t]*\d+(?=[ \t]+(?:pts/\d+|tty\d*|\?)[ \t])",
            r"(?P<key>/proc/)\d+\b",
        ),
    ),
    Rule(
        "ports",
        "a port",
        _marking("<port>", r"(?P<key>(?:127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1?\]):|\b[Pp]ort[ :=]+)\d{2,5}\b"),
    ),
    Rule(
        "line-order",
        "the order of lines",
        lambda text: "\n".join(sorted(text.split("\n"))),
        results_only=True,
    ),
)
"""In the order in which they are applied: the longer form of a thing comes before its parts."""

_BY_NAME = {rule.name: rule for rule in RULES}


def normalise(text: str, rules: Iterable[Rule] = RULES) -> str:
    """Return `text` without what `rules` take out."""
    return reduce(lambda changed, rule: rule.change(changed), rules, text)


@lru_cache(maxsize=1024)
def explaining(left: str, right: str, *, result: bool = True) -> tuple[str, ...]:
    """Return the names of the fewest rules under which the texts are equal; none when no rules make them so.

    `result` says that the texts are a tool's output. Kept, for a conversation sends its differences again every turn.
    """
    kept = [rule for rule in RULES if result or not rule.results_only]
    if left == right or normalise(left, kept) != normalise(right, kept):
        return ()
    for rule in reversed(tuple(kept)):
        fewer = [other for other in kept if other is not rule]
        if normalise(left, fewer) == normalise(right, fewer):
            kept = fewer
    return tuple(rule.name for rule in kept)


def about(names: Iterable[str]) -> str:
    """Return what the rules of these names stand for, as words."""
    return " and ".join(dict.fromkeys(_BY_NAME[name].about for name in names))


def with_mapped_call_ids(request: Json) -> Json:
    """Return a chat request whose tool-call ids are numbered in the order in which they appear in its messages."""
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        return request
    numbers: dict[str, str] = {}
    return {**request, "messages": [_mapped(message, numbers) for message in request["messages"]]}


def _mapped(message: Json, numbers: dict[str, str]) -> Json:
    if not isinstance(message, dict):
        return message
    changed = dict(message)
    if isinstance(message.get("tool_calls"), list):
        changed["tool_calls"] = [_numbered(call, "id", numbers) for call in message["tool_calls"]]
    return _numbered(changed, "tool_call_id", numbers)


def _numbered(value: Json, key: str, numbers: dict[str, str]) -> Json:
    if not isinstance(value, dict) or not isinstance(value.get(key), str):
        return value
    return {**value, key: numbers.setdefault(value[key], f"<call {len(numbers) + 1}>")}
