"""Simulated runs: what the gate's rule says of truths that are known. Vectorised over runs; the rule is the gate's own."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from agent_ab.gate.observations import Observation
from agent_ab.gate.policy import Policy
from agent_ab.stats.eprocess import Side, Tally
from tests.verdicts import pair

Array = npt.NDArray[np.float64]
TASKS = 4
NEVER = 10**9
FEW_CHECKS = 0.1
"""Share of checks that an attempt passes which solves nothing; one that solves passes all."""


@dataclass(frozen=True)
class Truth:
    """What is true of the candidate, task by task."""

    solves: tuple[float, ...] = (0.2, 0.5, 0.8, 0.9)
    """The baseline's chance to solve each task."""
    breaks: tuple[float, ...] = (0.0,) * TASKS
    """Chance that the candidate breaks a task that it would have solved like the baseline."""
    identical: float = 0.0
    """Share of pairs whose arms do the same."""
    log_ratio: float = 0.0
    """Mean of the logarithm of the time ratio."""

    @property
    def difference(self) -> float:
        """Return the mean difference that is true."""
        parts = [-(1 - FEW_CHECKS) * s * b for s, b in zip(self.solves, self.breaks, strict=True)]
        return sum(parts) / TASKS


@dataclass(frozen=True)
class Runs:
    """Simulated runs: axes run, task, block."""

    baseline: Array
    candidate: Array
    log_ratios: Array

    @property
    def d(self) -> Array:
        return np.asarray(np.round(self.candidate - self.baseline, 12))

    @property
    def solved(self) -> Array:
        return np.asarray((self.candidate == 1).astype(float) - (self.baseline == 1))


def draw(truth: Truth, runs: int, blocks: int, seed: int) -> Runs:
    rng = np.random.default_rng(seed)
    shape = (runs, TASKS, blocks)
    chance = np.asarray(truth.solves)[None, :, None]
    left = rng.random(shape) < chance
    right = np.where(rng.random(shape) < truth.identical, left, rng.random(shape) < chance)
    right = right & (rng.random(shape) >= np.asarray(truth.breaks)[None, :, None])
    # A task's own mean time ratio differs from the others', so that blocks are not all alike.
    own = rng.normal(0, 0.2, TASKS)
    own -= own.mean()
    log_ratios = truth.log_ratio + own[None, :, None] + rng.normal(0, 0.3, shape)
    return Runs(np.where(left, 1.0, FEW_CHECKS), np.where(right, 1.0, FEW_CHECKS), log_ratios)


def tally(values: Array) -> Tally:
    """Return the tally of every run at every block end, run by run."""
    distinct, where = np.unique(values, return_inverse=True)
    where = where.reshape(values.shape)
    counts = np.stack([(where == i).sum(axis=1).cumsum(axis=1) for i in range(len(distinct))], axis=-1)
    flat = counts.reshape(-1, len(distinct)).astype(np.int64)
    return Tally(distinct, flat, np.zeros_like(flat))


@dataclass(frozen=True)
class Shares:
    """How often the gate says which word, looked at after every block, and at the end alone."""

    reject: float
    adopt: float
    reject_at_end: float
    adopt_at_end: float


@dataclass(frozen=True)
class Words:
    """Where the gate's evidence says which word: axes run, block."""

    harm: npt.NDArray[np.bool_]
    adopt: npt.NDArray[np.bool_]


def words(found: Runs, policy: Policy, bets: int = 200) -> Words:
    """Return what the evidence says at every block end, the guards of ADOPT aside."""
    shape, goal = (found.d.shape[0], found.d.shape[2]), 1 / policy.alpha
    d, solved, signs = tally(found.d), tally(found.solved), tally(-np.sign(found.log_ratios))
    harm = ((d.e(0.0, Side.HARM, bets) + solved.e(0.0, Side.HARM, bets)) / 2).reshape(shape) >= goal
    fit = d.e(-policy.margin, Side.GAIN, bets).reshape(shape) >= goal
    fit &= solved.e(-policy.solved_margin, Side.GAIN, bets).reshape(shape) >= goal
    fast = signs.e(0.0, Side.GAIN, bets).reshape(shape) >= goal
    return Words(harm, fit & fast & ~harm)


def first(where: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return after how many blocks each run is first true; NEVER: in none."""
    return np.where(where.any(axis=1), where.argmax(axis=1) + 1, NEVER)


def first_words(found: Runs, policy: Policy) -> npt.NDArray[np.int64]:
    """Return after how many blocks the gate says REJECT or ADOPT for the first time, its guards kept."""
    said = words(found, policy)
    pairs = found.d.shape[1] * np.arange(1, found.d.shape[2] + 1)
    kept = -found.solved.sum(axis=1).cumsum(axis=1) <= policy.max_solved_loss * pairs
    kept &= (found.baseline == 1).sum(axis=1).cumsum(axis=1) >= policy.min_baseline_solved * pairs
    kept &= found.log_ratios.sum(axis=1).cumsum(axis=1) < 0
    return first(said.harm | (said.adopt & kept))


def observations(found: Runs, i: int, blocks: int) -> list[Observation]:
    """Return the first pairs of one run as the gate takes them."""
    counts = [np.rint(10 * arm[i]).astype(int) for arm in (found.baseline, found.candidate)]
    return [
        pair(TASKS * block + task, int(counts[0][task, block]), int(counts[1][task, block]), ratio)
        for block in range(blocks)
        for task, ratio in enumerate(np.exp(found.log_ratios[i, :, block]).tolist())
    ]


def shares(found: Runs, policy: Policy) -> Shares:
    """Return the shares; looked at after every block, a run ends with its first word."""
    said = words(found, policy)
    harm, adopt = first(said.harm), first(said.adopt)
    return Shares(
        reject=float(((harm < NEVER) & (harm <= adopt)).mean()),
        adopt=float((adopt < harm).mean()),
        reject_at_end=float(said.harm[:, -1].mean()),
        adopt_at_end=float(said.adopt[:, -1].mean()),
    )


def mcnemar_on_checks(found: Runs, blocks: int) -> float:
    """Return how often McNemar's exact test on single checks, blind to pairs, says p < 0.05 after `blocks` blocks."""
    changed = np.round(10 * found.d[:, :, :blocks]).reshape(found.d.shape[0], -1)
    broken, fixed = -np.minimum(changed, 0).sum(axis=1), np.maximum(changed, 0).sum(axis=1)
    p = np.minimum(1, 2 * stats.binom.cdf(np.minimum(broken, fixed), broken + fixed, 0.5))
    return float((p < 0.05).mean())


def repeating(runs: int, blocks: int, seed: int, *, capped: bool) -> float:
    """Return the share of false REJECTs of a machine that gains always in the same way and loses in ever new ones.

    On average it neither gains nor loses. `capped`: a repeated conversation may count against the claim, as in the gate;
    otherwise it is dropped, as one would think of first.
    """
    rng = np.random.default_rng(seed)
    gains = rng.random((runs, TASKS, blocks)) < 0.5
    first = np.cumsum(gains, axis=2) == 1
    again = gains & ~(first & gains)
    values = np.asarray([-0.9, 0.9])
    fresh = np.stack([(~gains).sum(axis=1).cumsum(axis=1), (gains & ~again).sum(axis=1).cumsum(axis=1)], axis=-1)
    repeats = np.stack([np.zeros((runs, blocks), dtype=np.int64), again.sum(axis=1).cumsum(axis=1)], axis=-1)
    found = Tally(values, fresh.reshape(-1, 2), (repeats if capped else np.zeros_like(repeats)).reshape(-1, 2))
    e = found.e(0.0, Side.HARM, 200).reshape(runs, blocks)
    return float((e >= 20).any(axis=1).mean())
