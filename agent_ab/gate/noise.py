"""What an A/A run says of the apparatus: how much its pairs vary, which checks do, and how often the gate would err. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_ab.gate.observations import Observation, Side, flaky
from agent_ab.gate.policy import Policy
from agent_ab.model import Json
from agent_ab.stats import mcnemar, paired, power
from agent_ab.stats.eprocess import Floats, Ints, Tally
from agent_ab.stats.eprocess import Side as Bet
from agent_ab.wording import counted, percent

REPAIRINGS = 1000
SEED = 20260101
"""Of the draws, so that the same run gives the same figures."""


@dataclass(frozen=True, slots=True)
class CheckNoise:
    """One check over the A/A pairs of its task."""

    task: str
    check: str
    pairs: int
    flips: int
    share: float
    high: float
    """Upper end of the share's exact 95 % interval."""
    disagreements: int
    """Flips on byte-identical snapshots: the check's own."""
    quarantined: bool


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """What the gate would have said of the same attempts paired anew, looked at after every block."""

    repairings: int
    rejects: float
    """Share of re-pairings that reach the evidence for REJECT."""
    adopts: float
    """Share that reach the evidence for ADOPT: a real gain in time, of an arm that is no faster."""
    pairs: int
    """Pairs of each re-pairing."""
    least_reject: int | None
    """The fewest pairs that can reach the evidence for REJECT, all of them lost whole; None: beyond reach."""
    least_adopt: int | None
    """The fewest that can reach it for ADOPT, all of them won whole and faster."""

    @property
    def sentence(self) -> str:
        """Return both shares, or that so few pairs cannot err."""
        return f"{self._share('REJECT', self.rejects, self.least_reject)}, {self._share('ADOPT', self.adopts, self.least_adopt)}"

    def _share(self, word: str, share: float, least: int | None) -> str:
        if least is not None and self.pairs >= least:
            return f"{word} in {percent(share)} of {self.repairings} runs paired anew"
        few = f"beyond {counted(self.pairs, 'pair')}"
        return f"{word} is {few}" + ("" if least is None else f", whatever they are: it takes {least} at the least")


@dataclass(frozen=True, slots=True)
class Noise:
    """An A/A run's figures."""

    pairs: int
    sd: float | None
    """Standard deviation of the differences: what `agent-ab plan` plans with."""
    sd_low: float | None
    """Its 95 % interval."""
    sd_high: float | None
    identical: int
    """Pairs in which the model says the same in both arms, word for word."""
    checks: tuple[CheckNoise, ...]
    """Checks that flipped at least once, the most often first."""
    alarms: FalseAlarms | None
    """None below two pairs a task: nothing can be paired anew."""


def noise(pairs: Sequence[Observation], policy: Policy, rng: np.random.Generator | None = None) -> Noise:
    """Return the figures of the valid A/A `pairs`. Raises ValueError without pairs."""
    found = paired.mean_difference([o.difference for o in pairs])
    low = high = None
    if found.sd and found.n > 1:
        low, high = power.sd_interval(found.sd, found.n)
    return Noise(
        pairs=found.n,
        sd=found.sd,
        sd_low=low,
        sd_high=high,
        identical=sum(_identical(o) for o in pairs),
        checks=_check_noise(pairs, policy),
        alarms=false_alarms(pairs, policy, rng or np.random.default_rng(SEED)),
    )


def to_json(found: Noise, run_id: str, alarm: str) -> Json:
    """Return the figures as data; `alarm`: what the run is decided as a difference in, or empty."""
    from dataclasses import asdict

    return {"schema": 1, "run": run_id, "alarm": alarm, **asdict(found)}


def _identical(o: Observation) -> bool:
    left, right = _sides(o)
    return bool(left.conversation) and left.conversation == right.conversation


def _check_noise(pairs: Sequence[Observation], policy: Policy) -> tuple[CheckNoise, ...]:
    played: Counter[tuple[str, str]] = Counter()
    flips: Counter[tuple[str, str]] = Counter()
    own: Counter[tuple[str, str]] = Counter()
    for o in pairs:
        left, right = _sides(o)
        played.update((o.task, name) for name in left.checks)
        flips.update((o.task, name) for name, passed in left.checks.items() if right.checks[name] != passed)
        own.update((o.task, name) for name in flaky(o) | o.set_aside)
    rows = [
        CheckNoise(
            task=key[0],
            check=key[1],
            pairs=played[key],
            flips=count,
            share=count / played[key],
            high=mcnemar.share_interval(count, played[key])[1],
            disagreements=own[key],
            quarantined=0 < policy.quarantine_after <= own[key],
        )
        for key, count in flips.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.flips, row.task, row.check)))


def false_alarms(
    pairs: Sequence[Observation], policy: Policy, rng: np.random.Generator, repairings: int = REPAIRINGS
) -> FalseAlarms | None:
    """Return how often the gate would err on the attempts of `pairs`, paired anew within their tasks.

    Both arms are the same setting: any attempt could have been any arm's. None unless every task has as many pairs, two
    at least.
    """
    by_task: dict[str, list[Side]] = {}
    for o in pairs:
        by_task.setdefault(o.task, []).extend(_sides(o))
    sizes = {len(sides) for sides in by_task.values()}
    if len(sizes) != 1 or min(sizes) < 4:
        return None
    table = [by_task[name] for name in sorted(by_task)]
    shares = np.asarray([[side.share for side in sides] for sides in table])
    solved = np.asarray([[float(side.solved) for side in sides] for sides in table])
    times = np.asarray([[side.seconds or np.nan for side in sides] for sides in table])
    cut = np.asarray([[side.censored for side in sides] for sides in table])
    order = rng.permuted(np.broadcast_to(np.arange(shares.shape[1]), (repairings, *shares.shape)), axis=2)
    rows = np.arange(shares.shape[0])[None, :, None]
    d, solved_d = _differences(shares[rows, order]), _differences(solved[rows, order])
    signs = _directions(times[rows, order], cut[rows, order], policy.max_time_ratio)
    difference, of_solved, direction = _tally(d), _tally(solved_d), _tally(signs)
    shape, goal = (repairings, d.shape[2]), 1 / policy.alpha
    harm = ((difference.e(0.0, Bet.HARM) + of_solved.e(0.0, Bet.HARM)) / 2).reshape(shape) >= goal
    fit = difference.e(-policy.margin, Bet.GAIN).reshape(shape) >= goal
    fit &= of_solved.e(-policy.solved_margin, Bet.GAIN).reshape(shape) >= goal
    fast = direction.e(0.0, Bet.GAIN).reshape(shape) >= goal
    return FalseAlarms(
        repairings=repairings,
        rejects=float(harm.any(axis=1).mean()),
        adopts=float((fit & fast).any(axis=1).mean()),
        pairs=shares.size // 2,
        least_reject=_least(-1.0, (0.0, Bet.HARM), policy=policy),
        least_adopt=_least(
            1.0, (-policy.margin, Bet.GAIN), (-policy.solved_margin, Bet.GAIN), (0.0, Bet.GAIN), policy=policy
        ),
    )


def _least(value: float, *bets: tuple[float, Bet], policy: Policy) -> int | None:
    """Return the fewest pairs of the greatest difference that reach the evidence of all `bets`."""
    found = [power.fewest(value, mu0, side, policy.alpha) for mu0, side in bets]
    known = [pairs for pairs in found if pairs is not None]
    return max(known) if len(known) == len(found) else None


def _differences(shares: Floats) -> Floats:
    return np.asarray(np.round(shares[:, :, 1::2] - shares[:, :, 0::2], 12))


def _directions(times: Floats, cut: npt.NDArray[np.bool_], ratio: float) -> Floats:
    """Return what `walltime.direction` says, pair by pair; 0 where a time is not known."""
    gap = np.log(times[:, :, 1::2] / times[:, :, 0::2]) - np.log(ratio)
    baseline, candidate = cut[:, :, 0::2], cut[:, :, 1::2]
    sign = np.where(np.abs(gap) < 1e-12, 0.0, -np.sign(gap))
    sign = np.where(baseline, np.where(gap < 0, 1.0, -1.0), sign)
    sign = np.where(candidate, -1.0, sign)
    return np.asarray(np.where(np.isnan(gap) | (baseline & candidate), 0.0, sign))


def _tally(d: Floats) -> Tally:
    """Return the tally of every re-pairing (axis 0) at every block end (axis 2), over the tasks (axis 1)."""
    values, where = np.unique(d, return_inverse=True)
    where = where.reshape(d.shape)
    counts: Ints = np.stack([(where == i).sum(axis=1).cumsum(axis=1) for i in range(len(values))], axis=-1)
    flat = counts.reshape(-1, len(values))
    return Tally(values, flat, np.zeros_like(flat))


def _sides(o: Observation) -> tuple[Side, Side]:
    assert o.baseline is not None and o.candidate is not None
    return o.baseline, o.candidate
