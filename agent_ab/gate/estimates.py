"""Observations -> the verdict's numbers. Pure; decides nothing."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np

from agent_ab.gate import outlook
from agent_ab.gate.observations import Observation, RunFacts, Side
from agent_ab.gate.policy import Policy
from agent_ab.gate.sample import Evidence, Sample, sides
from agent_ab.model import Arm
from agent_ab.stats import correction, eprocess, mcnemar, paired, power, walltime
from agent_ab.stats.eprocess import Ints, Tally
from agent_ab.stats.eprocess import Side as Bet
from agent_ab.verdict.verdict import (
    ArmOfTask,
    CheckEvidence,
    ClusteredTest,
    Correctness,
    Interval,
    Needed,
    TaskEvidence,
    Time,
)

PASS_K = 5


def correctness(found: Sample, ev: Evidence, policy: Policy) -> Correctness:
    """Return what the pairs say of the share of checks that pass."""
    pairs, alike, d = found.fresh, found.alike, found.fresh_d
    level = 1 - policy.alpha
    mean = paired.mean_difference(d, level)
    bound = paired.lower_bound(d, policy.alpha)
    flips = paired.sign_flip(d)
    by_task = paired.means_by(d, [o.task for o in pairs])
    over_tasks = paired.mean_difference(list(by_task.values()), level)
    changed = [(*_changed(o), n) for o, n in alike]
    table = solved_table(found)
    exact = mcnemar.mcnemar(table.broken, table.fixed)
    checks = sum(n * sides(o)[0].scored for o, n in alike)
    effect = paired.design_effect(d, sum(n * b for b, _, n in changed), sum(n * f for _, f, n in changed), checks)
    low, high = eprocess.confidence_sequence(ev.differences, policy.alpha)
    solved_low, solved_high = eprocess.confidence_sequence(ev.solved, policy.alpha)
    known_order = [(x, o.first_arm is Arm.BASELINE) for x, o in zip(d, pairs, strict=True) if o.first_arm]
    return Correctness(
        pairs=len(pairs),
        passed_baseline=sum(n * sides(o)[0].passed for o, n in alike),
        passed_candidate=sum(n * sides(o)[1].passed for o, n in alike),
        checks=checks,
        mean=mean.mean,
        sd=mean.sd,
        interval=Interval(mean.low, mean.high, level),
        lower=bound.value,
        guarded=bound.guarded,
        p_t=mean.p,
        p_sign_flip=flips.two_sided,
        sign_flip_exact=flips.exact,
        task_interval=Interval(over_tasks.low, over_tasks.high, level) if len(by_task) > 1 else None,
        always_valid=Interval(low, high, level),
        lower_always=eprocess.bound(ev.differences, Bet.GAIN, policy.alpha),
        solved_always_valid=Interval(solved_low, solved_high, level),
        solved_lower_always=eprocess.bound(ev.solved, Bet.GAIN, policy.alpha),
        both=table.both,
        broken=table.broken,
        fixed=table.fixed,
        neither=table.neither,
        p_solved_exact=exact.exact,
        p_solved_mid=exact.mid,
        design_effect=effect.effect if effect else None,
        effective_checks=effect.effective if effect else None,
        order_effect=paired.order_effect([x for x, _ in known_order], [first for _, first in known_order]),
        clustered=_clustered(found),
    )


@dataclass(frozen=True, slots=True)
class SolvedTable:
    """Pairs by which arm solved them."""

    both: int
    broken: int
    fixed: int
    neither: int

    @property
    def baseline_share(self) -> float:
        """Return the share of pairs that the baseline solved."""
        return (self.both + self.broken) / (self.both + self.broken + self.fixed + self.neither)

    @property
    def loss(self) -> float:
        """Return by how much the candidate's solved share is lower, as observed."""
        return (self.broken - self.fixed) / (self.both + self.broken + self.fixed + self.neither)


def solved_table(found: Sample) -> SolvedTable:
    """Return how many pairs both arms, one arm or neither solved."""
    solved: Counter[tuple[bool, bool]] = Counter()
    for o, n in found.alike:
        left, right = sides(o)
        solved[left.solved, right.solved] += n
    return SolvedTable(
        both=solved[True, True],
        broken=solved[True, False],
        fixed=solved[False, True],
        neither=solved[False, False],
    )


def _changed(o: Observation) -> tuple[int, int]:
    """Return how many checks broke and how many were fixed; of mere counts, the fewest that account for them."""
    left, right = sides(o)
    if not left.checks:
        return max(0, left.passed - right.passed), max(0, right.passed - left.passed)
    if left.checks == right.checks:
        return 0, 0
    broken = sum(passed and not right.checks[name] for name, passed in left.checks.items())
    return broken, broken + right.passed - left.passed


def _clustered(found: Sample) -> tuple[ClusteredTest, ...]:
    by_kind = np.asarray([(*_changed(o), sides(o)[0].scored) for o in found.kinds], dtype=np.int64)
    by_pair = by_kind[found.fresh_kind]
    of_task: dict[str, Ints] = defaultdict(lambda: np.zeros(3, dtype=np.int64))
    for o, n in found.alike:
        of_task[o.task] += n * np.asarray((*_changed(o), sides(o)[0].scored))
    by_task = np.asarray([of_task[name] for name in sorted(of_task)])
    tests = []
    for cluster, rows in (("pair", by_pair), ("task", by_task)):
        if len(rows) < 2:
            continue
        broken, fixed, sizes = rows.T
        for name, test in (
            ("Obuchowski 1998", mcnemar.obuchowski(broken, fixed)),
            ("Durkalski 2003", mcnemar.durkalski(broken, fixed, sizes)),
            ("Yang 2010", mcnemar.yang(broken, fixed, sizes)),
        ):
            if test:
                tests.append(ClusteredTest(name, cluster, test.statistic, test.p))
    return tuple(tests)


def time(found: Sample, ev: Evidence, policy: Policy) -> Time:
    """Return what the pairs say of wall time."""
    rows = zip(found.of_fresh(found.kind), found.of_fresh(ev.times), found.of_fresh(ev.signs), strict=True)
    timed = [row for row in rows if row[1]]
    pairs, signs = [known for _, known, _ in timed if known], [sign for *_, sign in timed]
    solved = [(left.solved, right.solved) for left, right in map(sides, found.kinds)]
    cut = Counter((p.baseline_censored, p.candidate_censored) for p in pairs)
    unknown = cut[True, True]
    found_time = Time(
        pairs=len(pairs),
        faster=signs.count(1),
        slower=signs.count(-1),
        equal=signs.count(0) - unknown,
        unknown=unknown,
        censored_baseline=cut[True, False] + unknown,
        censored_candidate=cut[False, True] + unknown,
    )
    if not pairs:
        return found_time
    level = 1 - policy.alpha
    totals = [math.fsum(p.baseline for p in pairs), math.fsum(p.candidate for p in pairs)]
    hourly = walltime.solved_per_hour(
        [solved[kind] for kind, *_ in timed],
        [(p.baseline, p.candidate) for p in pairs],
        level,
    )
    found_time = replace(
        found_time,
        mean_baseline_s=totals[0] / len(pairs),
        mean_candidate_s=totals[1] / len(pairs),
        solved_per_hour_baseline=hourly.baseline,
        solved_per_hour_candidate=hourly.candidate,
        solved_per_hour_ratio=hourly.ratio,
        solved_per_hour_interval=None if hourly.ratio is None else Interval(hourly.low, hourly.high, level),
    )
    if unknown == len(pairs):
        # Both limits are one number: a ratio of 1 would be the limit's, not the arms'.
        return found_time
    ratio = walltime.geometric_ratio(pairs, level)
    return replace(
        found_time,
        ratio=ratio.value,
        interval=Interval(ratio.low, ratio.high, level),
        ratio_censored=walltime.censored_ratio(pairs) if cut[False, False] < len(pairs) else None,
        hodges_lehmann=walltime.hodges_lehmann(pairs),
        p_wilcoxon=walltime.wilcoxon_p(pairs),
        ratio_of_sums=totals[1] / totals[0],
    )


@dataclass(frozen=True, slots=True)
class CheckTable:
    """All checks of all tasks."""

    differing: tuple[CheckEvidence, ...] = ()
    """Those that differed at least once, most broken first."""
    unchanged: tuple[tuple[str, str], ...] = ()
    """The others, as (task, check)."""


def checks(found: Sample, quarantined: frozenset[tuple[str, str]], policy: Policy, *, fixed_size: bool) -> CheckTable:
    """Return the evidence on each check.

    All checks of all tasks are corrected for. `fixed_size`: the run is as large as it was planned, so that McNemar's
    exact test holds; otherwise a check regressed when its e-value says so, which holds at every block end.
    """
    counts = _check_counts(found)
    names = sorted(key for key in counts if key not in quarantined)
    if not names:
        return CheckTable()
    table = np.asarray([counts[name] for name in names], dtype=np.int64)
    tally = Tally(np.asarray([-1.0, 0.0, 1.0]), table[:, :3], table[:, 3:])
    e = tally.e(0.0, Bet.HARM)
    p = [mcnemar.mcnemar(int(row[0]), int(row[2])).exact for row in table]
    by_holm, by_bh = correction.holm(p), correction.benjamini_hochberg(p)
    decides = by_holm if fixed_size else correction.holm([min(1.0, 1 / value) for value in e])
    rows = [
        CheckEvidence(
            task=task,
            check=check,
            pairs=int(table[i, :3].sum()),
            broken=int(table[i, 0]),
            fixed=int(table[i, 2]),
            p=p[i],
            p_holm=by_holm[i],
            p_bh=by_bh[i],
            e=float(e[i]),
            regressed=bool(decides[i] <= policy.alpha and table[i, 0] > table[i, 2]),
        )
        for i, (task, check) in enumerate(names)
        if table[i, 0] or table[i, 2]
    ]
    unchanged = (name for i, name in enumerate(names) if not table[i, 0] and not table[i, 2])
    return CheckTable(tuple(sorted(rows, key=lambda r: (-r.broken, r.fixed, r.task, r.check))), tuple(unchanged))


def _check_counts(found: Sample) -> dict[tuple[str, str], list[int]]:
    """Return how often each check broke, stayed and was fixed: in pairs that count, then in repeated ones."""
    counts: dict[tuple[str, str], list[int]] = {}
    for (kind, again), number in Counter(zip(found.kind, found.repeated, strict=True)).items():
        left, right = sides(found.kinds[kind])
        for name, passed in left.checks.items():
            row = counts.setdefault((found.kinds[kind].task, name), [0] * 6)
            row[3 * again + 1 + right.checks[name] - passed] += number
    return counts


def tasks(found: Sample) -> tuple[TaskEvidence, ...]:
    """Return each task's results."""
    groups: dict[str, list[tuple[Observation, int]]] = {}
    for o, n in found.alike:
        groups.setdefault(o.task, []).append((o, n))
    seconds = _seconds_by_task(found)
    return tuple(
        TaskEvidence(
            task=name,
            time_share=None if seconds is None else seconds[name] / sum(seconds.values()),
            constant=sum(n for _, n in group) > 1 and len({s.passed for o, _ in group for s in sides(o)}) == 1,
            pairs=sum(n for _, n in group),
            mean=_mean([(o.difference, n) for o, n in group]),
            baseline=_arm_of_task([(sides(o)[0], n) for o, n in group]),
            candidate=_arm_of_task([(sides(o)[1], n) for o, n in group]),
        )
        for name, group in sorted(groups.items())
    )


def _seconds_by_task(found: Sample) -> dict[str, float] | None:
    """Return how long both arms' agents took for each task; None when a time is not known."""
    total: defaultdict[str, float] = defaultdict(float)
    for o in found.fresh:
        for side in sides(o):
            if not side.seconds:
                return None
            total[o.task] += side.seconds
    return total


def _mean(values: Sequence[tuple[float, int]]) -> float:
    """Return the mean of `values`, each as often as it says."""
    return math.fsum(chain.from_iterable(repeat(value, n) for value, n in values)) / sum(n for _, n in values)


def _arm_of_task(sides: Sequence[tuple[Side, int]]) -> ArmOfTask:
    n, solved = sum(count for _, count in sides), sum(count for side, count in sides if side.solved)
    ks = range(1, min(n, PASS_K) + 1)
    return ArmOfTask(
        solved=solved,
        share=_mean([(side.share, count) for side, count in sides]),
        pass_at=tuple(correction.pass_at_k(n, solved, k) for k in ks),
        pass_all=tuple(correction.pass_all_k(n, solved, k) for k in ks),
    )


def needed(found: Sample, ev: Evidence, run: RunFacts, policy: Policy) -> Needed:
    """Return how many pairs a decision takes from here."""
    d = found.fresh_d
    sd = paired.mean_difference(d).sd
    counted = len(d)
    signs = [float(sign) for sign in found.of_fresh(ev.signs)]
    solved = [float(sign) for sign in found.of_fresh(found.solved)]
    quick = power.more_pairs(ev.directions, 0.0, Bet.GAIN, policy.alpha, power.as_observed(signs))
    both = [
        power.more_pairs(tally, -margin, Bet.GAIN, policy.alpha, power.no_difference(values))
        for tally, margin, values in ((ev.differences, policy.margin, d), (ev.solved, policy.solved_margin, solved))
    ]
    steady = None if None in both else max(n for n in both if n is not None)
    more = None if steady is None else max(steady, quick or 0)
    return Needed(
        pairs_fixed=power.pairs_for_noninferiority(policy.margin, sd, policy.alpha) if sd else None,
        pairs_anytime=None if steady is None else counted + steady,
        as_observed=outlook.forecast(found, ev, policy),
        pair_s=run.pair_s,
        contradicted=ev.now.harm >= math.sqrt(ev.now.needed),
        more=more,
        hours=None if more is None or run.pair_s is None else more * run.pair_s / 3600,
        smallest_effect=power.smallest_effect(counted, sd, policy.alpha) if sd else None,
    )
