"""The page's plots, as shapes: each pair a line, the time ratio, the evidence, speed by context length. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

from agent_ab import wording
from agent_ab.model import Arm
from agent_ab.report.page.shapes import (
    WIDTH,
    Figures,
    Line,
    Mark,
    Plot,
    Scale,
    Shape,
    Words,
    grid_lines,
    linear_ticks,
    log_ticks,
    spread,
    time_unit,
)
from agent_ab.report.summary import LengthBin
from agent_ab.verdict.verdict import EValues, PathPoint, Time

LEFT, RIGHT = 46.0, 14.0
"""Room for the labels of an upright axis, and for air."""


TABLED = 80
"""Most pairs that a plot has a table of its own for."""
MANY = 60
"""More pairs than this are drawn finely, so that they do not cover one another."""


@dataclass(frozen=True, slots=True)
class PairPoint:
    """What the plots need of one pair."""

    number: int
    label: str
    baseline_s: float | None
    candidate_s: float | None
    cut: tuple[bool, bool]
    """Whether the baseline's and the candidate's agent was cut at its time limit."""
    passed: tuple[int, int]
    total: int
    css: str
    """`broken`, `fixed` or `same`."""


def _between(plot_left: float, plot_right: float) -> tuple[float, float]:
    return plot_left + 0.1 * (plot_right - plot_left), plot_right - 0.1 * (plot_right - plot_left)


def wall_times(points: Sequence[PairPoint]) -> Plot | None:
    """Return each pair's wall time as a line from baseline to candidate; None when no pair has both."""
    both = [(p, p.baseline_s, p.candidate_s) for p in points]
    timed = [(p, b, c) for p, b, c in both if b and c]
    if not timed:
        return None
    height, top, bottom = 260.0, 14.0, 232.0
    values = [value for _, b, c in timed for value in (b, c)]
    unit = time_unit(max(values))
    ticks = tuple(tick * unit.seconds for tick in log_ticks(min(values) / unit.seconds, max(values) / unit.seconds))
    scale = Scale(ticks[0], ticks[-1], bottom, top, logarithmic=True)
    x1, x2 = _between(LEFT, WIDTH - RIGHT)
    shapes: list[Shape] = [*grid_lines(scale, ticks, LEFT, WIDTH - RIGHT)]
    shapes += [Words(LEFT - 6, scale.at(t) + 4, unit.label(t), "tick", "end") for t in ticks]
    shapes += _arm_names(x1, x2, height - 6)
    many = " many" if len(timed) > MANY else ""
    # What flipped is drawn last, on top.
    for p, b, c in sorted(timed, key=lambda row: row[0].css != "same"):
        title = f"pair {p.number}, {p.label}: {wording.seconds(b)} to {wording.seconds(c)}{_cut_words(p.cut)}"
        shapes.append(Line(((x1, scale.at(b)), (x2, scale.at(c))), f"pair {p.css}{many}", p.number, title))
        for x, value, cut, css in ((x1, b, p.cut[0], "baseline"), (x2, c, p.cut[1], "candidate")):
            size = (5 if cut else 3.5) if not many else 2
            shapes.append(Mark(x, scale.at(value), css, "triangle" if cut else "circle", size, p.number))
    faster = sum(c < b and not p.cut[1] for p, b, c in timed)
    sentence = (
        f"In {faster} of {wording.counted(len(timed), 'pair')} the candidate took less time. "
        f"Baseline {_span([b for _, b, _ in timed])}, candidate {_span([c for _, _, c in timed])}."
    )
    rows = tuple(
        (str(p.number), p.label, wording.seconds(b), wording.seconds(c), wording.ratio(c / b)) for p, b, c in timed
    )
    figures = _pair_figures(("pair", "task, seed", "baseline", "candidate", "candidate / baseline"), rows)
    keys = [("pair same", "a pair"), ("pair broken", "a pair in which a check broke")]
    if any(any(p.cut) for p, _, _ in timed):
        keys.append(("cut", "cut at the time limit"))
    return Plot("plot-wall", "Wall time of each pair", sentence, height, tuple(shapes), figures, tuple(keys))


def _pair_figures(head: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Figures | None:
    """Return a table with a line a pair, unless they are so many that the table of pairs has to do."""
    return Figures(head, rows) if len(rows) <= TABLED else None


def _cut_words(cut: tuple[bool, bool]) -> str:
    named = [arm.value for arm, was in zip(Arm, cut, strict=True) if was]
    return f" ({' and '.join(named)} cut at the time limit)" if named else ""


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return wording.seconds(low) if low == high else f"{wording.seconds(low)} to {wording.seconds(high)}"


def _arm_names(x1: float, x2: float, y: float) -> list[Shape]:
    return [Words(x1, y, "baseline", "axis", "middle"), Words(x2, y, "candidate", "axis", "middle")]


def checks_passed(points: Sequence[PairPoint]) -> Plot | None:
    """Return checks passed as lines from baseline to candidate; pairs with equal counts share a line."""
    judged = [p for p in points if p.total]
    if not judged:
        return None
    height, top, bottom = 260.0, 14.0, 232.0
    most = max(p.total for p in judged)
    scale = Scale(0, most, bottom, top)
    x1, x2 = _between(LEFT, WIDTH - RIGHT)
    ticks = [t for t in linear_ticks(most) if t <= most and t == int(t)]
    shapes: list[Shape] = [*grid_lines(scale, ticks, LEFT, WIDTH - RIGHT)]
    shapes += [Words(LEFT - 6, scale.at(t) + 4, f"{t:g}", "tick", "end") for t in ticks]
    shapes += _arm_names(x1, x2, height - 6)
    groups = Counter(p.passed for p in judged)
    largest = max(groups.values())
    for (b, c), count in sorted(groups.items(), key=lambda item: item[0][0] - item[0][1]):
        css = "broken" if c < b else "fixed" if c > b else "same"
        one = next(p for p in judged if p.passed == (b, c))
        width = 1.5 + 5.5 * count / largest if largest > 1 else 2.0
        title = f"{wording.counted(count, 'pair')}: {b} to {c} of {most} checks"
        y1, y2 = scale.at(b), scale.at(c)
        shapes.append(Line(((x1, y1), (x2, y2)), f"pair {css}", one.number if count == 1 else 0, title, width))
        shapes += [Mark(x1, y1, "baseline"), Mark(x2, y2, "candidate")]
        shapes.append(Words(x2 + 9, y2 + 4, f"x{count}", "tick"))
    ordered = sorted(groups.items(), key=lambda item: -item[1])
    sentence = _checks_sentence(judged)
    rows = tuple((str(b), str(c), str(count)) for (b, c), count in ordered)
    figures = Figures(("baseline passed", "candidate passed", "pairs"), rows)
    keys = (("pair same", "equal"), ("pair broken", "fewer passed"), ("pair fixed", "more passed"))
    return Plot("plot-checks", "Checks passed in each pair", sentence, height, tuple(shapes), figures, keys)


def _checks_sentence(points: Sequence[PairPoint]) -> str:
    fewer = sum(p.passed[1] < p.passed[0] for p in points)
    more = sum(p.passed[1] > p.passed[0] for p in points)
    equal = len(points) - fewer - more
    return (
        f"The candidate passed fewer checks in {fewer}, more in {more} and equally many in {equal} "
        f"of {wording.counted(len(points), 'pair')}; a thicker line is more pairs."
    )


def time_ratio(points: Sequence[PairPoint], time: Time | None) -> Plot | None:
    """Return each pair's time ratio as a dot on one axis, and their geometric mean with its interval below."""
    ratios = [(p, p.candidate_s / p.baseline_s) for p in points if p.baseline_s and p.candidate_s]
    if not ratios:
        return None
    values = [r for _, r in ratios]
    interval = time.interval if time else None
    ends = [end for end in (interval.low, interval.high) if end] if interval else []
    seen = [min(40.0, max(1 / 40, v)) for v in (*values, *ends)]
    low, high = min(1 / 1.2, *(v / 1.08 for v in seen)), max(1.2, *(v * 1.08 for v in seen))
    height, axis, row = 176.0, 138.0, 108.0
    scale = Scale(low, high, 24, WIDTH - 24, logarithmic=True)
    shapes: list[Shape] = [Line(((24, axis), (WIDTH - 24, axis)), "rule")]
    for tick in _ratio_ticks(low, high):
        shapes += [
            Line(((scale.at(tick), 10), (scale.at(tick), axis)), "zero" if tick == 1 else "grid"),
            Words(scale.at(tick), axis + 16, f"{tick:.3g} x", "tick", "middle"),
        ]
    shapes += [
        Words(24, height - 4, "candidate takes less", "axis"),
        Words(WIDTH - 24, height - 4, "candidate takes more", "axis", "end"),
    ]
    shapes += _stacked_dots(ratios, scale, 14, row - 18)
    sentence = (
        f"{wording.counted(len(ratios), 'pair')} from {wording.ratio(min(values))} to {wording.ratio(max(values))}."
    )
    if time and time.ratio:
        x = scale.at(time.ratio)
        if interval and interval.low and interval.high:
            shapes.append(Line(((scale.at(interval.low), row), (scale.at(interval.high), row)), "interval"))
        shapes.append(Mark(x, row, "mean", "diamond", 7, 0, f"geometric mean {wording.ratio(time.ratio)}"))
        sentence = _ratio_sentence(time) + " " + sentence
    rows = tuple((str(p.number), p.label, wording.ratio(r)) for p, r in ratios)
    figures = _pair_figures(("pair", "task, seed", "candidate / baseline"), rows)
    keys = (("dot", "a pair"), ("mean", "geometric mean with its interval"))
    return Plot("plot-ratio", "Time ratio", sentence, height, tuple(shapes), figures, keys)


def _ratio_sentence(time: Time) -> str:
    least = "at least " if time.censored_candidate else ""
    words = f"The candidate takes {least}{wording.ratio(time.ratio)} the baseline's time"
    found = time.interval
    if found and found.low is not None and found.high is not None:
        return f"{words} ({100 * found.level:g} % interval {found.low:.2f} to {found.high:.2f})."
    return f"{words} (no interval)."


_RATIOS = (
    (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6),
    (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0),
    (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    (1 / 30, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Return the closest ticks that leave room for their labels; 1 is always one of them."""
    room = log(high / low) / 7
    for ticks in _RATIOS:
        inside = [t for t in ticks if low <= t <= high]
        if len(inside) > 1 and min(log(b / a) for a, b in pairwise(inside)) >= room and inside[-1] * 1.8 > high:
            return inside
    return [t for t in _RATIOS[-1] if low <= t <= high]


def _stacked_dots(ratios: Sequence[tuple[PairPoint, float]], scale: Scale, top: float, bottom: float) -> list[Shape]:
    columns: dict[int, list[tuple[PairPoint, float]]] = {}
    for p, r in ratios:
        columns.setdefault(round(scale.at(r) / 7), []).append((p, r))
    tallest = max(map(len, columns.values()))
    step = min(8.0, (bottom - top) / max(1, tallest - 1)) if tallest > 1 else 8.0
    size = max(1.5, min(3.4, step * 0.55))
    shapes: list[Shape] = []
    for column, found in columns.items():
        for level, (p, r) in enumerate(found):
            title = f"pair {p.number}, {p.label}: {wording.ratio(r)}"
            shapes.append(Mark(column * 7.0, bottom - level * step, f"dot {p.css}", "circle", size, p.number, title))
    return shapes


def evidence_path(path: Sequence[PathPoint], evidence: EValues | None) -> Plot | None:
    """Return the e-values that decide over the pairs, with the threshold that each has to reach."""
    if not path or evidence is None:
        return None
    height, top, bottom, right = 230.0, 14.0, 190.0, WIDTH - 124
    series = {
        "harm": ("harm", [(p.pairs, p.harm) for p in path]),
        "noninferior": ("no worse", [(p.pairs, min(p.noninferior, p.noninferior_solved)) for p in path]),
        "faster": ("faster", [(p.pairs, p.faster) for p in path]),
    }
    values = [max(1e-6, e) for _, line in series.values() for _, e in line]
    low, high = max(1e-3, min(0.5, *values)), min(1e6, max(2 * evidence.needed, *values))
    scale = Scale(low, high, bottom, top, logarithmic=True)
    ticks = log_ticks(low, high, 5)
    across = Scale(0, max(1, path[-1].pairs), LEFT, right)
    shapes: list[Shape] = [*grid_lines(scale, [t for t in ticks if low <= t <= high], LEFT, right)]
    shapes += [Words(LEFT - 6, scale.at(t) + 4, f"{t:g}", "tick", "end") for t in ticks if low <= t <= high]
    shapes += [Words(across.at(t), bottom + 16, f"{t:g}", "tick", "middle") for t in _count_ticks(path[-1].pairs)]
    shapes.append(Words((LEFT + right) / 2, height - 6, "pairs, at each block end", "axis", "middle"))
    shapes.append(Line(((LEFT, scale.at(evidence.needed)), (right, scale.at(evidence.needed))), "threshold"))
    shapes.append(Words(right + 8, scale.at(evidence.needed) + 4, f"{evidence.needed:g} decides", "tick"))
    ends = spread([scale.at(line[-1][1]) for _, line in series.values()], 14, top + 16, bottom)
    for (css, (name, line)), y in zip(series.items(), ends, strict=True):
        points = ((LEFT, scale.at(1)), *((across.at(n), scale.at(e)) for n, e in line))
        shapes.append(Line(points, f"evidence {css}", title=name))
        shapes.append(Mark(points[-1][0], points[-1][1], f"evidence {css}", "circle", 3))
        shapes.append(Words(right + 8, y + 4, f"{name} {_e_value(line[-1][1])}", f"end {css}"))
    sentence = (
        f"An e-value decides when it reaches {evidence.needed:g} (dashed). Now: harm {evidence.harm:.3g}, "
        f"no worse than the margins {min(evidence.noninferior, evidence.noninferior_solved):.3g} (checks"
        f" {evidence.noninferior:.3g}, solved tasks {evidence.noninferior_solved:.3g}), faster {evidence.faster:.3g}."
    )
    rows = tuple(
        tuple([str(p.pairs), *(f"{e:.3g}" for e in (p.harm, p.noninferior, p.noninferior_solved, p.faster))])
        for p in path
    )
    figures = Figures(("pairs", "harm", "no worse, checks", "no worse, solved tasks", "faster"), rows)
    return Plot("plot-evidence", "Evidence, pair by pair", sentence, height, tuple(shapes), figures)


def _e_value(value: float) -> str:
    return "over 9999" if value >= 9999.5 else f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _count_ticks(most: int) -> list[float]:
    return [t for t in linear_ticks(most, 4) if t <= most and t == int(t)]


def by_length(bins: Sequence[LengthBin], what: str) -> Plot | None:
    """Return `speed` or `acceptance` by context length, one line an arm; None when there is nothing to draw."""
    found = {arm: [(b, _value(b, what)) for b in bins if b.arm is arm] for arm in Arm}
    lines = {arm: [(b, v) for b, v in rows if v is not None] for arm, rows in found.items()}
    every = [(b, v) for rows in lines.values() for b, v in rows]
    if not every:
        return None
    height, top, bottom = 230.0, 14.0, 190.0
    speed = what == "speed"
    ticks = linear_ticks(max(v for _, v in every)) if speed else (0.0, 0.25, 0.5, 0.75, 1.0)
    scale = Scale(0, ticks[-1], bottom, top)
    low, high = min(b.low for b, _ in every), max(b.high for b, _ in every)
    across = Scale(low, high, LEFT + 4, WIDTH - RIGHT - 4, logarithmic=True)
    shapes: list[Shape] = [*grid_lines(scale, ticks, LEFT, WIDTH - RIGHT)]
    shapes += [Words(LEFT - 6, scale.at(t) + 4, f"{t:g}" if speed else f"{100 * t:g} %", "tick", "end") for t in ticks]
    shapes += _length_ticks(low, high, across, bottom)
    shapes.append(Words((LEFT + WIDTH - RIGHT) / 2, height - 6, "tokens in the context", "axis", "middle"))
    for arm, rows in lines.items():
        points = tuple((across.at((b.low * b.high) ** 0.5), scale.at(v)) for b, v in rows)
        if len(points) > 1:
            shapes.append(Line(points, f"arm {arm.value}"))
        shape = "circle" if arm is Arm.BASELINE else "square"
        for (x, y), (b, v) in zip(points, rows, strict=True):
            title = f"{arm.value}, {b.low} to {b.high} tokens: {_told(v, speed)} in {wording.counted(b.exchanges, 'exchange')}"
            shapes.append(Mark(x, y, arm.value, shape, 4, 0, title))
    name = "Generation speed" if speed else "Draft acceptance"
    keys = tuple((arm.value, arm.value) for arm, rows in lines.items() if rows)
    sentence = f"{name} by the context's length, {'all tokens over all generation time' if speed else 'accepted over drafted tokens'} of each bin."
    table = tuple(
        (f"{b.low} to {b.high}", b.arm.value, str(b.exchanges), _told(v, speed))
        for b, v in sorted(every, key=lambda row: (row[0].low, row[0].arm != Arm.BASELINE))
    )
    figures = Figures(("tokens in the context", "arm", "exchanges", "tok/s" if speed else "accepted"), table)
    return Plot(f"plot-{what}", f"{name} by context length", sentence, height, tuple(shapes), figures, keys)


def _value(b: LengthBin, what: str) -> float | None:
    return b.tokens_per_s if what == "speed" else b.acceptance


def _told(value: float, speed: bool) -> str:
    return wording.rate(value) if speed else wording.percent(value)


def _length_ticks(low: int, high: int, across: Scale, bottom: float) -> list[Shape]:
    powers = [2**k for k in range(4, 24) if low <= 2**k <= high]
    powers = powers[:: max(1, (len(powers) + 5) // 6)] or [low, high]
    return [
        Words(across.at(t), bottom + 16, f"{t // 1024}k" if t >= 1024 else str(t), "tick", "middle") for t in powers
    ]
