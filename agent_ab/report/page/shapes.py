"""What a plot is made of: plain shapes in a small coordinate system, which the template draws as SVG. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10

WIDTH = 400.0
"""Of every plot, in its own units; about the width of a phone, so that its letters are never too small."""


@dataclass(frozen=True, slots=True)
class Line:
    """A stroke from point to point."""

    points: tuple[tuple[float, float], ...]
    css: str
    pair: int = 0
    """Number of the pair that it opens; 0: none."""
    title: str = ""
    width: float = 0
    """Stroke width; 0: the style sheet's."""
    kind: str = "line"

    @property
    def path(self) -> str:
        """Return the points as SVG wants them."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker at one point."""

    x: float
    y: float
    css: str
    shape: str = "circle"
    """`circle`, `square`, `diamond` or `triangle`."""
    size: float = 4
    """Half its width."""
    pair: int = 0
    title: str = ""
    kind: str = "mark"

    @property
    def path(self) -> str:
        """Return the outline of a marker that is no circle."""
        x, y, r = self.x, self.y, self.size
        corners = {
            "square": ((x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)),
            "diamond": ((x, y - r), (x + r, y), (x, y + r), (x - r, y)),
            "triangle": ((x, y - r), (x + r, y + r), (x - r, y + r)),
        }[self.shape]
        return " ".join(f"{px:.1f},{py:.1f}" for px, py in corners)


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    css: str
    title: str = ""
    kind: str = "box"


@dataclass(frozen=True, slots=True)
class Words:
    """Text at a point."""

    x: float
    y: float
    text: str
    css: str = ""
    anchor: str = "start"
    """`start`, `middle` or `end`."""
    kind: str = "words"


Shape = Line | Mark | Box | Words


@dataclass(frozen=True, slots=True)
class Figures:
    """What a plot shows, as a table for those who do not see it."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure: drawn, said in a sentence, and as a table."""

    id: str
    title: str
    sentence: str
    """What it shows, with its numbers; the caption, and the text for a screen reader."""
    height: float
    shapes: tuple[Shape, ...]
    figures: Figures | None
    keys: tuple[tuple[str, str], ...] = ()
    """Its legend: style of the sample, words."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places."""

    low: float
    high: float
    start: float
    """Place of `low`."""
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the place of `value`; what lies outside is put on the edge."""
        low, high, value = (self._bent(v) for v in (self.low, self.high, max(self.low, min(self.high, value))))
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def _bent(self, value: float) -> float:
        return log(value) if self.logarithmic else value


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """The unit in which an axis is labelled."""

    name: str
    seconds: float

    def label(self, value: float) -> str:
        """Return a duration in seconds in this unit."""
        return f"{value / self.seconds:.3g} {self.name}"


def time_unit(most: float) -> TimeUnit:
    """Return the unit for an axis up to `most` seconds."""
    if most >= 7200:
        return TimeUnit("h", 3600)
    return TimeUnit("min", 60) if most >= 240 else TimeUnit("s", 1)


def linear_ticks(high: float, most: int = 5) -> tuple[float, ...]:
    """Return round numbers from 0 to `high` or a little beyond."""
    if high <= 0:
        return (0.0, 1.0)
    rough = high / most
    power: float = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return tuple(step * i for i in range(ceil(high / step - 1e-9) + 1))


def log_ticks(low: float, high: float, most: int = 6) -> tuple[float, ...]:
    """Return round numbers that enclose `low` to `high`, both above 0; at least two."""
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        powers = range(floor(log10(low)) - 1, ceil(log10(high)) + 2)
        every = [step * 10.0**power for power in powers for step in steps]
        first = max((i for i, tick in enumerate(every) if tick <= low * 1.0001), default=0)
        last = min((i for i, tick in enumerate(every) if tick >= high * 0.9999), default=len(every) - 1)
        ticks = every[first : max(last, first + 1) + 1]
        if len(ticks) <= most:
            return tuple(ticks)
    sparse = ticks[:: ceil(len(ticks) / most)]
    return tuple(sparse if sparse[-1] == ticks[-1] else [*sparse, ticks[-1]])


def spread(places: Sequence[float], least: float, low: float, high: float) -> tuple[float, ...]:
    """Return `places` moved as little as needed to lie `least` apart within `low` to `high`, in their order."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    floor_ = low
    for i in order:
        moved[i] = max(moved[i], floor_)
        floor_ = moved[i] + least
    ceiling = high
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - least
    return tuple(moved)


def grid_lines(scale: Scale, ticks: Iterable[float], left: float, right: float) -> tuple[Line, ...]:
    """Return faint lines across, one a tick."""
    return tuple(Line(((left, scale.at(t)), (right, scale.at(t))), "grid") for t in ticks)
