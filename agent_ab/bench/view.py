"""The table of `agent-ab bench`: strings from what was measured. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab.bench.result import Result, Standing
from agent_ab.bench.stats import ALL, CONFIDENCE, Interval, Row
from agent_ab.model import Json
from agent_ab.pair.speculation import BASELINE
from agent_ab.wording import counted

WIDE = 0.15
"""A ratio's interval that is wider than this to either side says little."""
POSITIONS = 10
"""Positions of a draft that are shown; the data has all."""
NOTHING = "–"
DRAFTED_NOTHING = "°"
"""Behind a number of a method that drafted nothing there: it speaks of the machine."""


def view(result: Result, where: str) -> Group:
    """Return the tables, and what must be known to read them."""
    rows = result.rows
    parts: list[RenderableType] = [_speed(result, rows)]
    if result.replies:
        parts += [Text(), _waiting(rows, result.standings), Text(), _by_class(rows), Text(), _each_class(rows)]
    if any(row.drafted for row in rows):
        parts += [Text(), _acceptance(rows, result.standings), Text(), _positions(rows)]
    parts.append(Text())
    parts += [Text(f"  {line}") for line in notes(result)]
    parts += [Text(), Text(f"plot, replies and server logs: {where}")]
    return Group(*parts)


def _speed(result: Result, rows: Iterable[Row]) -> Table:
    requests, rounds = len(result.plan.requests), result.rounds
    table = _table(
        f"decoding methods on {requests} requests, {counted(rounds, 'round')}",
        *("method", "decode tok/s", "× baseline", "prefill tok/s", "accepted", "text"),
    )
    measured = {row.method: row for row in rows if row.kind == ALL}
    for name in result.standings:
        row = measured.get(name)
        if row is None:
            table.add_row(name, Text("not applied", style="bold red"))
            continue
        table.add_row(
            name,
            spread(row.decode, "{:.1f}"),
            "1" if name == BASELINE else spread(row.decode_ratio, "{:.2f}"),
            spread(row.prefill, "{:.0f}"),
            percent(row.acceptance),
            "" if name == BASELINE else f"{row.same_text} of {row.replies} equal",
        )
    return table


def _waiting(rows: Iterable[Row], standings: Mapping[str, Standing]) -> Table:
    table = _table("what a user waits for", "method", "first token", "one reply", "× baseline", "memory")
    gpu = any(standing.vram_mib is not None for standing in standings.values())
    for row in rows:
        if row.kind == ALL:
            standing = standings[row.method]
            mib = standing.vram_mib if gpu else standing.rss_mib
            table.add_row(
                row.method,
                seconds(row.ttft_s),
                seconds(row.wall_s),
                "1" if row.method == BASELINE else spread(row.speedup, "{:.2f}"),
                NOTHING if mib is None else f"{mib:.0f} MiB {'VRAM' if gpu else 'RSS'}",
            )
    return table


def _by_class(rows: tuple[Row, ...]) -> Table:
    kinds = _kinds(rows)
    table = _table("decode, × baseline, by class of request", "method", *kinds)
    cells = {(row.method, row.kind): row for row in rows}
    for name in dict.fromkeys(row.method for row in rows):
        if name == BASELINE:
            words = [
                Text(f"{row.decode.median:.1f} tok/s" if (row := cells[name, k]).decode else NOTHING) for k in kinds
            ]
        else:
            words = [_marked(cells[name, kind], about(cells[name, kind].decode_ratio)) for kind in kinds]
        table.add_row(name, *words)
    return _explained(table, rows)


def _idle(row: Row) -> bool:
    return row.kind != ALL and row.method != BASELINE and row.replies > 0 and not row.drafted


def _marked(row: Row, number: str) -> Text:
    """Return a number, marked when the method drafted nothing in this class."""
    return Text(f"{number}{DRAFTED_NOTHING}", style="dim") if _idle(row) and number != NOTHING else Text(number)


def _explained(table: Table, rows: Iterable[Row]) -> Table:
    """Return the table with what the mark says below it, where it is used."""
    if any(_idle(row) for row in rows):
        table.caption = (
            f"{DRAFTED_NOTHING} drafted nothing there: the difference is noise, or what looking for a draft costs"
        )
        table.caption_justify = "left"
    return table


def _each_class(rows: tuple[Row, ...]) -> Table:
    table = _table(
        "medians by class of request", "class", "method", "prefill tok/s", "decode tok/s", "first token", "one reply"
    )
    for kind in _kinds(rows):
        for number, row in enumerate(row for row in rows if row.kind == kind):
            prefill, decode = (NOTHING if v is None else f"{v.median:.1f}" for v in (row.prefill, row.decode))
            waits = (seconds(value and replace(value, rounds=1)) for value in (row.ttft_s, row.wall_s))
            table.add_row("" if number else kind, row.method, prefill, _marked(row, decode), *waits)
    return _explained(table, rows)


def _kinds(rows: Iterable[Row]) -> list[str]:
    return [kind for kind in dict.fromkeys(row.kind for row in rows) if kind != ALL]


def _acceptance(rows: tuple[Row, ...], standings: Mapping[str, Standing]) -> Table:
    drafting = [row for row in rows if row.kind == ALL and row.drafted]
    lengths = list(dict.fromkeys(name for row in drafting for name in row.by_context))
    said = {name: (s.chosen, s.expected) for name, s in standings.items()}
    heads = [
        (at, head)
        for at, head in enumerate(("chosen", "worked out"))
        if any(said[row.method][at] is not None for row in drafting)
    ]
    kinds = _kinds(rows)
    columns = ["all", *(head for _, head in heads), *kinds, *(f"prompt {n}" for n in lengths)]
    table = _table("accepted, of the drafted tokens", "method", *columns)
    cells = {(row.method, row.kind): row for row in rows}
    for row in drafting:
        table.add_row(
            row.method,
            f"{exactly(row.acceptance)} of {row.drafted}",
            *(exactly(said[row.method][at]) for at, _ in heads),
            *(percent(cells[row.method, kind].acceptance) for kind in kinds),
            *(percent(row.by_context.get(name)) for name in lengths),
        )
    return table


def _positions(rows: tuple[Row, ...]) -> Table:
    drafting = [row for row in rows if row.kind == ALL and row.by_position]
    length = min(POSITIONS, max((len(row.by_position) for row in drafting), default=0))
    table = _table("accepted, by position in the draft", "method", *map(str, range(1, length + 1)))
    for row in drafting:
        table.add_row(row.method, *(percent(share) for share in row.by_position[:length]))
    return table


def notes(result: Result) -> list[str]:
    """Return what was not applied and why, and what keeps a number from saying much."""
    lines = [
        f"{name}: not applied: {standing.not_applied}"
        for name, standing in result.standings.items()
        if standing.not_applied
    ]
    rows = result.rows
    for row in rows:
        ratio = row.decode_ratio
        if row.kind == ALL and ratio and ratio.half_width > WIDE:
            lines.append(
                f"{row.method}: its ratio is known to {ratio.half_width:.0%} only: give more --rounds, on a quieter machine"
            )
        if row.kind == ALL and row.errors:
            lines.append(f"{row.method}: {row.errors} of {row.errors + row.replies} requests failed and do not count")
        if row.kind == ALL and row.method != BASELINE and not row.drafted and row.replies:
            lines.append(f"{row.method}: applied, but it found nothing to draft in these requests")
    told = next((row.decode for row in rows if row.decode), None)
    if told and told.rounds == 1:
        lines.append("one round: the numbers have no intervals")
    elif told:
        sure = "" if told.coverage >= CONFIDENCE else f", fewer rounds than {int(CONFIDENCE * 100)} % needs"
        lines.append(
            f"each number: median over {told.rounds} rounds, of ratios the Hodges-Lehmann estimate [its {told.coverage:.1%}"
            f" interval{sure}], of these requests on this machine"
        )
    if all(s.not_applied for name, s in result.standings.items() if name != BASELINE):
        lines.append(f"{counted(result.rounds, 'round')} of {result.plan.rounds}: no method is left to compare")
    elif result.rounds < result.plan.rounds:
        lines.append(f"{result.rounds} of {result.plan.rounds} rounds: another would have ended after --max-minutes")
    lines.append(
        "× baseline: greater is faster; the two numbers of one round are divided. That of waiting takes in prefill, and text"
        " of another length"
    )
    return lines


def agreement(rows: Iterable[Row], earlier: Iterable[Row]) -> list[str]:
    """Return, for each method's ratio, whether it agrees with an earlier bench's: their intervals overlap.

    Neither can be said of ratios that are hardly known.
    """
    before = {(row.method, row.kind): row.decode_ratio for row in earlier}
    lines = []
    for row in rows:
        old, new = before.get((row.method, row.kind)), row.decode_ratio
        if row.kind == ALL and old and new:
            ratios = f"{spread(new, '{:.2f}')} {{}} {spread(old, '{:.2f}')}"
            vague = imprecise(new, "this") or imprecise(old, "the earlier")
            if vague and (new.agrees(old) or min(new.coverage, old.coverage) < CONFIDENCE):
                lines.append(f"{row.method}: {ratios.format('and')}: too imprecise to tell: {vague}")
            else:
                word = "agrees with" if new.agrees(old) else "DIFFERS from"
                lines.append(f"{row.method}: {ratios.format(word)}")
    return lines


def imprecise(ratio: Interval, whose: str) -> str:
    """Return why little can be said of a ratio, or an empty string."""
    if ratio.rounds == 1:
        return f"{whose} bench has one round, and so no interval"
    if ratio.coverage < CONFIDENCE:
        return f"{whose} bench has {ratio.rounds} rounds, too few for a {CONFIDENCE:.0%} interval"
    if ratio.half_width > WIDE:
        return f"{whose} bench knows its ratio to {ratio.half_width:.0%} only"
    return ""


def data(result: Result) -> Json:
    """Return what was measured as JSON-able data."""
    return {
        "facts": result.facts,
        "baseline": BASELINE,
        "rounds": result.rounds,
        "rounds_planned": result.plan.rounds,
        "requests": [{"id": r.id, "class": r.kind} for r in result.plan.requests],
        "methods": {
            name: {
                "speculation": s.method.speculation.model_dump(mode="json", exclude_none=True),
                "applied": not s.not_applied,
                "not_applied": s.not_applied,
                "proof": s.proof,
                "rss_mib": s.rss_mib,
                "vram_mib": s.vram_mib,
                "chosen_acceptance": s.chosen,
                "expected_acceptance": s.expected,
            }
            for name, s in result.standings.items()
        },
        "rows": [_row_data(row) for row in result.rows],
        "notes": notes(result),
    }


def _row_data(row: Row) -> Json:
    intervals = ("decode", "prefill", "ttft_s", "wall_s", "decode_ratio", "prefill_ratio", "speedup")
    return {
        "method": row.method,
        "class": row.kind,
        "replies": row.replies,
        "errors": row.errors,
        **{name: interval_data(getattr(row, name)) for name in intervals},
        "drafted": row.drafted,
        "accepted": row.accepted,
        "acceptance": row.acceptance,
        "acceptance_by_position": list(row.by_position),
        "acceptance_by_prompt_length": dict(row.by_context),
        "same_text": row.same_text,
    }


def interval_data(value: Interval | None) -> Json:
    """Return an interval as JSON-able data."""
    if value is None:
        return None
    return {
        "median": value.median,
        "low": value.low,
        "high": value.high,
        "coverage": value.coverage,
        "rounds": value.rounds,
    }


def spread(value: Interval | None, form: str) -> str:
    """Return a median with its interval."""
    if value is None:
        return NOTHING
    if value.rounds == 1:
        return form.format(value.median)
    return f"{form.format(value.median)} [{form.format(value.low)}–{form.format(value.high)}]"


def about(value: Interval | None) -> str:
    """Return a median and how far its interval reaches to either side of it."""
    if value is None:
        return NOTHING
    return f"{value.median:.2f}" if value.rounds == 1 else f"{value.median:.2f} ±{value.half_width * 100:.0f} %"


def seconds(value: Interval | None) -> str:
    """Return seconds, or milliseconds where they are few."""
    if value is None:
        return NOTHING
    if value.median >= 1:
        return f"{spread(value, '{:.2f}')} s"
    milli = replace(value, median=value.median * 1e3, low=value.low * 1e3, high=value.high * 1e3)
    return f"{spread(milli, '{:.0f}')} ms"


def percent(share: float | None) -> str:
    """Return a share in words."""
    return NOTHING if share is None else f"{share * 100:.1f} %" if share < 0.1 else f"{share * 100:.0f} %"


def exactly(share: float | None) -> str:
    """Return a share with one decimal."""
    return NOTHING if share is None else f"{share * 100:.1f} %"


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left", title_style="bold")
    add: Callable[..., None] = table.add_column
    for column in columns:
        add(column, no_wrap=True)
    return table
