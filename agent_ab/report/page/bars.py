"""Where the wall time goes, as stacked bars by arm and task. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent_ab import wording
from agent_ab.model import Arm
from agent_ab.report.page.shapes import WIDTH, Box, Figures, Line, Plot, Scale, Shape, Words, linear_ticks, time_unit

PARTS = ("prefill", "decode", "tools", "other")
TOP, NAMES, VALUES, BAR, LINE, GAP = 6.0, 78.0, 76.0, 12.0, 17.0, 10.0
"""Room above, for the arms' names at the left and the sums at the right; a bar, its line, and the air between groups."""


LABEL = 44
"""Most characters of a label."""


@dataclass(frozen=True, slots=True)
class BarRow:
    """One stacked bar: seconds by part, in the parts' order."""

    label: str
    arm: Arm
    parts: tuple[float, ...]


def wall_split(rows: Sequence[BarRow]) -> Plot | None:
    """Return the mean wall time of an attempt, split into its parts, as one bar an arm and label."""
    most = max((sum(row.parts) for row in rows), default=0.0)
    if most <= 0:
        return None
    unit = time_unit(most)
    scale = Scale(0, most, NAMES, WIDTH - VALUES)
    shapes: list[Shape] = []
    y = TOP
    for label in dict.fromkeys(row.label for row in rows):
        shapes.append(Words(0, y + 11, label if len(label) <= LABEL else f"{label[: LABEL - 3]}...", "label"))
        y += LINE + 1
        for row in (r for r in rows if r.label == label):
            shapes += _bar(row, scale, y)
            y += LINE
        y += GAP
    height = y + 12
    ticks = [tick * unit.seconds for tick in linear_ticks(most / unit.seconds, 4) if tick * unit.seconds <= most]
    lines = [Line(((scale.at(t), TOP + LINE), (scale.at(t), y - 4)), "grid") for t in ticks]
    shapes += [Words(scale.at(t), y + 10, unit.label(t) if t else "0", "tick", "middle") for t in ticks]
    table = tuple((r.label, r.arm.value, *map(wording.seconds, r.parts), wording.seconds(sum(r.parts))) for r in rows)
    first = [next(r for r in rows if r.arm is arm) for arm in Arm if any(r.arm is arm for r in rows)]
    sentence = "Mean of an attempt. " + " ".join(_said(row) for row in first)
    keys = tuple((f"part {part}", part) for part in PARTS)
    figures = Figures(("", "arm", *PARTS, "all"), table)
    return Plot("plot-split", "Where the time goes", sentence, height, (*lines, *shapes), figures, keys)


def _bar(row: BarRow, scale: Scale, y: float) -> list[Shape]:
    shapes: list[Shape] = [Words(NAMES - 6, y + 10, row.arm.value, "tick", "end")]
    begin = 0.0
    for part, value in zip(PARTS, row.parts, strict=True):
        start, end = scale.at(begin), scale.at(begin + value)
        title = f"{row.label}, {row.arm.value}, {part}: {wording.seconds(value)}"
        shapes.append(Box(start, y, end - start, BAR, part, title))
        begin += value
    return [*shapes, Words(scale.at(begin) + 6, y + 10, wording.seconds(begin), "axis")]


def _said(row: BarRow) -> str:
    parts = ", ".join(f"{name} {wording.seconds(value)}" for name, value in zip(PARTS, row.parts, strict=True))
    return f"{row.arm.value.capitalize()}: {parts}."
