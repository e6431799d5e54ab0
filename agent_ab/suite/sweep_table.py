"""What a sweep came to: a row a value, and in words whether the gap between the arms closes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from rich.console import Group
from rich.table import Table
from rich.text import Text

from agent_ab.model import Arm, Json, Outcome, Pair
from agent_ab.pair.metrics import measure
from agent_ab.wording import counted

CHANCE = 0.05
"""A change of the gap that chance brings about more often than this is said to be no more than chance."""


@dataclass(frozen=True, slots=True)
class At:
    """The pairs that were played at one value."""

    value: str
    run: str
    pairs: tuple[Pair, ...]
    void: int = 0
    """Planned pairs that stayed VOID; they are in none of the figures."""


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm at one value, over all pairs."""

    solved: int
    passed: int
    """Checks."""
    scored: int
    length_stops: int
    """Replies that ended at the response budget or the context's end."""
    edited: int
    """Attempts that changed production code."""
    seconds: float
    """Mean wall time of the agent."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value."""

    value: str
    run: str
    pairs: int
    baseline: ArmRow
    candidate: ArmRow

    @property
    def gap(self) -> int:
        """Return how many tasks more the candidate solved."""
        return self.candidate.solved - self.baseline.solved


def row(at: At) -> Row:
    """Return the row of one value."""
    return Row(at.value, at.run, len(at.pairs), _arm(at.pairs, Arm.BASELINE), _arm(at.pairs, Arm.CANDIDATE))


def _arm(pairs: Sequence[Pair], arm: Arm) -> ArmRow:
    attempts = [pair.attempt(arm) for pair in pairs]
    times = [attempt.agent.duration_s for attempt in attempts if attempt.agent]
    return ArmRow(
        solved=sum(attempt.outcome is Outcome.PASS for attempt in attempts),
        passed=sum(attempt.passed for attempt in attempts),
        scored=sum(attempt.total for attempt in attempts),
        length_stops=sum(measure(attempt).budget_stops for attempt in attempts),
        edited=sum(attempt.patch is not None and attempt.patch.edited_production for attempt in attempts),
        seconds=sum(times) / len(times) if times else 0.0,
    )


def words(setting: str, found: Sequence[At]) -> list[str]:
    """Return in sentences what the setting does to both arms, and whether the gap between them closes."""
    rows = [row(at) for at in found if at.pairs]
    void = [f"At {at.value} {counted(at.void, 'pair')} stayed VOID, left out here." for at in found if at.void]
    if len(rows) < 2:
        return ["Fewer than two values have a valid pair: there is nothing to compare.", *void]
    first, last = rows[0], rows[-1]
    span = f"{setting} {first.value} to {last.value}"
    lines = [_gap(span, rows), *_both(span, first, last), *void]
    changed = _changes(found[0], found[-1])
    if first.gap != last.gap and changed:
        p = sign_test(sum(change > 0 for change in changed), sum(change < 0 for change in changed))
        told = f"{len(changed)} pairs changed their gap (sign test, p = {p:.2g})"
        lines.append(f"{told}: {'that may be chance.' if p > CHANCE else 'more than chance.'}")
    return lines


def _gap(span: str, rows: Sequence[Row]) -> str:
    first, last = rows[0], rows[-1]
    at = "; ".join(
        f"at {r.value} the baseline solves {r.baseline.solved} and the candidate {r.candidate.solved} of {r.pairs}"
        for r in rows
    )
    if all(r.gap == 0 for r in rows):
        return f"No gap at any value: {at}."
    if last.gap == 0:
        return f"The gap closes from {span}: {at}."
    if first.gap == 0:
        return f"A gap opens from {span}: {at}."
    if (first.gap > 0) != (last.gap > 0):
        return f"The gap turns round from {span}: {at}."
    if abs(last.gap) != abs(first.gap):
        return f"The gap {'narrows' if abs(last.gap) < abs(first.gap) else 'widens'} from {span}: {at}."
    return f"The gap stays from {span}: {at}."


def _both(span: str, first: Row, last: Row) -> list[str]:
    lines = []
    stops = [(first.baseline, last.baseline), (first.candidate, last.candidate)]
    counts = [f"{old.length_stops} to {new.length_stops}" for old, new in stops]
    if any(old.length_stops or new.length_stops for old, new in stops):
        alike = "in both arms alike" if counts[0] == counts[1] else "not alike"
        lines.append(
            f"Length stops from {span}, {alike}: {counts[0]} in the baseline, {counts[1]} in the candidate; attempts that"
            f" edited: {first.baseline.edited} to {last.baseline.edited}, and {first.candidate.edited} to"
            f" {last.candidate.edited}."
        )
    return lines


def _changes(first: At, last: At) -> list[int]:
    """Return by how much the gap of each task and seed changed, where it did."""
    before, after = ({(p.task, p.seed, p.repeat): _solved_gap(p) for p in at.pairs} for at in (first, last))
    return [after[key] - before[key] for key in before if key in after and after[key] != before[key]]


def _solved_gap(pair: Pair) -> int:
    return (pair.candidate.outcome is Outcome.PASS) - (pair.baseline.outcome is Outcome.PASS)


def sign_test(up: int, down: int) -> float:
    """Return the exact two-sided p-value of so many ups and downs when both are equally likely."""
    n, k = up + down, min(up, down)
    return min(1.0, 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0


def view(setting: str, found: Sequence[At]) -> Group:
    """Return the table and the words."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (setting, "arm", "pairs", "solved", "checks", "length stops", "edited", "time", "run"):
        table.add_column(column)
    for at in found:
        r = row(at)
        for arm, own in ((Arm.BASELINE, r.baseline), (Arm.CANDIDATE, r.candidate)):
            table.add_row(
                r.value if arm is Arm.BASELINE else "",
                arm.value,
                str(r.pairs),
                f"{own.solved} of {r.pairs}",
                f"{own.passed}/{own.scored}",
                str(own.length_stops),
                f"{own.edited} of {r.pairs}",
                f"{own.seconds:.1f} s",
                r.run if arm is Arm.BASELINE else "",
            )
    return Group(table, Text(), *(Text(line) for line in words(setting, found)))


def data(setting: str, found: Sequence[At]) -> Json:
    """Return the same as JSON-able data."""
    rows = []
    for at in found:
        r = row(at)
        arms = {arm: {name: getattr(own, name) for name in ArmRow.__slots__} for arm, own in _named(r)}
        rows.append({"value": r.value, "run": r.run, "pairs": r.pairs, "gap": r.gap, **arms})
    return {"setting": setting, "values": rows, "words": words(setting, found)}


def _named(r: Row) -> list[tuple[str, ArmRow]]:
    return [(Arm.BASELINE.value, r.baseline), (Arm.CANDIDATE.value, r.candidate)]
