"""What the judge says, as renderables for a terminal of 100 columns and as data; prints nothing itself."""

from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab.divergence.view import plain
from agent_ab.judge.classes import counts, sentence
from agent_ab.judge.view import STYLE, symptoms_table, threshold_sentence
from agent_ab.lossless import distribution
from agent_ab.lossless.lossless import Comparison, Lossless
from agent_ab.model import Json

SCHEMA = 1
"""Version of `data`'s shape: 1, the first."""
_LOSSLESS: TypeAdapter[Lossless] = TypeAdapter(Lossless)


def data(found: Lossless) -> Json:
    """Return everything that `view` shows, as data."""
    return {
        "schema": SCHEMA,
        "lossy": found.lossy,
        "undecided": found.undecided,
        "classes": dict(counts(c.judged for c in found.comparisons)),
        "equal": len(found.comparisons) - len(found.differences),
        "sentences": {_name(c): sentence(c.judged, found.threshold) for c in found.differences},
        **_LOSSLESS.dump_python(found, mode="json"),
    }


def view(found: Lossless) -> RenderableType:
    """Return the whole result."""
    parts: list[RenderableType] = [Text(f"{arm.value:<10} {method}") for arm, method in found.methods.items()]
    parts += [Text(f"judge      llama-cpp-python on {found.model}, llama.cpp {found.build}, one token at a time")]
    if found.libraries:
        parts.append(Text(f"           {found.libraries}", style="yellow"))
    parts += [Text(threshold_sentence(found.threshold)), Text(), _table(found), Text()]
    parts += [_verdict(found), Text(), symptoms_table(found.symptoms)]
    if found.distribution:
        test = found.distribution
        parts += [
            Text(),
            Text(f"repeated replies: {test.requests} requests, {test.repeats} replies an arm", style="bold"),
        ]
        parts += [Text(f"  {line}") for line in distribution.sentences(test)]
    return Group(*parts)


def _table(found: Lossless) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("request", "class"):
        table.add_column(name, no_wrap=True)
    table.add_column("", overflow="fold")
    for comparison in found.differences:
        kind = comparison.judged.kind
        words = sentence(comparison.judged, found.threshold)
        words = words.partition(": ")[2] if kind is not None else words
        table.add_row(_name(comparison), Text(str(kind), style=STYLE[kind]), Text(plain(words)))
    equal = len(found.comparisons) - len(found.differences)
    table.add_row(Text(f"{equal} others", style="dim"), Text("equal", style="dim"), "")
    return table


def _name(comparison: Comparison) -> str:
    return f"{comparison.id} @ {comparison.temperature:g}"


def _verdict(found: Lossless) -> Text:
    number = len(found.differences)
    told = ", ".join(f"{count} {kind}" for kind, count in counts(c.judged for c in found.comparisons).items())
    words = f"{number} of {len(found.comparisons)} replies differ: {told}"
    later = sum(len(c.judged.outliers) for c in found.comparisons)
    if later:
        words += f"; {later} more tokens outside the support after the first difference"
    different = found.distribution.different if found.distribution else ()
    if different:
        words += f"; the distribution of token {different[0].index + 1} differs"
    return Text(words, style="bold red" if found.lossy else "bold yellow" if found.undecided else "bold green")
