"""Block after block is added to a run until its evidence decides, or the policy's greatest number of pairs is reached."""

from dataclasses import replace

from agent_ab.gate.judged import verdict_of
from agent_ab.paths import RunPaths
from agent_ab.schedule import estimate_s
from agent_ab.store.store import Store
from agent_ab.suite import suite
from agent_ab.suite.plan import Suite
from agent_ab.suite.suite import Show, Stop
from agent_ab.verdict.verdict import Decision, Verdict


def until_decided(ready: Suite, paths: RunPaths, store: Store, show: Show, stop: Stop = suite.never) -> Verdict:
    """Play what is left of the run, then blocks of new seeds, one at a time; return the verdict it came to.

    The evidence is read at block ends only, so that looking does not spend it (docs/statistics.md). The policy is the
    run's own.
    """
    size, most = ready.grid.block_size, ready.asked.policy.max_pairs
    while True:
        end = suite.play(ready, paths, store, show, stop)
        verdict = verdict_of(store, paths.root.name)
        blocks = store.run(paths.root.name).blocks
        if end.stopped or verdict.decision is not Decision.INCONCLUSIVE or (blocks + 1) * size > most:
            return verdict
        next_s = estimate_s((pair.task for pair in ready.grid.block(blocks)), store.durations(ready.asked.profile.name))
        if stop(replace(end, next_block_s=next_s)):
            return verdict
        suite.extend(store, paths.root.name)
