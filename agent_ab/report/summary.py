"""What a run comes to, as figures: flips by check, each arm's price, voids by arm, speed by context length. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log2

from agent_ab.divergence import parting
from agent_ab.divergence.parting import Kind
from agent_ab.model import AgentEnd, Arm, Attempt, CheckStatus, Exchange, Outcome, Pair, PairOutcome
from agent_ab.pair.metrics import Metrics, WallTime, measure

BINS_PER_DOUBLING = 2
"""How finely the context length is cut: each bin is 2 ** (1 / 2) times as long as the one before."""
NOT_PLAYED = "not played"
"""How the reason of an attempt begins whose partner broke first (decision 001)."""


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """What one arm's attempts come to, over all counted pairs."""

    arm: Arm
    attempts: int
    solved: int
    passed: int
    """Checks."""
    scored: int
    wall: WallTime
    """Sums over the attempts, in seconds."""
    turns: int
    tool_calls: int
    generated_tokens: int
    tokens_per_s: float | None
    """All generated tokens over all generation time."""
    drafted: int
    accepted: int
    finish_reasons: Mapping[str, int]
    ends: Mapping[str, int]
    """How the agents ended: `completed`, `crashed`, `timeout`."""
    budget_stops: int
    http_errors: int
    broken_streams: int
    unedited: int
    """Attempts that changed no production code."""
    logged: int
    """Attempts whose exchanges were recorded; without any, the figures above are unknown, not zero."""
    patched: int
    """Attempts whose patch is known."""

    @property
    def acceptance(self) -> float | None:
        """Return accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_wall_s(self) -> float | None:
        """Return the mean wall clock of an attempt; None without attempts."""
        return self.wall.total_s / self.attempts if self.attempts else None


@dataclass(frozen=True, slots=True)
class FlippedCheck:
    """One check of one task that came out differently in at least one pair."""

    task: str
    check_id: str
    rule: str
    broken: tuple[str, ...]
    """Names of the pairs in which it passed in the baseline and failed in the candidate."""
    fixed: tuple[str, ...]
    """Names of the pairs in which it was the other way round."""
    pairs: int
    """Counted pairs of the task."""


@dataclass(frozen=True, slots=True)
class Void:
    """A pair that does not count, and whose fault that is."""

    name: str
    task: str
    seed: int
    arm: Arm | None
    """The arm whose apparatus broke; None when both ran and the proof failed."""
    reason: str


@dataclass(frozen=True, slots=True)
class LengthBin:
    """The exchanges of one arm whose prompt had between `low` and `high` tokens."""

    arm: Arm
    low: int
    high: int
    exchanges: int
    tokens_per_s: float | None
    acceptance: float | None
    """None when nothing was drafted."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's figures. Only counted pairs enter: valid ones, each planned pair once."""

    pairs: int
    outcomes: Mapping[PairOutcome, int]
    """Of the counted pairs, and VOID: every VOID try."""
    arms: tuple[ArmFigures, ArmFigures]
    """Baseline, candidate."""
    flips: tuple[FlippedCheck, ...]
    """The most often broken first."""
    voids: tuple[Void, ...]
    kinds: Mapping[Kind, int]
    """Why the arms of the counted pairs parted."""
    lengths: tuple[LengthBin, ...]
    timeouts: Mapping[Arm, int]
    unproven: int
    """Counted pairs that nobody proved."""
    checks_known: bool
    """Each check of each counted pair is known, not only how many passed."""

    @property
    def broken(self) -> int:
        """Return how many checks broke, over all counted pairs."""
        return sum(len(flip.broken) for flip in self.flips)

    @property
    def fixed(self) -> int:
        """Return how many checks were fixed, over all counted pairs."""
        return sum(len(flip.fixed) for flip in self.flips)


def counts(pair: Pair) -> bool:
    """Return whether `pair` is an observation: valid, and not a server's first pair played once more."""
    return pair.valid and not pair.again


def summarise(pairs: Sequence[Pair]) -> Summary:
    """Return the figures of a run's pairs, VOID tries included."""
    good = [pair for pair in pairs if counts(pair)]
    return Summary(
        pairs=len(good),
        outcomes=Counter(pair.outcome for pair in pairs if not pair.again),
        arms=(_arm(Arm.BASELINE, good), _arm(Arm.CANDIDATE, good)),
        flips=_flips(good),
        voids=tuple(void_of(pair) for pair in pairs if not pair.valid),
        kinds=Counter(kind for kind in map(kind_of, good) if kind),
        lengths=_lengths(good),
        timeouts={arm: sum(timed_out(pair.attempt(arm)) for pair in good) for arm in Arm},
        unproven=sum(not pair.proven for pair in good),
        checks_known=all(pair.checks_known for pair in good),
    )


def kind_of(pair: Pair) -> Kind | None:
    """Return why the arms of `pair` parted; None when there was nothing to compare."""
    return None if pair.divergence is None else parting.from_json(pair.divergence).raw.kind


def timed_out(attempt: Attempt) -> bool:
    """Return whether the attempt was cut at its time limit, so that its wall time is a lower bound."""
    return attempt.agent is not None and attempt.agent.end is AgentEnd.TIMEOUT


def void_of(pair: Pair) -> Void:
    """Return why `pair` does not count, and which arm broke."""
    for arm in Arm:
        attempt = pair.attempt(arm)
        if attempt.outcome is Outcome.INVALID and not attempt.invalid_reason.startswith(NOT_PLAYED):
            return Void(pair.name, pair.task, pair.seed, arm, attempt.invalid_reason)
    faults = [f"{line.name}: {line.detail}" for line in pair.proof if not line.ok]
    return Void(pair.name, pair.task, pair.seed, None, "; ".join(faults) or "the pair is not proven")


def _arm(arm: Arm, pairs: Sequence[Pair]) -> ArmFigures:
    attempts = [pair.attempt(arm) for pair in pairs]
    measured = [measure(attempt) for attempt in attempts]
    timed = [e.timings for a in attempts if a.log for e in a.log.exchanges if e.timings]
    decode_ms = sum(t.predicted_ms for t in timed)
    reasons: Counter[str] = Counter()
    for metrics in measured:
        reasons.update(metrics.finish_reasons)
    return ArmFigures(
        arm=arm,
        attempts=len(attempts),
        solved=sum(attempt.outcome is Outcome.PASS for attempt in attempts),
        passed=sum(attempt.passed for attempt in attempts),
        scored=sum(attempt.total for attempt in attempts),
        wall=_summed(measured),
        turns=sum(m.turns for m in measured),
        tool_calls=sum(m.tool_calls for m in measured),
        generated_tokens=sum(m.generated_tokens for m in measured),
        tokens_per_s=sum(t.predicted_n for t in timed) / (decode_ms / 1e3) if decode_ms > 0 else None,
        drafted=sum(m.drafted for m in measured),
        accepted=sum(m.accepted for m in measured),
        finish_reasons=dict(sorted(reasons.items())),
        ends=dict(sorted(Counter(a.agent.end.value for a in attempts if a.agent).items())),
        budget_stops=sum(m.budget_stops for m in measured),
        http_errors=sum(m.http_errors for m in measured),
        broken_streams=sum(m.broken_streams for m in measured),
        unedited=sum(a.patch is not None and not a.patch.edited_production for a in attempts),
        logged=sum(a.log is not None for a in attempts),
        patched=sum(a.patch is not None for a in attempts),
    )


def _summed(measured: Iterable[Metrics]) -> WallTime:
    walls = [metrics.wall for metrics in measured]
    return WallTime(
        total_s=sum(w.total_s for w in walls),
        prefill_s=sum(w.prefill_s for w in walls),
        decode_s=sum(w.decode_s for w in walls),
        tools_s=sum(w.tools_s for w in walls),
        other_s=sum(w.other_s for w in walls),
    )


def _flips(pairs: Sequence[Pair]) -> tuple[FlippedCheck, ...]:
    rules: dict[tuple[str, str], str] = {}
    found: dict[tuple[str, str], dict[CheckStatus, list[str]]] = {}
    for pair in pairs:
        for flip in pair.flips:
            key = (pair.task, flip.check_id)
            found.setdefault(key, {}).setdefault(flip.candidate, []).append(pair.name)
            rules.setdefault(key, next((c.rule for c in pair.baseline.scored if c.id == flip.check_id), ""))
    of_task = Counter(pair.task for pair in pairs)
    flips = [
        FlippedCheck(
            task,
            check_id,
            rules[task, check_id],
            tuple(sides.get(CheckStatus.FAIL, ())),
            tuple(sides.get(CheckStatus.PASS, ())),
            of_task[task],
        )
        for (task, check_id), sides in found.items()
    ]
    return tuple(sorted(flips, key=lambda flip: -len(flip.broken)))


def _lengths(pairs: Sequence[Pair]) -> tuple[LengthBin, ...]:
    bins: dict[tuple[Arm, int], list[Exchange]] = {}
    for pair in pairs:
        for arm in Arm:
            log = pair.attempt(arm).log
            for exchange in log.exchanges if log else ():
                if exchange.timings and exchange.timings.predicted_n:
                    length = exchange.timings.prompt_n + exchange.timings.cache_n
                    bins.setdefault((arm, bin_of(length)), []).append(exchange)
    return tuple(_bin(arm, number, found) for (arm, number), found in sorted(bins.items()))


def bin_of(tokens: int) -> int:
    """Return the number of the bin that a context of so many tokens falls into."""
    return floor(log2(max(1, tokens)) * BINS_PER_DOUBLING)


def bin_edge(number: int) -> int:
    """Return the shortest context of bin `number`, in tokens."""
    return round(2 ** (number / BINS_PER_DOUBLING))


def _bin(arm: Arm, number: int, exchanges: Sequence[Exchange]) -> LengthBin:
    timed = [e.timings for e in exchanges if e.timings]
    decode_ms = sum(t.predicted_ms for t in timed)
    drafted = sum(t.draft_n or 0 for t in timed)
    return LengthBin(
        arm=arm,
        low=bin_edge(number),
        high=bin_edge(number + 1),
        exchanges=len(timed),
        tokens_per_s=sum(t.predicted_n for t in timed) / (decode_ms / 1e3) if decode_ms > 0 else None,
        acceptance=sum(t.draft_n_accepted or 0 for t in timed) / drafted if drafted else None,
    )
