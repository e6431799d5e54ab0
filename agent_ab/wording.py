"""Numbers as people read them, and text that others wrote made harmless for a terminal, a CI log or Markdown. Pure."""

import re
import unicodedata
from collections.abc import Sequence

from agent_ab.model import Json

NOTHING = "-"
"""What stands where there is no number; never a zero that was not measured."""
NAMES = 20
"""Most names that a line or a table's cell lists."""
MOST_LISTED = 100
"""Most texts of one list in data that is printed; all are in the evidence."""
MOST_CHARACTERS = 100_000
"""Most characters of one text in data that is printed."""


def seconds(value: float | None) -> str:
    """Return a duration: `8.2 s`, `7 min 11 s`, `2 h 05 min`."""
    if value is None:
        return NOTHING
    if value < 99.95:
        return f"{value:.1f} s"
    if value < 3599.5:
        return f"{int(value + 0.5) // 60} min {int(value + 0.5) % 60:02} s"
    minutes = int(value / 60 + 0.5)
    return f"{minutes // 60} h {minutes % 60:02} min"


def percent(share: float | None) -> str:
    """Return a share as a percentage: `73.3 %`."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def rate(tokens_per_s: float | None) -> str:
    """Return a speed: `36.0 tok/s`."""
    return NOTHING if tokens_per_s is None else f"{tokens_per_s:.1f} tok/s"


def thousands(value: int | None) -> str:
    """Return a count with thin gaps: `131 072`."""
    return NOTHING if value is None else f"{value:,}".replace(",", " ")


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: `1 pair`, `8 pairs`."""
    return f"{thousands(number)} {noun}{'' if number == 1 else 's'}"


def no_interval(number: int, noun: str = "pair") -> str:
    """Return why there is no interval of `number` things: `no interval, since all 8 pairs are alike`."""
    return "no interval" + (f", since all {counted(number, noun)} are alike" if number > 1 else f" of one {noun}")


def ratio(value: float | None) -> str:
    """Return candidate over baseline: `0.62 x`."""
    return NOTHING if value is None else f"{value:.2f} x"


def change(value: float | None) -> str:
    """Return candidate over baseline as what it changes: `38 % less`, `1.9 times`, `equal`."""
    if value is None:
        return NOTHING
    if value >= 1.995:
        return f"{value:.1f} times"
    points = round(100 * (value - 1))
    return "equal" if points == 0 else f"{abs(points)} % {'more' if points > 0 else 'less'}"


def listed(counts: dict[str, int]) -> str:
    """Return counts by name, the greatest first: `tool_calls 7, stop 1`."""
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {thousands(count)}" for name, count in found) or NOTHING


def named(names: Sequence[str], most: int = NAMES) -> str:
    """Return names as a list, at most `most` and a count of the rest: `a.py, b.py and 19 998 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {thousands(rest)} more" if rest > 0 else "") or NOTHING


def capped(data: Json) -> Json:
    """Return JSON data with long lists of texts and long texts cut, and their sizes in place of what is left out."""
    if isinstance(data, dict):
        return {key: capped(value) for key, value in data.items()}
    if isinstance(data, list):
        rest = len(data) - MOST_LISTED
        if rest > 0 and all(isinstance(item, str) for item in data):
            return [*map(capped, data[:MOST_LISTED]), f"and {rest} more"]
        return [capped(item) for item in data]
    if isinstance(data, str) and len(data) > MOST_CHARACTERS:
        return f"{data[:MOST_CHARACTERS]}... ({len(data)} characters in all)"
    return data


def visible(text: str) -> str:
    """Return `text` with everything that steers a terminal, or the direction of reading, made visible."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(c) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else c for c in text)


def plain_line(text: str, most: int | None = None) -> str:
    """Return untrusted `text` as one line for a terminal or a CI log: no control character, no workflow command."""
    line = visible(" ".join(text.split()))
    # GitHub's runner takes `::name::` at a line's start, after blanks, and `##[name]` anywhere.
    line = re.sub(r":(?=:)", ": ", line).replace("##[", "## [")
    return line if most is None or len(line) <= most else line[: max(0, most - 3)] + "..."


def markdown_code(text: str, most: int | None = None) -> str:
    """Return untrusted `text` as a Markdown code span, in which nothing is markup, a link or a mention.

    The bar is escaped, as a table's cell needs it.
    """
    line = plain_line(text, most)
    if not line:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line[0] == "`" or line[-1] == "`" or (line[0] == line[-1] == " ") else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")


def _shown(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"
