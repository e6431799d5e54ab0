"""How often the gate errs, and what a verdict costs, by simulation: the numbers that docs/statistics.md quotes.

python benchmarks/simulation.py [RUNS]
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent_ab.gate.policy import Policy
from agent_ab.stats import power
from tests import simulated
from tests.simulated import TASKS, Runs, Truth, draw, shares

BLOCKS = 30
LONG = 150
"""Blocks until a run counts as undecided in the table of prices."""
POWER = 0.8
CLT = 30
HALF = (0.5,) * 4
TRUTHS = {
    "the same setting twice": Truth(),
    "the same, 7 of 10 pairs identical": Truth(identical=0.7),
    "loses the margin, faster": Truth(HALF, (0.1 / 0.45,) * 4, log_ratio=-0.7),
    "loses the margin in one task, faster": Truth(HALF, (0.4 / 0.45, 0, 0, 0), log_ratio=-0.7),
    "loses the margin, 7 of 10 identical": Truth(HALF, (0.1 / 0.45,) * 4, identical=0.7, log_ratio=-0.7),
    "loses nothing, as fast": Truth((1.0,) * 4, identical=1.0),
    "loses nothing, 40 % faster": Truth((0.9,) * 4, identical=0.9, log_ratio=-0.5),
    "loses twice the margin": Truth(HALF, (0.2 / 0.45,) * 4, log_ratio=-0.5),
}
ALL_EQUAL = Truth((1.0,) * 4, identical=1.0, log_ratio=-1.5)
BREAKS_ALL = Truth((1.0,) * 4, (1.0,) * 4, identical=1.0, log_ratio=-0.5)
TWO_TASKS = Truth((0.9,) * 4, (1.0, 0, 0, 0), identical=1.0, log_ratio=-0.5)


def one_check(runs: int, blocks: int) -> Runs:
    """Return runs in which a third of the pairs lose one check of ten, and nothing else differs."""
    found = draw(Truth((0.9,) * 4, identical=1.0, log_ratio=-0.5), runs, blocks, seed=2)
    lost = np.random.default_rng(3).random(found.d.shape) < 1 / 3
    return Runs(found.baseline, np.round(found.candidate - np.where(lost, 0.1, 0), 12), found.log_ratios)


def main(runs: int) -> None:
    """Print a line a truth: false alarms first, then what the right verdict costs."""
    policy, begin = Policy(), time.perf_counter()
    print(f"{runs} runs of {TASKS} tasks x {BLOCKS} seeds; margin {policy.margin:g}, alpha {policy.alpha:g}")
    print(f"{'':<38}  looked at after every block    at the end alone")
    print(f"{'truth':<38}  {'REJECT':>8} {'ADOPT':>8}              {'REJECT':>8} {'ADOPT':>8}")
    for name, truth in TRUTHS.items():
        said = shares(draw(truth, runs, BLOCKS, seed=1), policy)
        at_end = f"{said.reject_at_end:8.4f} {said.adopt_at_end:8.4f}"
        print(f"{name:<38}  {said.reject:8.4f} {said.adopt:8.4f}              {at_end}")
    same = draw(Truth(), runs, BLOCKS, seed=1)
    false = ", ".join(f"{simulated.mcnemar_on_checks(same, n):.3f} at {4 * n} pairs" for n in (2, 10, 30))
    print(f"McNemar on single checks, the same setting twice: false alarms {false}")
    for capped, words in ((False, "dropped"), (True, "capped, as in the gate")):
        share = simulated.repeating(runs // 4, BLOCKS, 5, capped=capped)
        print(f"repeated conversations {words}: false REJECTs of a machine that gains in one way only {share:.4f}")
    prices(runs // 4, policy)
    print(f"took {time.perf_counter() - begin:.0f} s")


def prices(runs: int, policy: Policy) -> None:
    """Print the pairs until the right verdict, beside the best test whose number of pairs was planned beforehand."""
    print(
        f"\npairs until the right verdict, {runs} runs of up to {TASKS * LONG} pairs; fixed: t test and McNemar, power {POWER};"
        " ratio: median over the better of the two, in whole blocks"
    )
    print(f"{'truth':<38}  {'verdict':<7} {'median':>6} {'90 %':>6} {'t test':>7} {'McNemar':>8} {'ratio':>6}")
    rejected = ("loses the margin, faster", "loses the margin in one task, faster", "loses twice the margin")
    rows: list[tuple[str, str, Runs]] = [
        ("all pairs equal, faster", "ADOPT", draw(ALL_EQUAL, runs, LONG, seed=1)),
        ("loses nothing, 40 % faster", "ADOPT", draw(TRUTHS["loses nothing, 40 % faster"], runs, LONG, seed=1)),
        ("breaks all that it is given", "REJECT", draw(BREAKS_ALL, runs, LONG, seed=1)),
        ("one task of four breaks", "REJECT", draw(TWO_TASKS, runs, LONG, seed=1)),
        ("one check lost in a third of the pairs", "REJECT", one_check(runs, LONG)),
        *((name, "REJECT", draw(TRUTHS[name], runs, LONG, seed=1)) for name in rejected),
    ]
    for name, verdict, found in rows:
        said = simulated.words(found, policy)
        where = said.harm if verdict == "REJECT" else said.adopt
        pairs = TASKS * np.minimum(simulated.first(where), LONG + 1)
        median, high = np.quantile(pairs, (0.5, 0.9))
        t, exact = fixed(found, verdict, policy)
        best = TASKS * -(-min(n for n in (t, exact) if n is not None) // TASKS)
        late = f"> {TASKS * LONG}" if high > TASKS * LONG else f"{high:.0f}"
        print(f"{name:<38}  {verdict:<7} {median:6.0f} {late:>6} {t or '-':>7} {exact or '-':>8} {median / best:6.2f}")


def fixed(found: Runs, verdict: str, policy: Policy) -> tuple[int | None, int | None]:
    """Return the pairs of a t test on checks, and of an exact test on solved tasks, each of power POWER.

    The true mean and variance are known to both, as they are to nobody who plans a real run. No valid test adopts before
    1 - alpha^(1 / n), the bound of the share of pairs that differ unseen, is within the margin. A t test of fewer than CLT
    pairs with so few values does not hold alpha and is left out.
    """
    d, solved = found.d.ravel(), found.solved.ravel()
    if verdict == "ADOPT":
        unseen = power.least(2, lambda n: 1 - policy.alpha ** (1 / n) <= policy.margin) or 0
        t = power.pairs_for_noninferiority(policy.margin + float(d.mean()), float(d.std()), policy.alpha, POWER)
        return max(unseen, t or 0), None
    broken, fixed_share = float((solved < 0).mean()), float((solved > 0).mean())
    effect = -float(d.mean()) / max(float(d.std()), 1e-9)
    t = least(2, lambda n: t_power(effect, n, policy.alpha) >= POWER)
    return t if t and t >= CLT else None, least(2, lambda n: sign_power(broken, fixed_share, n, policy.alpha) >= POWER)


def least(low: int, reached: Callable[[int], bool]) -> int | None:
    """Return the least number from `low` on that is enough; None beyond 2,000. Power is not monotone in an exact test."""
    return next((n for n in range(low, 2000) if reached(n)), None)


def t_power(effect: float, n: int, alpha: float) -> float:
    """Return the power of the one-sided t test."""
    return float(stats.nct.sf(stats.t.ppf(1 - alpha, n - 1), n - 1, effect * np.sqrt(n))) if effect < 50 else 1.0


def sign_power(broken: float, fixed_share: float, n: int, alpha: float) -> float:
    """Return the power of the exact one-sided test of `broken` against `fixed_share` (McNemar) on `n` pairs."""
    discordant = broken + fixed_share
    if not discordant:
        return 0.0
    total = 0.0
    for k in range(n + 1):
        chance = float(stats.binom.pmf(k, n, discordant))
        if chance > 1e-9:
            needed = int(stats.binom.isf(alpha, k, 0.5)) + 1 if k else 1
            total += chance * float(stats.binom.sf(needed - 1, k, broken / discordant))
    return total


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
