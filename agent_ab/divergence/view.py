"""What differs in a pair, as renderables for a terminal of 100 columns and as data; prints nothing itself."""

import difflib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agent_ab import wording
from agent_ab.divergence import aftermath, parting
from agent_ab.divergence.aftermath import Aftermath, Course, ToolCall
from agent_ab.divergence.parting import Divergence, Kind, Parting, Where, sentence
from agent_ab.divergence.request_diff import OddRequest, odd_requests
from agent_ab.divergence.transcript import Said, Turn, turns
from agent_ab.judge.view import judgement_data, judgement_view
from agent_ab.model import Arm, CheckResult, CheckStatus, ExchangeLog, Json, Pair

SCHEMA = 1
"""Version of `data`'s shape: 1, the first."""
WIDTH = 100
"""Columns that everything fits in."""
LINES = 12
"""Most lines of one message that are shown, and a quarter of those of a patch, unless everything is asked for."""
TURNS = 6
"""Most exchanges that are shown, unless everything is asked for."""


@dataclass(frozen=True, slots=True)
class PairDiff:
    """What a view is made of."""

    pair: Pair
    baseline: ExchangeLog
    """With bodies: read from the evidence, not from the database."""
    candidate: ExchangeLog
    parting: Parting
    aftermath: Aftermath


def data(diff: PairDiff) -> Json:
    """Return everything that `view` shows as data that a page can be built from; only long lists of names are cut."""
    patches = {arm.value: _patch(diff.pair, arm) for arm in Arm}
    return {
        "schema": SCHEMA,
        "name": diff.pair.name,
        "outcome": diff.pair.outcome.value,
        "sentence": sentence(diff.parting.raw),
        "normalised_sentence": sentence(diff.parting.normalised),
        "divergence": parting.to_json(diff.parting),
        "aftermath": wording.capped(aftermath.to_json(diff.aftermath)),
        "judgement": judgement_data(diff.pair),
        "odd_requests": {arm.value: [asdict(odd) for odd in found] for arm, found in _odd(diff).items()},
        "flips": [_flip_data(*flip) for flip in _flips(diff.pair)],
        "transcript": [
            {
                "exchange": row.exchange,
                "common": row.exchange < diff.parting.raw.common,
                "baseline": None if row.baseline is None else asdict(row.baseline),
                "candidate": None if row.candidate is None else asdict(row.candidate),
            }
            for row in _rows(diff)
        ],
        "patches": {**patches, "between": "\n".join(patch_diff(patches["baseline"], patches["candidate"]))},
    }


def view(diff: PairDiff, *, full: bool = False) -> RenderableType:
    """Return the whole comparison; without `full` long messages, patches and conversations are cut, and say so."""
    lines = None if full else LINES
    parts: list[RenderableType] = [_headline(diff.pair), Text(), _where_they_part(diff.parting)]
    parts += [Text(f"{arm}: {words}") for arm, words in _odd_words(diff)]
    parts += [Text(), *judgement_view(diff.pair)] if diff.pair.judgement is not None else []
    parts += [Text(), _heading("checks that flipped"), _flip_table(diff.pair)]
    parts += [Text(), _heading("how they went on"), _aftermath_table(diff.aftermath)]
    parts += [Text(), *_transcript(diff, lines, None if full else TURNS), Text(), *_patches(diff.pair, lines)]
    return Group(*parts)


def _headline(pair: Pair) -> Text:
    return Text.assemble((pair.name, "bold"), f"  seed {pair.seed}  {pair.outcome}")


def _odd(diff: PairDiff) -> dict[Arm, tuple[OddRequest, ...]]:
    return {Arm.BASELINE: odd_requests(diff.baseline), Arm.CANDIDATE: odd_requests(diff.candidate)}


def _odd_words(diff: PairDiff) -> list[tuple[Arm, str]]:
    return [
        (arm, f"exchange {o.exchange}: {o.oddity} request: {o.detail}") for arm, odd in _odd(diff).items() for o in odd
    ]


# ---- where they part

_STYLE = {
    Kind.IDENTICAL: "green",
    Kind.MODEL: "bold red",
    Kind.DECLARED: "bold cyan",
    Kind.ENVIRONMENT: "bold yellow",
    Kind.INFRASTRUCTURE: "bold magenta",
}


def _where_they_part(found: Parting) -> RenderableType:
    parts: list[RenderableType] = [_told("as recorded", found.raw)]
    if found.normalised != found.raw:
        parts.append(_told("normalised", found.normalised))
    if found.declared:
        parts.append(Text(f"  declared: {plain(parting.declared_words(found.declared))}", style="dim"))
    for ignored in found.ignored[:5]:
        values = f"{ignored.baseline!r} and {ignored.candidate!r}"
        where = f"exchange {ignored.exchange}, {ignored.source}"
        parts.append(Text(f"  passed over ({', '.join(ignored.rules)}): {where}: {plain(values)}", style="dim"))
    if len(found.ignored) > 5:
        parts.append(Text(f"  and {len(found.ignored) - 5} more", style="dim"))
    if found.raw.where in (Where.REQUEST, Where.REPLY):
        table = Table(box=None, pad_edge=False, header_style="bold", width=WIDTH)
        for arm in Arm:
            table.add_column(f"{arm.value} has", ratio=1, overflow="fold")
        table.add_row(*(_side(side) for side in (found.raw.baseline, found.raw.candidate)))
        parts += [Text(), table]
    return Group(*parts)


def _told(label: str, found: Divergence) -> Text:
    text = Text.assemble((f"{label}: ", "bold"), (found.kind.value, _STYLE[found.kind]))
    return text.append(plain(sentence(found)[len(found.kind.value) :]))


def _side(side: parting.Side) -> Text:
    text = Text(plain(side.value), style="yellow")
    if side.token is not None:
        text.append(f"\ntoken {side.token.id} {side.token.piece!r}", style="dim")
    if side.end:
        text.append(f"\n[{plain(side.end)}]", style="dim")
    return text


# ---- transcripts


@dataclass(frozen=True, slots=True)
class _Row:
    exchange: int
    baseline: Turn | None
    candidate: Turn | None


def _rows(diff: PairDiff) -> list[_Row]:
    """Pair the turns by exchange, from the last common one on."""
    first = max(0, diff.parting.raw.common - 1)
    both = zip_longest(turns(diff.baseline, first), turns(diff.candidate, first))
    return [_Row(first + offset, *pair) for offset, pair in enumerate(both)]


def _transcript(diff: PairDiff, lines: int | None, most: int | None) -> list[RenderableType]:
    parts: list[RenderableType] = [_heading("transcripts, from the last common exchange on")]
    rows = _rows(diff)
    for row in rows[:most]:
        parts += _exchange(row, diff.parting.raw, lines)
    if most is not None and len(rows) > most:
        parts.append(Rule(Text(f"{len(rows) - most} more exchanges left out"), align="left", style="dim"))
    return parts


def _exchange(row: _Row, found: Divergence, lines: int | None) -> list[RenderableType]:
    """Show what is equal once and across, and what is not side by side."""
    left, right = row.baseline, row.candidate
    if left is not None and row.exchange < found.common:
        return [_label(row.exchange, " (equal in both)"), _turn(left, lines)]
    parts: list[RenderableType] = [_label(row.exchange, " (here they part)" if row.exchange == found.exchange else "")]
    show = _turn
    if left is not None and row.exchange == found.exchange and found.where is Where.REPLY:
        asked = _asked(left, lines)
        asked.rstrip()
        parts.append(asked)
        show = _replied
    table = Table(box=None, pad_edge=False, show_header=False, width=WIDTH, padding=(0, 2, 0, 0))
    for _ in Arm:
        table.add_column(ratio=1, overflow="fold")
    table.add_row(*(Text("-", style="dim") if turn is None else show(turn, lines) for turn in (left, right)))
    return [*parts, table]


def _label(exchange: int, note: str) -> RenderableType:
    return Rule(Text(f"exchange {exchange}{note}"), align="left", style="dim")


def _turn(turn: Turn, lines: int | None) -> Text:
    return _asked(turn, lines).append_text(_replied(turn, lines))


def _asked(turn: Turn, lines: int | None) -> Text:
    return Text().join(_block(said, lines) for said in turn.asked)


def _replied(turn: Turn, lines: int | None) -> Text:
    text = Text()
    if turn.reasoning:
        text.append(f"{cut(plain(turn.reasoning), lines)}\n", style="italic dim")
    if turn.content:
        text.append(f"{cut(plain(turn.content), lines)}\n")
    for call in turn.calls:
        text.append(f"> {plain(call.name)} ", style="bold cyan").append(f"{cut(_arguments(call), lines)}\n", "cyan")
    return text.append(f"[{plain(turn.end)}]", style="dim")


def _block(said: Said, lines: int | None) -> Text:
    return Text.assemble((f"{plain(said.role)}: ", "bold dim"), (f"{cut(plain(said.text), lines)}\n", "dim"))


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return plain(call.text)
    return plain("\n".join(f"{name}={value}" for name, value in call.arguments.items()))


# ---- what followed


def _aftermath_table(found: Aftermath) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", width=WIDTH)
    table.add_column("")
    for arm in Arm:
        table.add_column(arm.value, ratio=1, overflow="fold")
    for label, cell in _COURSE.items():
        table.add_row(label, Text(plain(cell(found.baseline))), Text(plain(cell(found.candidate))))
    table.add_row("edits from one tool sequence to the other", str(found.tool_distance), "")
    return table


_COURSE: Mapping[str, Callable[[Course], str]] = {
    "turns after it (in all)": lambda c: f"{c.turns} ({c.turns_in_all})",
    "tools": lambda c: wording.named(c.tools, most=100),
    "files written by tools": lambda c: wording.named(c.touched),
    "files changed in the end": lambda c: wording.named(c.changed),
    "test runs": lambda c: str(c.test_runs),
    "finish reasons": lambda c: wording.named([f"{name} {count}" for name, count in c.finish_reasons.items()]),
    "budget stops": lambda c: str(c.budget_stops),
    "malformed tool calls": lambda c: str(c.malformed_calls),
    "longest run of equal turns": lambda c: str(c.repeated_turns),
    "looping replies": lambda c: str(c.looping_replies),
    "ended": lambda c: c.ended,
}

# ---- checks


def _flips(pair: Pair) -> list[tuple[CheckResult, CheckResult]]:
    mine = {check.id: check for check in pair.baseline.scored}
    theirs = {check.id: check for check in pair.candidate.scored}
    return [(mine[flip.check_id], theirs[flip.check_id]) for flip in pair.flips]


def _flip_data(left: CheckResult, right: CheckResult) -> Json:
    sides = {
        arm.value: {"status": check.status.value, "reason": check.reason}
        for arm, check in zip(Arm, (left, right), strict=True)
    }
    return {"check": left.id, "rule": left.rule, **sides}


def _flip_table(pair: Pair) -> RenderableType:
    found = _flips(pair)
    if not found:
        return Text("none")
    table = Table(box=None, pad_edge=False, header_style="bold", width=WIDTH)
    table.add_column("check")
    for arm in Arm:
        table.add_column(arm.value, ratio=1, overflow="fold")
    for left, right in found:
        table.add_row(Text(left.id), _verdict(left), _verdict(right))
    return table


def _verdict(check: CheckResult) -> Text:
    style = "green" if check.status is CheckStatus.PASS else "red"
    return Text.assemble((check.status.value, style), f": {plain(check.reason)}")


# ---- patches


def patch_diff(left: str, right: str) -> list[str]:
    """Return a unified diff between two patches, blob ids and line numbers aside; empty when they change the same."""
    return list(difflib.unified_diff(_comparable(left), _comparable(right), "baseline", "candidate", lineterm="", n=3))


def _comparable(patch: str) -> list[str]:
    lines = (line for line in patch.splitlines() if not line.startswith("index "))
    return [
        "@@" + line.split("@@", 2)[2] if line.startswith("@@ ") and line.count("@@") > 1 else line for line in lines
    ]


def _patch(pair: Pair, arm: Arm) -> str:
    found = pair.attempt(arm).patch
    return found.text if found else ""


def _patches(pair: Pair, lines: int | None) -> list[RenderableType]:
    texts = {arm: _patch(pair, arm) for arm in Arm}
    limit = None if lines is None else lines * 4
    if texts[Arm.BASELINE] == texts[Arm.CANDIDATE]:
        return [_heading("patches: equal in both"), _coloured(texts[Arm.BASELINE] or "(empty)", limit)]
    shown: list[RenderableType] = []
    for arm, text in texts.items():
        shown += [_heading(f"patch of the {arm.value}"), _coloured(text or "(empty)", limit), Text()]
    if not all(texts.values()):
        return shown
    between = "\n".join(patch_diff(texts[Arm.BASELINE], texts[Arm.CANDIDATE]))
    return [*shown, _heading("from the one patch to the other"), _coloured(between or "(only line numbers)", limit)]


_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _coloured(patch: str, lines: int | None) -> Text:
    text = Text()
    for line in cut(plain(patch.rstrip("\n")), lines).split("\n"):
        text.append(line + "\n", style=_COLOURS.get(line[:1], ""))
    text.right_crop(1)
    return text


# ---- text


def _heading(words: str) -> Text:
    return Text(words, style="bold")


def cut(text: str, lines: int | None) -> str:
    """Return `text` without its trailing newlines, its middle left out when it has more than `lines` lines."""
    found = text.rstrip("\n").split("\n")
    if lines is None or len(found) <= lines:
        return "\n".join(found)
    head = lines * 2 // 3
    tail = lines - head - 1
    return "\n".join(
        [*found[:head], f"[... {len(found) - head - tail} lines left out ...]", *found[len(found) - tail :]]
    )


_KEPT = {"\n", "\t"}


def plain(text: str) -> str:
    """Return `text` with everything that steers a terminal, or the direction of reading, made visible."""
    return "".join(_visible(c) if unicodedata.category(c) in ("Cc", "Cf") and c not in _KEPT else c for c in text)


def _visible(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"
