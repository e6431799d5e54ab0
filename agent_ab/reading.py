"""TOML and JSON that others wrote -> data, and what is wrong with it in one line of our own words. Pure."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agent_ab.errors import UserError
from agent_ab.model import Json
from agent_ab.wording import counted, plain_line

SHOWN = 60
"""So much of a wrong value is quoted."""
DEEPEST = 64
"""Tables within tables; whoever nests deeper wants to break us."""
MOST_DOTS = 32
"""Dots in one TOML key: the time and memory that a parser takes grow with their square."""
MOST_VALUES = 10_000_000
"""In one file: each takes a parser up to 100 bytes, however short it is."""
TOML_BYTES = 1_000_000
"""Longest file of settings."""
LONGEST_NUMBER = 4300
"""Digits; Python converts no longer number."""

_TYPES = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of less than 4300 digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_unicode": "text without half characters",
    "none_required": "nothing",
    "dict_type": "a table of keys",
    "mapping_type": "a table of keys",
    "model_type": "a table of keys",
    "model_attributes_type": "a table of keys",
    "dataclass_type": "a table of keys",
    "list_type": "a list",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "string_pattern_mismatch": "text like {pattern}",
    "enum": "{expected}",
    "literal_error": "{expected}",
}
_QUOTED = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?(?:\"{3}|\\?\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|\#[^\n]*""", re.DOTALL
)
"""Strings and comments of TOML, those that do not end included: none is looked at twice."""
_BETWEEN_KEYS = re.compile(r"[=,\[\]{}\n]")
_UNION_MEMBER = re.compile(r"int|float|str|bool|(literal|tuple|list|dict)\[.*")


def toml(text: str, name: str) -> dict[str, Json]:
    """Return the TOML file `name`, with or without a byte-order mark. Raises UserError."""
    if any(part.count(".") > MOST_DOTS for part in _BETWEEN_KEYS.split(_QUOTED.sub("", text))):
        raise UserError(f"{name}: a key has more than {MOST_DOTS} dots")
    found: dict[str, Json] = _read(text, name, "TOML", tomllib.loads)
    return found


def json_data(text: str, name: str, repeated: Callable[[Sequence[tuple[str, Json]]], Json] | None = None) -> Json:
    """Return the JSON file `name`, with or without a byte-order mark. Raises UserError.

    `repeated` makes an object of its keys and values, in which a key may occur twice.
    """
    return _read(text, name, "JSON", lambda found: json.loads(found, object_pairs_hook=repeated))


def crowded(text: str | bytes, marks: str = "[{,") -> bool:
    """Return whether a file holds more values than are read; `marks` are the signs that stand between its values."""
    count = sum(text.count(m) for m in marks) if isinstance(text, str) else sum(text.count(m.encode()) for m in marks)
    return count > MOST_VALUES


def _read(text: str, name: str, form: str, load: Callable[[str], Any]) -> Any:
    if crowded(text):
        raise UserError(f"{name}: holds more than {MOST_VALUES:,} values")
    deep = f"{name}: is nested more than {DEEPEST} tables or lists deep"
    try:
        found = load(text.removeprefix("\ufeff"))
    except RecursionError:
        raise UserError(deep) from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{name}: not valid {form}: {plain_line(str(error))}") from None
    except ValueError:
        # Python's own limit, of which neither parser makes an error of its own.
        raise UserError(f"{name}:{_long_number(text)} a number has more than {LONGEST_NUMBER} digits") from None
    if not _shallow(found, DEEPEST):
        raise UserError(deep)
    return found


def _long_number(text: str) -> str:
    found = re.search(rf"[\d_]{{{LONGEST_NUMBER + 1}}}", text)
    return f" line {text.count(chr(10), 0, found.start()) + 1}:" if found else ""


def _shallow(value: Json, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_shallow(v, levels - 1) for v in inner if isinstance(v, dict | list))


def explain(error: ValidationError, prefix: str = "", noun: str = "key") -> str:
    """Return the first fault of a pydantic error as one line: its key, what it must be, and what it is.

    `noun` is what the file's form calls a key.
    """
    faults = error.errors(include_url=False)
    first = faults[0]
    place, wanted = first["loc"], [_wanted(first)]
    for other in faults[1:]:
        # Of a union every member complains, in a place below the value that is named by its type.
        if not _same_value(first["loc"], other["loc"]):
            break
        place = first["loc"][:-1]
        wanted.append(_wanted(other))
    key = plain_line(".".join(str(part) for part in ((prefix,) if prefix else ()) + place if part != "[key]"))
    if first["type"] == "missing":
        return f"{noun} {key!r} is missing"
    if first["type"] == "extra_forbidden":
        return f"unknown {noun} {key!r}"
    subject = f"{noun} {key!r}: " if key else ""
    # Our own checks quote what they need.
    value = "" if first["type"] == "value_error" else f", not {shown(first['input'])}"
    return f"{subject}{_either(wanted)}{value}"


def _same_value(place: Sequence[int | str], other: Sequence[int | str]) -> bool:
    return (
        bool(place)
        and place[:-1] == other[:-1]
        and all(isinstance(p[-1], str) and bool(_UNION_MEMBER.fullmatch(p[-1])) for p in (place, other))
    )


def _either(wanted: Sequence[str]) -> str:
    return " or ".join((wanted[0], *(words.removeprefix("must be ") for words in dict.fromkeys(wanted[1:]))))


def _wanted(fault: Mapping[str, Any]) -> str:
    kind, told = fault["type"], fault.get("ctx", {})
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}"
    if kind in _BOUNDS:
        bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in told.items()}
        return f"must be {_BOUNDS[kind].format(**bounds)}"
    if kind in ("too_short", "too_long", "string_too_short", "string_too_long"):
        noun = "character" if kind.startswith("string") else "entry"
        least = kind.endswith("short")
        count = counted(told["min_length" if least else "max_length"], noun).replace("entrys", "entries")
        return f"must have at {'least' if least else 'most'} {count}"
    if kind == "value_error":
        return plain_line(str(told["error"]))
    return plain_line(fault["msg"])


def shown(value: Json) -> str:
    """Return a value as it stands in a file, short, in one harmless line."""
    if isinstance(value, dict):
        return "a table of keys"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 4 * SHOWN:
        return "a number of many digits"
    return plain_line(repr(value) if isinstance(value, str) else str(value), SHOWN)
