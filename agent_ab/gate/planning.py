"""How many pairs a margin takes, and how long they play, from an A/A run or a given standard deviation."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from agent_ab.errors import UserError
from agent_ab.gate import estimates, noise
from agent_ab.gate.observed import observed
from agent_ab.gate.policy import Policy
from agent_ab.gate.sample import sample
from agent_ab.model import Json, RunKind
from agent_ab.stats import eprocess, power
from agent_ab.store.store import Store
from agent_ab.verdict import reasons
from agent_ab.wording import counted, percent, thousands

MARGINS = (0.05, 0.10, 0.15, 0.20, 0.30)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan stands on."""

    sd: float
    sd_interval: tuple[float, float] | None
    """Its 95 % interval; None when it was given."""
    pair_s: float | None
    """Seconds that a pair takes."""
    source: str
    """`given`, or the A/A run with its number of pairs."""
    pairs: int | None = None
    """Pairs of the A/A run; None when the deviation was given."""
    without_information: tuple[str, ...] = ()
    """Which tasks of the A/A run always came out alike, in a sentence."""

    @property
    def sentence(self) -> str:
        """Return what the plan stands on, for people."""
        text = f"standard deviation of a pair's difference {self.sd:.4f}, {self.source}"
        if self.sd_interval:
            text += (
                f" (95 % interval {self.sd_interval[0]:.4f} to {self.sd_interval[1]:.4f}: the plan is worth no more)"
            )
        if self.pairs and not self.sd:
            text += (
                f"; no variation in {counted(self.pairs, 'pair')} is no certainty: up to"
                f" {percent(1 - 0.05 ** (1 / self.pairs))} of all pairs may differ, and then it takes more"
            )
        return text

    def as_json(self) -> Json:
        """Return it as data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """The pairs that one margin takes."""

    margin: float
    anytime: int | None
    """Until the gate's evidence shows non-inferiority, on the typical path; None: out of reach."""
    anytime_s: float | None
    fixed: int | None
    """Of a non-inferiority t test, one-sided, power 0.8; None without variation."""
    fixed_s: float | None
    difference: int | None
    """Of a two-sided t test that finds a difference of the margin's size."""

    def as_json(self) -> Json:
        """Return it as data."""
        return asdict(self)


def from_aa(db: Path, run_id: str, policy: Policy) -> Basis:
    """Return the basis that an A/A run gives, by default the newest one. Raises UserError."""
    if not db.is_file():
        raise UserError(f"{db}: no such database; `agent-ab aa` plays an A/A run, or give --sd")
    store = Store(db)
    try:
        names = [summary.id for summary in store.runs() if summary.kind == RunKind.AA]
        if not names or (run_id and run_id not in names):
            what = f"A/A run {run_id!r}" if run_id else "A/A run"
            raise UserError(f"{db}: holds no {what}; `agent-ab aa` plays one, or give --sd")
        found = observed(store, store.run(run_id or names[0]))
    finally:
        store.close()
    pairs = [o for o in found.observations if o.valid and o.baseline and o.candidate]
    if len(pairs) < 2:
        raise UserError(f"{db}: the A/A run {found.run.id} holds {len(pairs)} valid pairs; it takes two, or give --sd")
    figures = noise.noise(pairs, policy)
    assert figures.sd is not None
    ends = None if figures.sd_low is None or figures.sd_high is None else (figures.sd_low, figures.sd_high)
    return Basis(
        figures.sd,
        ends,
        found.run.pair_s,
        f"from {counted(len(pairs), 'pair')} of the A/A run {found.run.id}",
        len(pairs),
        tuple(reasons.without_information(estimates.tasks(sample(pairs, every_repeat_counts=True)))),
    )


def sizes(sd: float, policy: Policy, margins: Iterable[float], pair_s: float | None) -> list[PlannedSize]:
    """Return the pairs that each margin takes."""
    return [_size(margin, sd, policy.alpha, pair_s) for margin in margins]


def unsaid(planned: Iterable[PlannedSize], sd: float) -> list[str]:
    """Return why numbers of pairs are not there, a line each."""
    rows = list(planned)
    lines = []
    if any(row.anytime is None or (sd and None in (row.fixed, row.difference)) for row in rows):
        lines.append(f"-: more than {thousands(power.FAR)} pairs, out of reach; a wider margin takes fewer")
    if not sd:
        lines.append("-: a t test needs pairs that vary")
    return lines


def _size(margin: float, sd: float, alpha: float, pair_s: float | None) -> PlannedSize:
    anytime = power.more_pairs(eprocess.tally([]), -margin, eprocess.Side.GAIN, alpha, power.of_sd(sd))
    fixed = power.pairs_for_noninferiority(margin, sd, alpha)

    def seconds(pairs: int | None) -> float | None:
        return None if pairs is None or pair_s is None else pairs * pair_s

    return PlannedSize(
        margin, anytime, seconds(anytime), fixed, seconds(fixed), power.pairs_for_difference(margin, sd, alpha)
    )
