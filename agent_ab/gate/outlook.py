"""Pairs still needed if the run goes on as it did so far: whole blocks drawn from those that were seen. Pure.

The evidence goes on from where it stands, with the gate's own bets and its own rule at each block end, in DRAWS simulated
continuations. What is drawn is one seed over all tasks: a block, or in data that are one block, such as imported ones, the
pairs of one seed and repeat. With one of them there is nothing to draw from: only if all of its pairs came out alike, single
pairs are drawn.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_ab.gate.policy import Policy
from agent_ab.gate.sample import Evidence, Sample, sides
from agent_ab.stats import eprocess
from agent_ab.stats.eprocess import Floats, Tally
from agent_ab.stats.eprocess import Side as Bet
from agent_ab.verdict.verdict import Decision, Forecast

DRAWS = 200
BETS = 100
"""Fewer than the verdict's own: a forecast needs no third digit."""
MOST = 1000
"""Pairs to come after which a continuation counts as undecided."""
CHUNK = 16
"""Blocks that are simulated at once."""
SEED = 20261201
_GUARDS = 6


@dataclass(frozen=True, slots=True)
class _Process:
    """One betting process: what each seen pair multiplies its bets' capital by, and where the capital stands."""

    pairs: Floats
    """Logarithms, one row a pair, one column a bet."""
    now: Floats
    side: Bet


def forecast(found: Sample, ev: Evidence, policy: Policy) -> Forecast | None:
    """Return what the gate will probably say, and after how many more pairs; None: cannot be said."""
    blocks = _blocks(found)
    if not blocks:
        return None
    processes = _processes(found, ev, policy)
    steps = [np.stack([p.pairs[block].sum(axis=0) for block in blocks]) for p in processes]
    guards = _guards(found)
    return _continued(
        processes, steps, np.stack([guards[block].sum(axis=0) for block in blocks]), guards.sum(axis=0), policy
    )


def _blocks(found: Sample) -> list[list[int]]:
    """Return the places of the pairs of each block that can be drawn; none: nothing can be drawn."""
    by_block, by_seed = defaultdict(list), defaultdict(list)
    for place, o in enumerate(found.pairs):
        by_block[o.block].append(place)
        by_seed[o.seed, o.repeat].append(place)
    if len(by_block) > 1:
        return list(by_block.values())
    tasks = {tuple(sorted(found.pairs[place].task for place in places)) for places in by_seed.values()}
    if len(by_seed) > 1 and len(tasks) == 1:
        return list(by_seed.values())
    return [[place] for place in range(len(found.pairs))] if _alike(found) else []


def _alike(found: Sample) -> bool:
    """Return whether every pair came out in the same direction, in checks and in solved tasks."""
    return len({(np.sign(d), solved) for d, solved in zip(found.d, found.solved, strict=True)}) == 1


def _processes(found: Sample, ev: Evidence, policy: Policy) -> list[_Process]:
    asked: list[tuple[Tally, tuple[float, ...] | tuple[int, ...], float, Bet]] = [
        (ev.differences, found.d, 0.0, Bet.HARM),
        (ev.solved, found.solved, 0.0, Bet.HARM),
        (ev.differences, found.d, -policy.margin, Bet.GAIN),
        (ev.solved, found.solved, -policy.solved_margin, Bet.GAIN),
        (ev.directions, ev.signs, 0.0, Bet.GAIN),
    ]
    repeated = np.asarray(found.repeated)[:, None]
    processes = []
    for tally, values, mu0, side in asked:
        logs = eprocess.log_factors(np.round(np.asarray(values, dtype=float), 12), mu0, side, BETS)
        # A repeated conversation adds no evidence, and those to come would be as often repeated as those so far.
        logs = np.where(repeated, np.minimum(logs, 0.0), logs)
        processes.append(_Process(logs, tally.log_capitals(mu0, side, BETS)[-1], side))
    return processes


def _guards(found: Sample) -> Floats:
    """Return what the guards of ADOPT count, a row a pair: pairs, solved by baseline, lost, timed, log ratio, unproven."""
    rows = np.zeros((len(found.pairs), _GUARDS))
    for row, o, again in zip(rows, found.pairs, found.repeated, strict=True):
        row[5] = not o.proven
        if again:
            continue
        left, right = sides(o)
        row[:3] = 1, left.solved, left.solved - right.solved
        if left.seconds is not None and right.seconds is not None:
            row[3:5] = 1, np.log(right.seconds / left.seconds)
    return rows


def _adoptable(counts: Floats, policy: Policy) -> npt.NDArray[np.bool_]:
    """Return where nothing but evidence is asked for ADOPT, as `gate.obstacles` does."""
    pairs, solved, lost, timed, log_ratio, unproven = np.moveaxis(counts, -1, 0)
    kept = (solved >= policy.min_baseline_solved * pairs) & (lost <= policy.max_solved_loss * pairs)
    quick = (timed == pairs) & (log_ratio < np.log(policy.max_time_ratio) * timed)
    return np.asarray((unproven == 0) & kept & quick)


def _continued(
    processes: list[_Process], steps: list[Floats], guards: Floats, counted: Floats, policy: Policy
) -> Forecast:
    rng = np.random.default_rng(SEED)
    goal = np.log(1 / policy.alpha)
    states = [np.repeat(p.now[None, :], DRAWS, axis=0) for p in processes]
    counts = np.repeat(counted[None, :], DRAWS, axis=0)
    said: list[tuple[Decision, int]] = []
    sizes, most = guards[:, 0], MOST
    left = DRAWS
    came = np.zeros(DRAWS)
    while left and came.min(initial=most) < most:
        drawn = rng.integers(len(guards), size=(left, CHUNK))
        pairs_to_come = came[:, None] + np.maximum(sizes[drawn], 1).cumsum(axis=1)
        paths = [state[:, None, :] + step[drawn].cumsum(axis=1) for state, step in zip(states, steps, strict=True)]
        harm_checks, harm_solved, fit, solved_fit, fast = (
            eprocess.log_capital(path, p.side) for path, p in zip(paths, processes, strict=True)
        )
        harmful = np.logaddexp(harm_checks, harm_solved) - np.log(2) >= goal
        held = counts[:, None, :] + guards[drawn].cumsum(axis=1)
        adopt = (np.minimum(np.minimum(fit, solved_fit), fast) >= goal) & _adoptable(held, policy)
        if policy.inside_margin == "adopt":
            harmful &= ~adopt
        over = harmful | adopt
        first, done = over.argmax(axis=1), over.any(axis=1)
        for row in np.flatnonzero(done):
            word = Decision.REJECT if harmful[row, first[row]] else Decision.ADOPT
            said.append((word, int(pairs_to_come[row, first[row]])))
        keep = ~done & (pairs_to_come[:, -1] < most)
        left = int(keep.sum())
        states = [path[keep, -1] for path in paths]
        counts, came = held[keep, -1], pairs_to_come[keep, -1]
    return _most_common(said)


def _most_common(said: list[tuple[Decision, int]]) -> Forecast:
    undecided = DRAWS - len(said)
    words = [word for word, _ in said]
    word = max((Decision.REJECT, Decision.ADOPT), key=words.count)
    if words.count(word) <= undecided:
        return Forecast(Decision.INCONCLUSIVE, undecided / DRAWS, None, None, None)
    low, median, high = np.quantile([pairs for other, pairs in said if other is word], (0.1, 0.5, 0.9))
    return Forecast(word, words.count(word) / DRAWS, round(median), round(low), round(high))
