"""How often the gate errs, by simulation: the shares that docs/statistics.md quotes.

python benchmarks/simulation.py [RUNS]
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent_ab.gate.policy import Policy
from tests import simulated
from tests.simulated import Truth, draw, shares

BLOCKS = 30
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


def main(runs: int) -> None:
    """Print a line a truth."""
    policy, begin = Policy(), time.perf_counter()
    print(f"{runs} runs of 4 tasks x {BLOCKS} seeds; margin {policy.margin:g}, alpha {policy.alpha:g}")
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
    print(f"took {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
