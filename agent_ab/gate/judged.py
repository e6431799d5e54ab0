"""A stored run -> its verdict: the run's own policy, its pairs, and what A/A and control runs say of the apparatus."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from agent_ab.errors import UserError
from agent_ab.gate import controls, gate
from agent_ab.gate.gate import Apparatus, Rules
from agent_ab.gate.observations import Observation, flaky
from agent_ab.gate.observed import Observed, forced_rates, observed, subject
from agent_ab.gate.policy import Policy, shipped_policy, stored_policy
from agent_ab.model import RunKind, RunStatus
from agent_ab.store.store import RunRecord, Store
from agent_ab.verdict.verdict import ControlState, Decision, Verdict
from agent_ab.wording import counted

JUDGED_KINDS = (RunKind.SUITE, RunKind.IMPORT, RunKind.PAIR)
PLACEBO, KNOWN_BAD = "placebo", "known-bad"
CONTROLS = (PLACEBO, KNOWN_BAD)
UNAVAILABLE = "unavailable"
"""In a control run's plan: why there is no control to play."""


Load = Callable[[RunRecord], Observed]
"""Reads a run's pairs, from the database or from the evidence."""


def verdict_of(store: Store, run_id: str | None = None, policy: Policy | None = None) -> Verdict:
    """Return the verdict on a run, by default the newest one that is a comparison. Raises UserError.

    Without `policy`, the run's own one judges, or the shipped one where it has none.
    """
    record = chosen_run(store, run_id)
    others = (store.run(s.id) for s in store.runs() if s.kind in (RunKind.AA, RunKind.CONTROLS))
    return verdict_on(record, others, lambda run: observed(store, run), policy)


def verdict_on(record: RunRecord, others: Iterable[RunRecord], load: Load, policy: Policy | None = None) -> Verdict:
    """Return the verdict on a run; `others` are the A/A and control runs that there are, newest first."""
    planned = stored_policy(record.policy) if record.policy is not None else None
    used = policy or planned or shipped_policy()
    found = load(record)
    known = apparatus(record, others, load, used)
    return gate.judge(found.run, found.observations, Rules(used, planned, record.policy_sha256, known))


def chosen_run(store: Store, run_id: str | None) -> RunRecord:
    """Return the run so named, or the newest comparison. Raises UserError."""
    if run_id is not None:
        return store.run(run_id)
    for summary in store.runs():
        if summary.kind in JUDGED_KINDS:
            return store.run(summary.id)
    raise UserError(f"{store.path}: holds no run to judge; `agent-ab run` plays one, `agent-ab import` brings one in")


def apparatus(record: RunRecord, others: Iterable[RunRecord], load: Load, policy: Policy) -> Apparatus:
    """Return what A/A and control runs of the same baseline, model, binary and tasks have shown."""
    if record.kind in (RunKind.AA, RunKind.CONTROLS):
        return Apparatus()
    if record.kind == RunKind.IMPORT:
        return Apparatus(
            (ControlState("A/A", "", None, "imported data come without an A/A run and without controls."),)
        )
    akin = [other for other in others if subject(other.plan) == subject(record.plan)]
    arms = tuple(_controls([run for run in akin if run.kind == RunKind.CONTROLS], load, policy))
    aa = next((run for run in akin if run.kind == RunKind.AA), None)
    if aa is None:
        none = "none was played with this baseline, model, binary and these tasks; `agent-ab aa` plays one."
        return Apparatus((ControlState("A/A", "", None, none), *arms))
    found = load(aa)
    return Apparatus((aa_state(found, policy), *arms), quarantine(found, policy))


def aa_state(found: Observed, policy: Policy) -> ControlState:
    """Return what an A/A run says of the apparatus."""
    verdict = gate.judge(found.run, found.observations, Rules(policy, policy))
    if verdict.decision is Decision.INVALID:
        return ControlState("A/A", found.run.id, False, verdict.reasons[0])
    if verdict.correctness is None:
        return ControlState("A/A", found.run.id, None, f"the run {found.run.id} has no whole block yet.")
    detail = f"no difference in {counted(verdict.counts.counted, 'pair')} of the same setting twice."
    return ControlState("A/A", found.run.id, True, detail)


def quarantine(found: Observed, policy: Policy) -> frozenset[tuple[str, str]]:
    """Return the checks that gave two verdicts on one snapshot often enough in an A/A run."""
    if not policy.quarantine_after:
        return frozenset()
    counts = Counter(_disagreements(found.observations))
    return frozenset(key for key, count in counts.items() if count >= policy.quarantine_after)


def _disagreements(observations: Iterable[Observation]) -> Iterable[tuple[str, str]]:
    for o in observations:
        if o.valid:
            for name in flaky(o) | o.set_aside:
                yield o.task, name


def _controls(played: Sequence[RunRecord], load: Load, policy: Policy) -> Iterable[ControlState]:
    if played and (why := played[0].plan.get(UNAVAILABLE)):
        yield ControlState("controls", played[0].id, None, f"controls not available: {why}")
        return
    for name in CONTROLS:
        record = next((run for run in played if control_of(run) == name), None)
        if record is None:
            none = "not played with this baseline, model, binary and these tasks; `agent-ab controls` does."
            yield ControlState(name, "", None, none)
        else:
            yield control_state(name, load(record), record, policy)


def control_of(record: RunRecord) -> str:
    """Return which control a run played, by the acceptance that it forced; empty: none."""
    rates = forced_rates(record.plan)
    return "" if rates is None else KNOWN_BAD if any(rates) else PLACEBO


def control_state(name: str, found: Observed, record: RunRecord, policy: Policy) -> ControlState:
    """Return whether a control came out as it must: the known-bad rejected, the placebo not."""
    verdict = gate.judge(found.run, found.observations, Rules(policy, policy))
    said = f"{verdict.decision}: {verdict.reasons[0]}"
    if verdict.decision is Decision.INVALID:
        return ControlState(name, record.id, False, f"could not be judged: {verdict.reasons[0]}")
    rejected = verdict.decision is Decision.REJECT
    if verdict.correctness is None:
        return ControlState(name, record.id, None, f"not decided, the run {record.id} has no whole block yet.")
    if name == PLACEBO:
        return ControlState(name, record.id, not rejected, f"was {'' if rejected else 'not '}rejected. {said}")
    unfinished = record.status != RunStatus.FINISHED and not rejected
    if unfinished:
        return ControlState(name, record.id, None, f"not decided, the run {record.id} is not finished.")
    if not rejected and (few := controls.too_few(verdict.counts.counted, policy.alpha)):
        return ControlState(name, record.id, None, f"not decided: {few}. {said}")
    ok = "was rejected, as it must be." if rejected else f"was not rejected: the apparatus cannot see harm. {said}"
    return ControlState(name, record.id, rejected, ok)
