"""The plot of `agent-ab bench` as SVG: every method's ratio to the baseline, by class of request. Pure, no library."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from agent_ab.bench.stats import ALL, Interval, Row

COLOURS = ("#1b1b1b", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1")
"""Told apart by those who see fewer colours, too (Okabe and Ito, 2008); the first is all requests together."""
WIDTH, LEFT, RIGHT, TOP, LINE, GAP, FOOT = 860, 190, 40, 104, 17, 20, 64
ROOM = 44
"""Least distance of two labels on the axis."""
FONT = "font-family='system-ui,Segoe UI,Helvetica,Arial,sans-serif'"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Ratios on a logarithmic axis: twice as fast lies as far from 1 as half as fast."""

    low: float
    high: float

    def x(self, ratio: float) -> float:
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    @property
    def ticks(self) -> list[float]:
        """Return the ratios to label, 1 first, none where another's label is."""
        steps = (1, 0.5, 2, 0.25, 4, 0.1, 10, 0.75, 1.5, 0.9, 1.25, 0.66, 3, 0.33, 0.2, 5, 0.05, 1.1, 0.8)
        chosen: list[float] = []
        for step in steps:
            if self.low <= step <= self.high and all(abs(self.x(step) - self.x(other)) > ROOM for other in chosen):
                chosen.append(step)
        return chosen


def plot(rows: Iterable[Row], subtitle: str, not_applied: Sequence[str] = ()) -> str:
    """Return the SVG: one group of lines a method, one line a class, a dot at the median and a bar over its interval."""
    whole = tuple(rows)
    kinds = list(dict.fromkeys(row.kind for row in whole))
    methods = list(dict.fromkeys(row.method for row in whole if row.decode_ratio))
    ratios = {(row.method, row.kind): row.decode_ratio for row in whole if row.decode_ratio}
    speeds = {row.method: row.decode for row in whole if row.kind == ALL}
    baseline = next((row for row in whole if row.kind == ALL and not row.decode_ratio), None)
    scale = _scale(ratios.values())
    group = len(kinds) * LINE + GAP
    bottom = TOP + len(methods) * group
    height = bottom + len(not_applied) * LINE + FOOT
    body = [_text(LEFT - 170, 28, "Decoding speed against no speculation", 17, weight="600")]
    body.append(_text(LEFT - 170, 48, subtitle, 12, colour="#555"))
    body += _legend(kinds)
    body += _axis(scale, bottom)
    top = float(TOP)
    for method in methods:
        speed = speeds.get(method)
        body.append(_text(LEFT - 12, top + 12, method, 13, anchor="end", weight="600"))
        if speed:
            body.append(_text(LEFT - 12, top + 28, f"{speed.median:.1f} tok/s", 11, anchor="end", colour="#555"))
        for index, kind in enumerate(kinds):
            found = ratios.get((method, kind))
            if found:
                body += _mark(scale, found, top + 8 + index * LINE, COLOURS[index % len(COLOURS)], kind)
        top += group
    for line, name in enumerate(not_applied):
        y = bottom + 34 + line * LINE
        body.append(_text(LEFT - 12, y, name, 13, anchor="end", weight="600"))
        body.append(_text(LEFT + 4, y, "not applied", 12, colour="#b00020"))
    if baseline and baseline.decode:
        rounds, cover = baseline.decode.rounds, baseline.decode.coverage
        words = (
            f"baseline {baseline.method}: {baseline.decode.median:.1f} tok/s; dots: medians of {rounds} rounds; bars:"
        )
        body.append(_text(LEFT - 170, height - 14, f"{words} their {cover:.1%} intervals", 11, colour="#555"))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' {FONT}>"
        f"<rect width='100%' height='100%' fill='#fff'/>{''.join(body)}</svg>\n"
    )


def _scale(ratios: Iterable[Interval]) -> _Scale:
    ends = [end for ratio in ratios for end in (ratio.low, ratio.high) if end > 0] or [1.0]
    return _Scale(min(0.8, *ends) / 1.06, max(1.25, *ends) * 1.06)


def _axis(scale: _Scale, bottom: float) -> list[str]:
    parts = []
    for tick in scale.ticks:
        x, strong = scale.x(tick), tick == 1
        colour, width = ("#333", 1.4) if strong else ("#e3e3e3", 1)
        parts.append(f"<path d='M{x:.1f} {TOP - 8}V{bottom:.1f}' stroke='{colour}' stroke-width='{width}'/>")
        parts.append(_text(x, bottom + 16, f"{tick:g}×", 11, anchor="middle", colour="#333"))
    parts.append(_text(scale.x(1) - 8, TOP - 14, "slower", 11, anchor="end", colour="#777"))
    parts.append(_text(scale.x(1) + 8, TOP - 14, "faster", 11, colour="#777"))
    return parts


def _legend(kinds: Sequence[str]) -> list[str]:
    parts, x = [], float(LEFT - 170)
    for index, kind in enumerate(kinds):
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f"<circle cx='{x + 4:.1f}' cy='66' r='4.5' fill='{colour}'/>")
        label = "all requests" if kind == ALL else kind
        parts.append(_text(x + 13, 70, label, 12, colour="#333"))
        x += 30 + 7 * len(label)
    return parts


def _mark(scale: _Scale, ratio: Interval, y: float, colour: str, kind: str) -> list[str]:
    low, middle, high = scale.x(ratio.low), scale.x(ratio.median), scale.x(ratio.high)
    size = 5 if kind == ALL else 4
    told = f"{kind}: {ratio.median:.2f}× [{ratio.low:.2f}–{ratio.high:.2f}]"
    return [
        f"<g><title>{escape(told)}</title>"
        f"<path d='M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 4:.1f}v8M{high:.1f} {y - 4:.1f}v8' stroke='{colour}'"
        " stroke-width='1.6' fill='none'/>"
        f"<circle cx='{middle:.1f}' cy='{y:.1f}' r='{size}' fill='{colour}'/></g>"
    ]


def _text(
    x: float, y: float, words: str, size: int, *, anchor: str = "start", colour: str = "#111", weight: str = "400"
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' fill='{colour}'"
        f" font-weight='{weight}'>{escape(words)}</text>"
    )
