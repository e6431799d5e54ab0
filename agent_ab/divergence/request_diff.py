"""Two requests -> where they differ and the likely cause in words; requests that are no turn of the agent's. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from agent_ab.divergence.normalise import about, explaining, normalise, with_mapped_call_ids
from agent_ab.model import Exchange, ExchangeLog, Json

_MISSING = object()
_SHOWN = 60
"""Most characters of a command that a sentence quotes."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One place where two JSON values differ."""

    keys: tuple[str | int, ...]
    left: Json
    """None also when it is missing."""
    right: Json

    @property
    def path(self) -> str:
        """Return the place as `$.messages[3].content`."""
        return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)


@dataclass(frozen=True, slots=True)
class RequestDifference:
    """Where two requests part."""

    path: str
    left: Json
    right: Json
    source: str
    """What stands at the path, in words: `the result of bash 'ls -la'`."""
    cause: str
    """What most likely made the difference, in words."""
    rules: tuple[str, ...]
    """The normalising rules under which the two are equal; empty when none make them so."""


def differences(left: Json, right: Json, keys: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    """Yield every place where two JSON values differ, in the left one's order; 1, 1.0 and true are three values.

    Objects whose members differ in nothing but their order differ too, for a model reads them in order.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        found = False
        for key in [*left, *(k for k in right if k not in left)]:
            for leaf in _members(left.get(key, _MISSING), right.get(key, _MISSING), (*keys, key)):
                found = True
                yield leaf
        if not found and list(left) != list(right):
            yield Leaf(keys, list(left), list(right))
    elif isinstance(left, list) and isinstance(right, list):
        for index, (a, b) in enumerate(zip_longest(left, right, fillvalue=_MISSING)):
            yield from _members(a, b, (*keys, index))
    elif type(left) is not type(right) or left != right:
        yield Leaf(keys, left, right)


def _members(left: Json, right: Json, keys: tuple[str | int, ...]) -> Iterator[Leaf]:
    if left is _MISSING or right is _MISSING:
        yield Leaf(keys, None if left is _MISSING else left, None if right is _MISSING else right)
    else:
        yield from differences(left, right, keys)


def as_sent(request: Json, pinned: Mapping[str, Json]) -> Json:
    """Return a recorded request without what the proxy wrote into it; `pinned` names nested keys with a dot."""
    if not isinstance(request, dict):
        return request
    sent = {key: value for key, value in request.items() if key not in pinned}
    for name in pinned:
        outer, dot, inner = name.partition(".")
        if dot and isinstance(sent.get(outer), dict):
            sent[outer] = {key: value for key, value in sent[outer].items() if key != inner}
            if not sent[outer]:
                del sent[outer]
    return sent


def explain_first(left: Json, right: Json) -> RequestDifference | None:
    """Return where two first requests part and why; None when they are the same to a model.

    Give the bodies as the agents sent them (`as_sent`): what the proxy pins is no difference of theirs.
    """
    if isinstance(left, dict) and isinstance(right, dict) and bool(left.get("tools")) != bool(right.get("tools")):
        cause = "a side request came first: one of the two offers no tools" + _title_words(left, right)
        return RequestDifference("$.tools", left.get("tools"), right.get("tools"), "the tools", cause, ())
    leaf = next(differences(with_mapped_call_ids(left), with_mapped_call_ids(right)), None)
    return None if leaf is None else explain(leaf, left, right)


def explain(leaf: Leaf, left: Json, right: Json) -> RequestDifference:
    """Return what `leaf`, a difference of two requests, most likely comes from."""
    rules = rules_of(leaf, left)
    cause = _rolled(about(rules), rules, leaf) if rules else _cause(leaf, left, right)
    return RequestDifference(leaf.path, leaf.left, leaf.right, _source(leaf.keys, left), cause, rules)


def rules_of(leaf: Leaf, request: Json) -> tuple[str, ...]:
    """Return the rules that explain a difference in a message's text; nothing else is ever explained away."""
    if leaf.keys[:1] != ("messages",) or not isinstance(leaf.left, str) or not isinstance(leaf.right, str):
        return ()
    return explaining(leaf.left, leaf.right, result=_is_result(leaf.keys, request))


def _rolled(words: str, rules: tuple[str, ...], leaf: Leaf) -> str:
    first = leaf.keys[:2] in (("messages", 0), ("messages", 1))
    return f"{words}: the date rolled over between the arms" if "dates" in rules and first else words


_SETTINGS = {
    "max_tokens": "the response budget",
    "max_completion_tokens": "the response budget",
    "n_predict": "the response budget",
    "model": "the model's name",
    "seed": "the seed",
    "stream": "streaming",
    "tool_choice": "the choice of tools",
    "reasoning_effort": "the thinking effort",
}


def _cause(leaf: Leaf, left: Json, right: Json) -> str:
    key = leaf.keys[0] if leaf.keys else ""
    if key == "tools":
        return _tools_cause(left, right)
    if key == "messages":
        return _message_cause(leaf, left, right)
    return _SETTINGS.get(str(key), f"the setting {key!r}" if key else "the shape of the request")


def _tools_cause(left: Json, right: Json) -> str:
    names = [[_tool_name(tool) for tool in request.get("tools") or []] for request in (left, right)]
    if names[0] == names[1]:
        return "a tool's description"
    if sorted(names[0]) == sorted(names[1]):
        return "the order of the tools"
    only = sorted(set(names[0]) ^ set(names[1]))
    return f"other tools are offered: {', '.join(only)}"


def _tool_name(tool: Json) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else str(tool)


def _message_cause(leaf: Leaf, left: Json, right: Json) -> str:
    systems = [_text(_message(request, ("messages", 0))) for request in (left, right)]
    if isinstance(leaf.left, str) and isinstance(leaf.right, str):
        tokens = _tokens_at(leaf.left, leaf.right)
        if any("/" in token for token in tokens):
            return "a path"
        if sorted(leaf.left.split("\n")) == sorted(leaf.right.split("\n")):
            return "the order of lines"
        if systems[0] != systems[1] and leaf.keys[:2] != ("messages", 0):
            return "another conversation: the system prompts differ"
        return "a result that differs between the runs" if _is_result(leaf.keys, left) else "another text"
    return "the number of messages" if len(leaf.keys) == 2 else "the shape of a message"


def _tokens_at(left: str, right: str) -> tuple[str, str]:
    at = first_difference(left, right)
    start = max((match.end() for match in re.finditer(r"[\s\"'`=:(<]", left[:at])), default=0)
    return re.split(r"[\s\"'`]", left[start:], maxsplit=1)[0], re.split(r"[\s\"'`]", right[start:], maxsplit=1)[0]


def first_difference(left: str, right: str) -> int:
    """Return the index of the first character in which two texts differ; the shorter's length when it is a prefix."""
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    low, high = 0, shorter
    # The common prefix ends in [low, high): halves are compared as slices, which is far faster than by character.
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle)
    return low


def _message(request: Json, keys: tuple[str | int, ...]) -> Mapping[str, Json]:
    messages = request.get("messages") if isinstance(request, dict) else None
    index = keys[1] if len(keys) > 1 else None
    if isinstance(messages, list) and isinstance(index, int) and index < len(messages):
        message = messages[index]
        return message if isinstance(message, dict) else {}
    return {}


def _text(message: Mapping[str, Json]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content)


def _is_result(keys: tuple[str | int, ...], request: Json) -> bool:
    role = _message(request, keys).get("role")
    return role == "tool" or (role == "user" and isinstance(keys[1], int) and keys[1] > 1)


def _source(keys: tuple[str | int, ...], request: Json) -> str:
    if keys[:1] != ("messages",) or len(keys) < 2:
        return f"the request's {keys[0]}" if keys else "the request"
    message = _message(request, keys)
    role = message.get("role")
    if role == "tool":
        return f"the result of {_called(request, message.get('tool_call_id'))}"
    if role == "assistant":
        return "what the agent sends back as the model's own words"
    if role == "user" and isinstance(keys[1], int) and keys[1] > 1:
        before = _message(request, ("messages", keys[1] - 1))
        return f"the agent's answer to {_quoted(_text(before))}"
    return {"system": "the system prompt", "user": "the user's message"}.get(str(role), "a message")


def _called(request: Json, call_id: Json) -> str:
    for message in request.get("messages", []):
        for call in message.get("tool_calls") or () if isinstance(message, dict) else ():
            if isinstance(call, dict) and call.get("id") == call_id and isinstance(call.get("function"), dict):
                function = call["function"]
                return f"{function.get('name')} {_quoted(_command(function.get('arguments')))}"
    return "a tool"


def _command(arguments: Json) -> str:
    try:
        parsed = json.loads(arguments)
    except (TypeError, ValueError):
        return str(arguments)
    if isinstance(parsed, dict):
        strings = [value for value in parsed.values() if isinstance(value, str)]
        return strings[0] if strings else str(arguments)
    return str(arguments)


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "...")


class Oddity(StrEnum):
    """Why a request is not one turn after the other of the agent's own conversation."""

    CONCURRENT = "concurrent"
    SIDE = "side"


@dataclass(frozen=True, slots=True)
class OddRequest:
    """One request that a reader must know of."""

    exchange: int
    oddity: Oddity
    detail: str


def odd_requests(log: ExchangeLog) -> tuple[OddRequest, ...]:
    """Return the requests that ran beside another one, and the side requests: titles, summaries, other agents.

    The conversation is the exchange with the most messages; a side request offers no tools where that one does, or has
    another system prompt.
    """
    found: list[OddRequest] = []
    conversation = max(log.exchanges, key=lambda e: (len(_messages(e)), -e.index), default=None)
    for exchange in log.exchanges:
        if exchange.concurrent:
            found.append(OddRequest(exchange.index, Oddity.CONCURRENT, "another request was open"))
        if conversation is not None and (detail := _side(exchange.request, conversation.request)):
            found.append(OddRequest(exchange.index, Oddity.SIDE, detail))
    return tuple(found)


def _messages(exchange: Exchange) -> list[Json]:
    messages = exchange.request.get("messages") if isinstance(exchange.request, dict) else None
    return messages if isinstance(messages, list) else []


def _side(request: Json, main: Json) -> str:
    if not isinstance(request, dict) or not isinstance(main, dict):
        return ""
    if main.get("tools") and not request.get("tools"):
        return "it offers no tools" + _title_words(request, main)
    # A prompt that tells the time is still the same prompt.
    systems = [normalise(_text(_message(r, ("messages", 0)))) for r in (request, main)]
    if systems[0] != systems[1]:
        return "it has another system prompt" + _title_words(request, main)
    return ""


_PURPOSES = {r"\btitles?\b": "a title", r"\b(?:summar\w+|compact\w*)\b": "a summary"}


def _title_words(left: Json, right: Json) -> str:
    """Return what the request without tools (or the first) asks for, as the end of a sentence."""
    request = right if left.get("tools") and not right.get("tools") else left
    text = _text(_message(request, ("messages", 0))).lower()
    for pattern, purpose in _PURPOSES.items():
        if re.search(pattern, text):
            return f" and asks for {purpose}"
    return ""
