"""The decision: INVALID, REJECT, ADOPT or INCONCLUSIVE, in this order, with the reasons. Pure (docs/verdict.md)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_ab.gate import estimates
from agent_ab.gate.observations import Observation, RunFacts, faults, flaky, sort_key, without
from agent_ab.gate.policy import Policy, changes
from agent_ab.gate.sample import Evidence, Sample, differs, evidence, repeats, sample
from agent_ab.gate.uncollected import uncollected
from agent_ab.model import Arm
from agent_ab.verdict import reasons
from agent_ab.verdict.verdict import (
    ControlState,
    Correctness,
    Counts,
    Decision,
    EValues,
    Needed,
    ObservedFlip,
    Time,
    Verdict,
)
from agent_ab.wording import counted

FAULTS_SHOWN = 5
FLIPS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Apparatus:
    """What A/A and control runs of the same baseline, model, binary and tasks have shown."""

    states: tuple[ControlState, ...] = ()
    quarantined: frozenset[tuple[str, str]] = frozenset()
    """Checks, as (task, check), that gave two verdicts on one snapshot in the A/A run."""


@dataclass(frozen=True, slots=True)
class Rules:
    """By what a run is judged."""

    policy: Policy
    planned: Policy | None = None
    """The policy that the run was planned with; None: there was none, or only its hash is known."""
    planned_sha256: str | None = None
    """The hash of that policy."""
    apparatus: Apparatus = Apparatus()


@dataclass(frozen=True, slots=True)
class Numbers:
    """Everything that is estimated from the pairs that count."""

    sample: Sample
    evidence: Evidence
    correctness: Correctness
    time: Time
    needed: Needed


@uncollected()
def judge(run: RunFacts, observations: Sequence[Observation], rules: Rules) -> Verdict:
    """Return the verdict on `run`; the order of `observations` does not matter."""
    policy, quarantined = rules.policy, _quarantined(rules)
    ordered = sorted(observations, key=sort_key)
    broken = list(faults(run, ordered))
    quarantined_of: defaultdict[str, set[str]] = defaultdict(set)
    for task, check in quarantined:
        quarantined_of[task].add(check)
    lessened = [without(o, quarantined_of[o.task] | o.set_aside | flaky(o)) for o in ordered]
    if not broken:
        broken += [
            f"{o.pair}: every check is flaky or quarantined, nothing is left to judge"
            for o in lessened
            if o.valid and o.baseline and not o.baseline.scored
        ]
    whole, unfinished = _whole_blocks(run, lessened)
    numbers = _numbers(run, whole, policy) if whole and not broken else None
    invalid = _shortened(broken) + [_refusal(s) for s in rules.apparatus.states if s.ok is False]
    if numbers and run.kind == "aa":
        invalid += alarm(numbers.evidence, policy)
    decision, said = _decide(run, invalid, numbers, policy)
    if decision is Decision.INCONCLUSIVE:
        said += _still_needed(run, numbers, policy)
    counts = _counts(run, ordered, numbers, len(unfinished))
    tasks = estimates.tasks(numbers.sample) if numbers else ()
    table = estimates.CheckTable()
    if numbers:
        fixed_size = not run.extended and len(whole) == sum(run.planned.values())
        table = estimates.checks(numbers.sample, quarantined, policy, fixed_size=fixed_size)
    return Verdict(
        run=run.id,
        kind=run.kind,
        profile=run.profile,
        variable=run.variable,
        decision=decision,
        reasons=tuple(said),
        warnings=(*_warnings(run, ordered, rules, numbers, counts), *reasons.without_information(tasks)),
        policy=policy.to_json(),
        policy_sha256=policy.sha256(),
        counts=counts,
        correctness=numbers.correctness if numbers else None,
        evidence=numbers.evidence.now if numbers else None,
        time=numbers.time if numbers else None,
        needed=numbers.needed if numbers else None,
        path=numbers.evidence.path if numbers else (),
        checks=table.differing,
        quarantined=tuple(sorted(quarantined)),
        unchanged=table.unchanged,
        flips=_flips(ordered) if not broken else (),
        tasks=tasks,
        controls=rules.apparatus.states,
    )


def _numbers(run: RunFacts, whole: Sequence[Observation], policy: Policy) -> Numbers:
    found = sample(whole, every_repeat_counts=run.control)
    ev = evidence(found, policy)
    return Numbers(
        sample=found,
        evidence=ev,
        correctness=estimates.correctness(found, ev, policy),
        time=estimates.time(found, ev, policy),
        needed=estimates.needed(found, ev, run, policy),
    )


def alarm(found: Evidence, policy: Policy) -> list[str]:
    """Return, a sentence each, in what an A/A run is decided as a difference though there is none.

    Two things are looked at, correctness and time, each on both sides: each needs 2 / alpha.
    """
    two_sided = differs(found)
    goal = 2 / policy.alpha
    said = []
    if two_sided.correctness >= goal:
        said.append(
            f"A/A: the same setting twice comes out as a difference in checks passed or tasks solved"
            f" (evidence {reasons.e_value(two_sided.correctness)}, {goal:g} needed): the apparatus does not treat its arms alike."
        )
    if two_sided.time >= goal:
        said.append(
            f"A/A: the same setting twice comes out as a difference in wall time (evidence"
            f" {reasons.e_value(two_sided.time)}, {goal:g} needed): the apparatus does not treat its arms alike."
        )
    return said


def obstacles(found: Sample, time: Time, policy: Policy) -> list[str]:
    """Return, a sentence each, why the run cannot lead to ADOPT whatever the evidence is."""
    fresh = found.fresh
    table = estimates.solved_table(found)
    said = []
    unproven = sum(not o.proven for o in found.pairs)
    if unproven:
        said.append(
            f"UNPROVEN: {unproven} of {counted(len(found.pairs), 'pair')} come{'s' if unproven == 1 else ''} without a proof"
            " that only the declared variable differed; such pairs never lead to ADOPT, however many they are: that takes"
            " pairs with proof, played here (`agent-ab run --profile ...`)."
        )
        said += [f"{what[0].upper()}{what[1:]}." for what in dict.fromkeys(w for o in found.pairs for w in o.unproven)][
            :4
        ]
    if table.baseline_share < policy.min_baseline_solved:
        said.append(
            f"The baseline solved {table.both + table.broken} of {counted(len(fresh), 'pair')}, a share of"
            f" {table.baseline_share:.2f}, below {policy.min_baseline_solved:g}: these tasks cannot show harm."
        )
    if table.loss > policy.max_solved_loss:
        said.append(
            f"The candidate broke {counted(table.broken, 'pair')} and fixed {table.fixed}: it solved a share of"
            f" {table.loss:.3f} less, more than the {policy.max_solved_loss:g} that the policy allows."
        )
    if time.pairs < len(fresh):
        said.append(f"The wall time of {len(fresh) - time.pairs} of {counted(len(fresh), 'pair')} is not known.")
    elif time.ratio is not None and time.ratio >= policy.max_time_ratio:
        said.append(
            f"The candidate took {time.ratio:.3f} times the baseline's wall time (geometric mean), which is not below"
            f" {policy.max_time_ratio:g}."
        )
    return said


def word(e: EValues, policy: Policy, *, adoptable: bool) -> Decision:
    """Return the word that the evidence comes to; `adoptable`: nothing but evidence is asked for ADOPT."""
    harmful = e.harm >= e.needed
    adopt = adoptable and e.no_worse and e.faster >= e.needed
    if harmful and not (adopt and policy.inside_margin == "adopt"):
        return Decision.REJECT
    return Decision.ADOPT if adopt else Decision.INCONCLUSIVE


def _decide(
    run: RunFacts, invalid: Sequence[str], numbers: Numbers | None, policy: Policy
) -> tuple[Decision, list[str]]:
    if invalid:
        return Decision.INVALID, list(invalid)
    if numbers is None:
        return Decision.INCONCLUSIVE, ["No block of the run is whole yet: nothing can be read before a block's end."]
    if run.kind == "aa":
        return Decision.INCONCLUSIVE, ["A/A: the same setting twice, and no difference was found; nothing to adopt."]
    against = obstacles(numbers.sample, numbers.time, policy)
    e = numbers.evidence.now
    decision = word(e, policy, adoptable=not against)
    said = reasons.evidence(e, numbers.correctness, policy)
    bound = reasons.inside_margin(e, numbers.correctness, policy)
    if decision is Decision.REJECT:
        return decision, [
            reasons.rejected(e, numbers.correctness),
            *reasons.why_zero_is_inside(e, numbers.correctness),
            *bound,
        ]
    if decision is Decision.ADOPT:
        return decision, [*said[1:], *said[:1], *bound]
    return decision, [*against, *said, *bound]


def _still_needed(run: RunFacts, numbers: Numbers | None, policy: Policy) -> list[str]:
    if numbers is None or run.kind == "aa":
        return []
    hopeless = estimates.solved_table(numbers.sample).baseline_share < policy.min_baseline_solved
    unproven = not all(o.proven for o in numbers.sample.pairs)
    return reasons.still_needed(
        numbers.needed, numbers.correctness, numbers.time, policy, hopeless=hopeless, unproven=unproven
    )


def _quarantined(rules: Rules) -> frozenset[tuple[str, str]]:
    return rules.apparatus.quarantined if rules.policy.quarantine_after else frozenset()


def _whole_blocks(run: RunFacts, observations: Sequence[Observation]) -> tuple[list[Observation], list[Observation]]:
    """Split the valid pairs into those of whole blocks and the rest; after an unfinished block nothing counts."""
    valid = [o for o in observations if o.valid]
    played = Counter(o.block for o in valid)
    whole: set[int] = set()
    for block in sorted(run.planned):
        if played[block] < run.planned[block]:
            break
        whole.add(block)
    return [o for o in valid if o.block in whole], [o for o in valid if o.block not in whole]


def _shortened(broken: Sequence[str]) -> list[str]:
    rest = len(broken) - FAULTS_SHOWN
    return [f"{line}." for line in broken[:FAULTS_SHOWN]] + (
        [f"And {counted(rest, 'more fault')} like {'these' if rest > 1 else 'this'}."] if rest > 0 else []
    )


def _refusal(state: ControlState) -> str:
    return f"{state.name} (run {state.run}): {state.detail}"


def _flips(ordered: Sequence[Observation]) -> tuple[ObservedFlip, ...]:
    found: list[ObservedFlip] = []
    for o in ordered:
        if not o.valid or not o.baseline or not o.candidate or o.baseline.checks == o.candidate.checks:
            continue
        # By name: the database and the evidence hold the checks in two orders.
        for name, passed in sorted(o.baseline.checks.items()):
            if o.candidate.checks[name] != passed:
                found.append(ObservedFlip(o.pair, o.task, name, broken=passed))
        if len(found) >= FLIPS_KEPT:
            break
    return tuple(found[:FLIPS_KEPT])


def _counts(run: RunFacts, ordered: Sequence[Observation], numbers: Numbers | None, unfinished: int) -> Counts:
    fresh = numbers.sample.fresh if numbers else ()
    voids = [o for o in ordered if not o.valid]
    return Counts(
        planned=sum(run.planned.values()),
        counted=len(fresh),
        blocks=len(numbers.sample.ends) if numbers else 0,
        unfinished=unfinished,
        repeated=sum(numbers.sample.repeated) if numbers else 0,
        unproven=sum(not o.proven for o in fresh),
        voids_baseline=sum(o.broke is Arm.BASELINE for o in voids),
        voids_candidate=sum(o.broke is Arm.CANDIDATE for o in voids),
        voids_identity=sum(o.broke is None for o in voids),
    )


def _warnings(
    run: RunFacts, ordered: Sequence[Observation], rules: Rules, numbers: Numbers | None, counts: Counts
) -> Iterable[str]:
    yield from _policy_warnings(run, rules)
    if counts.unfinished:
        yield (
            f"{counted(counts.unfinished, 'pair')} of blocks that are not whole {'is' if counts.unfinished == 1 else 'are'} not counted:"
            " evidence is read at block ends only."
        )
    yield from _repeats(run, numbers)
    if counts.voids_baseline or counts.voids_candidate or counts.voids_identity:
        yield (
            f"VOID tries: {counts.voids_baseline} in which the baseline broke, {counts.voids_candidate} in which the"
            f" candidate broke, {counts.voids_identity} without proof; an excess on one side is a finding."
        )
    yield from _check_warnings(ordered, _quarantined(rules))
    if counts.counted > rules.policy.max_pairs:
        yield f"{counted(counts.counted, 'pair')} are more than the {rules.policy.max_pairs} that the policy plans at most."
    tasks = {o.task for o in ordered}
    if numbers and len(tasks) < reasons.FEW_TASKS:
        yield (
            f"This is about {'these' if len(tasks) > 1 else 'this'} {counted(len(tasks), 'task')}: a claim about tasks in general needs at least"
            f" {reasons.FEW_TASKS} of them."
        )
    for state in rules.apparatus.states:
        if state.ok is None:
            yield f"{state.name}: {state.detail}"


def _policy_warnings(run: RunFacts, rules: Rules) -> Iterable[str]:
    if rules.planned is not None:
        if changed := changes(rules.planned, rules.policy):
            yield f"The policy was changed after the run was planned: {', '.join(changed)}."
    elif rules.planned_sha256:
        if not rules.policy.has_hash(rules.planned_sha256):
            yield "The policy was changed after the run was planned: its hash is another one."
    elif run.kind not in ("import", "pair"):
        yield "The run was planned without a policy; this one was chosen afterwards."


def _check_warnings(ordered: Sequence[Observation], quarantined: frozenset[tuple[str, str]]) -> Iterable[str]:
    odd = sorted({f"{o.task}/{name}" for o in ordered for name in flaky(o) | o.set_aside})
    if odd:
        yield f"Checks that disagreed with themselves on one snapshot are left out there: {', '.join(odd)}."
    if quarantined:
        names = ", ".join(f"{task}/{check}" for task, check in sorted(quarantined))
        yield f"Quarantined, since they disagreed with themselves on one snapshot in the A/A run: {names}."


def _repeats(run: RunFacts, numbers: Numbers | None) -> Iterable[str]:
    if numbers is None:
        return
    if repeated := sum(numbers.sample.repeated):
        yield (
            f"{counted(repeated, 'pair')} in which both models say, word for word, what they said in an earlier pair of the"
            " same task: a machine that repeats itself is no new evidence, they count once."
        )
    elif run.control and any(repeats(numbers.sample.pairs)):
        yield "Repeated conversations count here, since this is a control of the apparatus and no comparison."
