"""A run as renderables for a terminal of 100 columns and as Markdown; prints nothing itself. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from agent_ab.report.page import facts, headline, lines
from agent_ab.report.page.compose import Subject
from agent_ab.report.page.contents import FlipLine, Head, PairLine, PairRef, Row, Table
from agent_ab.report.summary import summarise
from agent_ab.wording import counted, markdown_code, plain_line

FLIPS = 12
"""Most checks that a terminal shows; the page has them all."""
PAIRS = 16
"""Most pairs that a terminal shows, those with flips first."""
REASON = 160
"""Most characters of what a check said."""

_STYLE = {"adopt": "green", "reject": "red", "inconclusive": "yellow", "invalid": "magenta", "no-verdict": "magenta"}
_TONE = {"broken": "red", "fixed": "green", "good": "green", "void": "magenta", "bad": "red", "differs": "bold"}


class _Parts:
    """What both forms of the report say."""

    def __init__(self, subject: Subject) -> None:
        summary = summarise(subject.pairs)
        numbered = lines.numbered(subject.pairs)
        self.head: Head = headline.head(subject.run, subject.pairs, summary, subject.verdict)
        self.flips = lines.flip_lines(summary, numbered, subject.verdict, subject.marks)
        self.pairs = sorted(lines.pair_lines(numbered), key=lambda line: (not line.flips, line.ref.number))
        self.endings: Table = facts.endings(summary)
        self.voids: Table = facts.voids(summary, subject.verdict)
        self.kinds: Table | None = facts.kinds(summary)
        self.commands = facts.commands(subject.run, subject.pairs, subject.db, subject.runs_dir)


def view(subject: Subject) -> RenderableType:
    """Return the report of a run for a terminal of 100 columns."""
    parts = _Parts(subject)
    shown: list[RenderableType] = [*_headline(parts.head), Text(), _tiles(parts.head)]
    shown += [Text(), _heading("what flipped"), *_flips(parts.flips)]
    shown += [Text(), _heading("pairs"), _pairs(parts.pairs)]
    if len(parts.pairs) > PAIRS:
        shown.append(Text(f"and {counted(len(parts.pairs) - PAIRS, 'more pair')}; the page has them all", style="dim"))
    if parts.kinds:
        shown += [Text(), _heading("why the arms part"), _grid(parts.kinds)]
    shown += [Text(), _heading("how they ended"), _grid(parts.endings)]
    shown += [
        Text(),
        _heading("VOID tries"),
        Text("  " + ", ".join(f"{r.label} {r.cells[0]}" for r in parts.voids.rows)),
    ]
    shown += [Text(), *(_command(command.about, command.text) for command in parts.commands)]
    return Group(*shown)


def _heading(words: str) -> Text:
    return Text(words, style="bold")


def _headline(head: Head) -> list[RenderableType]:
    labels = f"   {', '.join(head.labels)}" if head.labels else ""
    first = Text.assemble(
        (head.decision, f"bold {_STYLE.get(head.tone, '')}"), f"   {plain_line(head.profile)}   {head.run}"
    )
    found: list[RenderableType] = [first.append(labels, style="bold" if "UNPROVEN" in head.labels else "dim")]
    found += [_listed(reason) for reason in (head.lead, *head.reasons)]
    found += [_listed(f"besides: {warning}") for warning in head.warnings]
    changed = [f"{name} {before} -> {after}" for name, before, after in head.change] or [head.variable]
    return [*found, _listed(f"changed: {'; '.join(changed)}")]


def _listed(text: str) -> Grid:
    row = Grid.grid(padding=(0, 1))
    row.add_column()
    row.add_column(overflow="fold")
    row.add_row("  -", Text(plain_line(text)))
    return row


def _cell(text: str, style: str = "", most: int | None = None) -> Text:
    # Never a plain string: rich would take what stands in brackets for markup.
    return Text(plain_line(text, most), style=style)


def _tiles(head: Head) -> Grid:
    grid = Grid(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        grid.add_column(overflow="fold")
    for tile in head.tiles:
        arms = "; ".join(f"{bar.arm} {bar.words}" for bar in tile.bars)
        words = ". ".join(part for part in (arms, tile.detail) if part)
        grid.add_row(_cell(tile.title, "bold"), _cell(tile.value, f"bold {_TONE.get(tile.tone, '')}"), _cell(words))
    return grid


def _flips(flips: Sequence[FlipLine]) -> Iterator[RenderableType]:
    if not flips:
        yield Text("  nothing, or the single checks are not known")
        return
    table = _table("broke", "fixed", "of", "task", "check", "what it said")
    for flip in flips[:FLIPS]:
        counts = [str(len(refs)) if refs else "" for refs in (flip.broken, flip.fixed)]
        said = _cell(flip.example, most=REASON)
        for note in flip.notes:
            said.append(f"\n{plain_line(note)}", style="yellow")
        table.add_row(
            _cell(counts[0], "red"),
            _cell(counts[1], "green"),
            _cell(str(flip.pairs)),
            _cell(flip.task),
            _cell(flip.check_id),
            said,
        )
    yield table
    if len(flips) > FLIPS:
        yield Text(f"and {counted(len(flips) - FLIPS, 'more check')}; the page has them all", style="dim")


def _pairs(pairs: Sequence[PairLine]) -> Grid:
    table = _table("", "task", "seed", "outcome", "checks", "wall time", "flips", "arms part", "note")
    for line in pairs[:PAIRS]:
        table.add_row(
            _cell(str(line.ref.number)),
            _cell(line.task),
            _cell(str(line.seed)),
            _cell(line.outcome, _TONE.get(line.tone, "")),
            _cell(line.checks),
            _cell(line.wall),
            _cell(str(line.flips) if line.flips else ""),
            _cell(line.kind),
            _cell(line.note, most=REASON),
        )
    return table


def _table(*names: str) -> Grid:
    table = Grid(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _grid(found: Table) -> Grid:
    table = _table(*found.head)
    for row in found.rows:
        table.add_row(_cell(row.label), *(_cell(cell, _TONE.get(row.tone, "")) for cell in row.cells))
    return table


def _command(about: str, text: str) -> Text:
    return Text.assemble((f"{about}: ", "dim"), plain_line(text))


# ---- Markdown


def markdown(subject: Subject) -> str:
    """Return the report of a run as Markdown; whatever others wrote stands in code spans."""
    return "\n".join(_markdown(_Parts(subject))) + "\n"


def _markdown(parts: _Parts) -> Iterator[str]:
    head = parts.head
    labels = f" ({', '.join(head.labels)})" if head.labels else ""
    yield f"# {head.decision}{labels}"
    yield ""
    yield f"Run {markdown_code(head.run)}, profile {markdown_code(head.profile)}, {head.created_at}."
    yield ""
    yield from (f"- {_prose(reason)}" for reason in (head.lead, *head.reasons))
    yield from (f"- Besides: {_prose(warning)}" for warning in head.warnings)
    yield ""
    rows = [
        (t.title, f"**{t.value}**", "; ".join([*(f"{b.arm} {b.words}" for b in t.bars), t.detail])) for t in head.tiles
    ]
    yield from _markdown_table(("", "", ""), rows)
    yield "## What was changed"
    yield ""
    if head.change:
        changed = [tuple(map(markdown_code, change)) for change in head.change]
        yield from _markdown_table(("setting", "baseline", "candidate"), changed)
    else:
        yield from (markdown_code(head.variable), "")
    yield "## What flipped"
    yield ""
    if parts.flips:
        yield from _markdown_table(
            ("check", "task", "broke", "fixed", "pairs", "what it said"), map(_flip_cells, parts.flips)
        )
    else:
        yield from ("Nothing, or the single checks are not known.", "")
    yield "## Pairs"
    yield ""
    yield from _markdown_table(
        ("", "task", "seed", "outcome", "checks", "wall time", "arms part", "note"), map(_pair_cells, parts.pairs)
    )
    yield "## How they ended"
    yield ""
    yield from _markdown_table(parts.endings.head, map(_row_cells, (*parts.endings.rows, _void_row(parts.voids))))
    yield "## Do it again"
    yield ""
    yield from (f"- {command.about}: {markdown_code(command.text)}" for command in parts.commands)


def _prose(text: str) -> str:
    """Return one of our own sentences; what it may quote cannot become markup."""
    line = plain_line(text)
    for character in "\\`*_[]<>|#":
        line = line.replace(character, f"\\{character}")
    return line


def _flip_cells(flip: FlipLine) -> tuple[str, ...]:
    said = "; ".join(markdown_code(text, REASON) for text in (flip.example, *flip.notes) if text)
    pairs = ", ".join(_number(ref) for ref in (*flip.broken, *flip.fixed))
    broke, fixed = (f"{len(refs)} of {flip.pairs}" if refs else "" for refs in (flip.broken, flip.fixed))
    return markdown_code(flip.check_id), markdown_code(flip.task), broke, fixed, pairs, said


def _number(ref: PairRef) -> str:
    return str(ref.number)


def _pair_cells(line: PairLine) -> tuple[str, ...]:
    note = markdown_code(line.note, REASON)
    return (
        str(line.ref.number),
        markdown_code(line.task),
        str(line.seed),
        line.outcome,
        line.checks,
        line.wall,
        line.kind,
        note,
    )


def _row_cells(row: Row) -> tuple[str, ...]:
    return (row.label, *(_prose(cell) for cell in row.cells))


def _void_row(voids: Table) -> Row:
    counts = {row.label: row.cells[0] for row in voids.rows}
    return Row("VOID tries", tuple(counts.values())[:2])


def _markdown_table(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
