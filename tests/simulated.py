"""Simulated runs: what the gate's rule says of truths that are known. Vectorised over runs; the rule is the gate's own."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from agent_ab.gate.policy import Policy
from agent_ab.stats.eprocess import Side, Tally

Array = npt.NDArray[np.float64]
TASKS = 4
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


def shares(found: Runs, policy: Policy, bets: int = 200) -> Shares:
    """Return the shares; looked at after every block, a run ends with its first word."""
    shape, goal = (found.d.shape[0], found.d.shape[2]), 1 / policy.alpha
    d, solved, signs = tally(found.d), tally(found.solved), tally(-np.sign(found.log_ratios))
    harm = ((d.e(0.0, Side.HARM, bets) + solved.e(0.0, Side.HARM, bets)) / 2).reshape(shape) >= goal
    fit = d.e(-policy.margin, Side.GAIN, bets).reshape(shape) >= goal
    fit &= solved.e(-policy.solved_margin, Side.GAIN, bets).reshape(shape) >= goal
    fast = signs.e(0.0, Side.GAIN, bets).reshape(shape) >= goal
    adopt = fit & fast & ~harm
    never = shape[1]
    first_harm = np.where(harm.any(axis=1), harm.argmax(axis=1), never)
    first_adopt = np.where(adopt.any(axis=1), adopt.argmax(axis=1), never)
    return Shares(
        reject=float(((first_harm < never) & (first_harm <= first_adopt)).mean()),
        adopt=float((first_adopt < first_harm).mean()),
        reject_at_end=float(harm[:, -1].mean()),
        adopt_at_end=float(adopt[:, -1].mean()),
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
