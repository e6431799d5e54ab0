"""A run's flips, its grid and its pairs as lines of the page. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_ab import wording
from agent_ab.divergence import parting
from agent_ab.model import Arm, Attempt, CheckResult, CheckStatus, Pair, PairOutcome
from agent_ab.pair.metrics import measure
from agent_ab.report.page.bars import BarRow
from agent_ab.report.page.contents import FlipLine, GridPair, GridRow, GridTask, PairLine, PairRef, ProofRow, Told
from agent_ab.report.page.plots import PairPoint
from agent_ab.report.summary import FlippedCheck, Summary, counts, timed_out, void_of
from agent_ab.verdict.verdict import Verdict

MACHINE = "machine: "
"""How a finding about the machine begins."""


class Mark(Protocol):
    """What a person said of one flip (`agent-ab review`)."""

    @property
    def pair_id(self) -> str:
        """Return the pair's id within its run."""

    @property
    def check_id(self) -> str:
        """Return the check's id."""

    @property
    def kind(self) -> str:
        """Return `real`, `flaky check` or `environment`."""

    @property
    def note(self) -> str:
        """Return the person's own words."""

    @property
    def reruns(self) -> Mapping[str, Sequence[str]] | None:
        """Return the check's verdicts on both frozen snapshots, by arm, where it was run again."""

    @property
    def quarantined(self) -> bool:
        """Return whether the check disagreed with itself and counts in neither arm."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A pair and its number on the page; the order is that of play."""

    number: int
    pair: Pair

    @property
    def ref(self) -> PairRef:
        """Return what opens it."""
        return PairRef(self.number, label_of(self.pair))


def label_of(pair: Pair) -> str:
    """Return a pair's task and seed, and its repeat and try when there is more than one."""
    words = f"{pair.task} seed {pair.seed}"
    words += f" repeat {pair.repeat}" if pair.repeat else ""
    words += " played again" if pair.again else ""
    return words + (f" try {pair.attempted}" if pair.attempted > 1 else "")


def numbered(pairs: Sequence[Pair]) -> tuple[Numbered, ...]:
    """Return the pairs with their numbers, from 1."""
    return tuple(Numbered(i, pair) for i, pair in enumerate(pairs, start=1))


def side_of(pair: Pair) -> str:
    """Return `broken`, `fixed` or `same`: which way the checks of `pair` went; `broken` when any broke."""
    if any(flip.candidate is CheckStatus.FAIL for flip in pair.flips):
        return "broken"
    if pair.flips:
        return "fixed"
    lost = pair.baseline.passed - pair.candidate.passed
    return "broken" if lost > 0 else "fixed" if lost < 0 else "same"


# ---- flips


def flip_lines(
    summary: Summary, pairs: Sequence[Numbered], verdict: Verdict | None, marks: Iterable[Mark]
) -> tuple[FlipLine, ...]:
    """Return the checks that flipped, the most often broken first."""
    by_name = {n.pair.name: n for n in pairs}
    evidence = {(c.task, c.check): c for c in verdict.checks} if verdict else {}
    said: dict[tuple[str, str], list[str]] = {}
    for mark in marks:
        said.setdefault((mark.pair_id, mark.check_id), []).append(mark_words(mark))
    lines = []
    for flip in summary.flips:
        names = (*flip.broken, *flip.fixed)
        notes = [words for name in names for words in said.get((by_name[name].pair.id, flip.check_id), ())[-1:]]
        found = evidence.get((flip.task, flip.check_id))
        if found and found.regressed:
            notes.insert(0, "regressed: the evidence, corrected over all checks, supports it")
        if verdict and (flip.task, flip.check_id) in verdict.quarantined:
            notes.insert(0, "quarantined: gave two verdicts on the same snapshot, counts in neither arm")
        lines.append(_flip_line(flip, by_name, tuple(dict.fromkeys(notes))))
    return tuple(lines)


def _flip_line(flip: FlippedCheck, by_name: Mapping[str, Numbered], notes: tuple[str, ...]) -> FlipLine:
    first = by_name[(*flip.broken, *flip.fixed)[0]].pair
    arm = Arm.CANDIDATE if flip.broken else Arm.BASELINE
    reason = next((c.reason for c in first.attempt(arm).scored if c.id == flip.check_id), "")
    refs = [tuple(by_name[name].ref for name in names) for names in (flip.broken, flip.fixed)]
    return FlipLine(flip.task, flip.check_id, flip.rule, refs[0], refs[1], flip.pairs, reason, notes)


def mark_words(mark: Mark) -> str:
    """Return a mark in a few words, with what running the check again came to."""
    words = f"marked {mark.kind}" + (f": {mark.note}" if mark.note else "")
    if mark.reruns:
        words += "; run again: " + ", ".join(f"{arm} {' '.join(verdicts)}" for arm, verdicts in mark.reruns.items())
    return words + ("; quarantined" if mark.quarantined else "")


# ---- grid

_LETTER = {CheckStatus.PASS: "p", CheckStatus.FAIL: "f"}


def grid(pairs: Sequence[Numbered]) -> tuple[GridTask, ...]:
    """Return each task's checks x pairs, tasks and checks in the order in which they were met."""
    tasks: dict[str, list[Numbered]] = {}
    for n in pairs:
        tasks.setdefault(n.pair.task, []).append(n)
    return tuple(_grid_task(task, found) for task, found in tasks.items())


def _grid_task(task: str, pairs: Sequence[Numbered]) -> GridTask:
    rules: dict[str, str] = {}
    for n in pairs:
        for check in (*n.pair.baseline.scored, *n.pair.candidate.scored):
            rules.setdefault(check.id, check.rule)
    columns = [tuple(_statuses(n.pair.attempt(arm)) for arm in Arm) for n in pairs]
    rows = []
    for check_id, rule in rules.items():
        cells = tuple("".join(side.get(check_id, "-") for side in column) for column in columns)
        valid = [cell for cell, n in zip(cells, pairs, strict=True) if counts(n.pair)]
        passed = sum(c[0] == "p" for c in valid), sum(c[1] == "p" for c in valid)
        judged = sum("-" not in c for c in valid)
        rows.append(GridRow(check_id, rule, cells, passed, judged, any(c in ("pf", "fp") for c in valid)))
    columns_of = tuple(GridPair(n.ref, n.pair.seed, n.pair.outcome.value) for n in pairs)
    return GridTask(task, columns_of, tuple(rows))


def _statuses(attempt: Attempt) -> Mapping[str, str]:
    return {check.id: _LETTER[check.status] for check in attempt.scored}


# ---- pairs

_TONE = {
    PairOutcome.BOTH_PASS: "good",
    PairOutcome.FIXED: "fixed",
    PairOutcome.BOTH_FAIL: "",
    PairOutcome.BROKEN: "broken",
    PairOutcome.VOID: "void",
}


def pair_lines(pairs: Sequence[Numbered]) -> tuple[PairLine, ...]:
    """Return one line a pair, VOID tries included."""
    return tuple(_pair_line(n) for n in pairs)


def _pair_line(n: Numbered) -> PairLine:
    pair, (b, c) = n.pair, (n.pair.baseline, n.pair.candidate)
    found = None if pair.divergence is None else parting.from_json(pair.divergence).raw
    walls = wall_of(b), wall_of(c)
    ratio = walls[1] / walls[0] if walls[0] and walls[1] else None
    judged = max(b.total, c.total)
    note = "" if pair.proven else "unproven"
    if not pair.valid:
        void = void_of(pair)
        note = f"{void.arm or 'proof'}: {void.reason}"
    elif pair.again:
        note = "played again at the end of a server's life; no observation of its own"
    return PairLine(
        ref=n.ref,
        name=pair.name,
        task=pair.task,
        seed=pair.seed,
        repeat=pair.repeat,
        block=pair.block,
        first=pair.first_arm.value,
        outcome=pair.outcome.value.replace("_", " "),
        tone=_TONE[pair.outcome],
        checks=f"{b.passed} to {c.passed} of {judged}" if judged else wording.NOTHING,
        wall=_walls(b, c),
        ratio=wording.ratio(ratio),
        kind=found.kind.value if found else wording.NOTHING,
        place=place_of(found) if found else wording.NOTHING,
        flips=len(pair.flips),
        note=note,
    )


def place_of(found: parting.Divergence) -> str:
    """Return where two arms part in a few words: `model: exchange 1, token 9 of the reply`."""
    if found.where is parting.Where.NOWHERE:
        return f"{found.kind}, {wording.counted(found.common, 'exchange')}"
    if found.where is parting.Where.END:
        return f"{found.kind}: after {wording.counted(found.common, 'equal exchange')}"
    if found.where is parting.Where.REPLY:
        token = "the reply" if found.token is None else f"token {found.token} of the reply"
        return f"{found.kind}: exchange {found.exchange}, {token}"
    return f"{found.kind}: exchange {found.exchange}, {found.path}"


def wall_of(attempt: Attempt) -> float | None:
    """Return the agent's wall clock in seconds; None when no agent ran."""
    return attempt.agent.duration_s if attempt.agent and attempt.agent.duration_s > 0 else None


def _walls(baseline: Attempt, candidate: Attempt) -> str:
    """Return both wall times, in one unit so that they can be compared at a glance."""
    both = [(wall_of(a), timed_out(a)) for a in (baseline, candidate)]
    if all(wall is None for wall, _ in both):
        return wording.NOTHING
    short = all((wall or 0) < 999.95 for wall, _ in both)
    words = [wording.NOTHING if w is None else f"{w:.1f}" if short else wording.seconds(w) for w, _ in both]
    cut = [word + " (cut)" * was for word, (_, was) in zip(words, both, strict=True)]
    return f"{cut[0]} to {cut[1]}" + (" s" if short else "")


def points(pairs: Sequence[Numbered]) -> tuple[PairPoint, ...]:
    """Return what the plots need of each counted pair."""
    return tuple(
        PairPoint(
            number=n.number,
            label=label_of(n.pair),
            baseline_s=wall_of(n.pair.baseline),
            candidate_s=wall_of(n.pair.candidate),
            cut=(timed_out(n.pair.baseline), timed_out(n.pair.candidate)),
            passed=(n.pair.baseline.passed, n.pair.candidate.passed),
            total=max(n.pair.baseline.total, n.pair.candidate.total),
            css=side_of(n.pair),
        )
        for n in pairs
        if counts(n.pair)
    )


def split_bars(pairs: Sequence[Numbered], most_tasks: int = 8) -> tuple[BarRow, ...]:
    """Return the mean wall time of an attempt by its parts, of all tasks and then of each; nothing where none is known."""
    good = [n.pair for n in pairs if counts(n.pair)]
    tasks = list(dict.fromkeys(pair.task for pair in good))
    groups = {"all tasks": good} if len(tasks) != 1 else {}
    if len(tasks) <= most_tasks:
        groups |= {task: [pair for pair in good if pair.task == task] for task in tasks}
    rows = []
    for label, found in groups.items():
        for arm in Arm:
            walls = [measure(pair.attempt(arm)).wall for pair in found if pair.attempt(arm).log]
            if walls:
                parts = [(w.prefill_s, w.decode_s, w.tools_s, w.other_s) for w in walls]
                means = tuple(sum(column) / len(walls) for column in zip(*parts, strict=True))
                rows.append(BarRow(label, arm, means))
    return tuple(rows)


# ---- machine


def differences(pairs: Sequence[Numbered]) -> tuple[Told, ...]:
    """Return where the two arms of a pair met different conditions, as `conditions.differences` found it."""
    return tuple(
        Told(n.ref, finding.removeprefix(MACHINE))
        for n in pairs
        for finding in n.pair.findings
        if finding.startswith(MACHINE)
    )


# ---- proof


def proof_rows(pairs: Sequence[Numbered]) -> tuple[ProofRow, ...]:
    """Return each line of the proof over all pairs, VOID tries included."""
    found: dict[str, list[tuple[Numbered, bool, str]]] = {}
    for n in pairs:
        for line in n.pair.proof:
            found.setdefault(line.name, []).append((n, line.ok, line.detail))
    return tuple(
        ProofRow(
            name,
            sum(ok for _, ok, _ in lines),
            len(lines),
            next((detail for _, ok, detail in lines if not ok), lines[0][2]),
            tuple(n.ref for n, ok, _ in lines if not ok),
        )
        for name, lines in found.items()
    )


def check_of(attempt: Attempt, check_id: str, scored: bool) -> CheckResult | None:
    """Return one check's (or probe's) result in `attempt`."""
    return next((c for c in attempt.checks if c.id == check_id and c.scored is scored), None)
