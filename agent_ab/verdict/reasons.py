"""The verdict's sentences. Pure. None of them says more than the numbers do."""

from collections.abc import Sequence

from agent_ab.gate.policy import Policy
from agent_ab.verdict.verdict import Correctness, EValues, Needed, TaskEvidence, Time
from agent_ab.wording import counted, percent

FEW_TASKS = 6
"""With fewer tasks no exact test over tasks can reach 0.05: its least p is 2 / 2^tasks."""
HUGE = 1e6


def e_value(e: float) -> str:
    """Return an e-value as people read it."""
    return f"over {HUGE:,.0f}" if e > HUGE else f"{e:.2f}" if e < 100 else f"{e:,.0f}"


def evidence(e: EValues, found: Correctness, policy: Policy) -> list[str]:
    """Return what is shown and what is not, in the order of the decision."""
    return [
        _shown(
            e.harm,
            e.needed,
            "that the candidate passes fewer checks or solves fewer tasks",
            f" ({_by_both(e)})",
        ),
        _shown(
            e.noninferior,
            e.needed,
            f"that it loses less than {policy.margin:g} of the checks per pair ({_mean(found)})",
        ),
        _shown(
            e.noninferior_solved,
            e.needed,
            f"that it loses fewer than {100 * policy.solved_margin:g} solved tasks in a hundred ({_solved_bounds(found)})",
        ),
        _shown(
            e.faster,
            e.needed,
            _time_goal(policy),
        ),
    ]


def rejected(e: EValues, found: Correctness) -> str:
    """Return why the candidate is rejected, and which evidence says so: of checks, of solved tasks, or both."""
    by = {"solves fewer tasks": e.harm_solved, "passes fewer checks": e.harm_checks}
    what = [words for words, value in by.items() if value >= e.needed] or [max(by, key=lambda words: by[words])]
    return (
        f"The candidate {' and '.join(what)}: evidence {e_value(e.harm)} ({_by_both(e)}), {e.needed:g} needed;"
        f" {_mean(found)}; solved tasks: {found.broken} broken, {found.fixed} fixed."
    )


def why_zero_is_inside(e: EValues, found: Correctness) -> list[str]:
    """Return why a REJECT and a sequence that holds 0 are no contradiction, where both are told."""
    high, alpha = found.always_valid.high, 1 / e.needed
    if high is None or high < 0 or e.harm_checks < e.needed:
        return []
    return [
        f"The two-sided confidence sequence up to {high:+.4f} still holds 0, since it gives each side {alpha / 2:g}"
        f" (evidence {2 * e.needed:g}); REJECT asks for the side of harm alone, at {alpha:g}."
    ]


def inside_margin(e: EValues, found: Correctness, policy: Policy) -> list[str]:
    """Return what the policy says where the candidate may be, or is, worse by less than the margin."""
    low, solved = found.lower_always, found.solved_lower_always
    if e.harm >= e.needed and e.no_worse:
        return [
            f"It is worse, and by less than the margins, {policy.margin:g} of the checks and {policy.solved_margin:g} of the"
            f" solved tasks; for this case the policy says {policy.inside_margin} (inside_margin)."
        ]
    if -policy.margin < low < 0 and -policy.solved_margin < solved < 0:
        return [
            f"A loss of up to {-low:.3f} of the checks per pair, or of {-100 * solved:.1f} solved tasks in a hundred, is not"
            f" excluded; the policy accepts a loss below {policy.margin:g} and {100 * policy.solved_margin:g}."
        ]
    return []


def still_needed(
    needed: Needed, found: Correctness, time: Time, policy: Policy, *, hopeless: bool, unproven: bool = False
) -> list[str]:
    """Return how many pairs and hours a decision still takes, and under which assumption.

    `unproven`: ADOPT takes other pairs than these, with proof.
    """
    if hopeless:
        return ["More pairs of these tasks do not help; take tasks that the baseline solves more often."]
    said = [f"{AS_SO_FAR}: {as_so_far(needed)}{' Without proof it can only be REJECT.' if unproven else ''}"]
    if found.worse:
        return [
            *said,
            "More pairs like these do not lead to ADOPT: the candidate passes fewer checks or solves fewer tasks.",
        ]
    if not needed.contradicted:
        said.append(f"{NO_DIFFERENCE}: {no_difference(needed, found.pairs, unproven=unproven)}")
        if needed.pairs_fixed is not None:
            said.append(
                f"For comparison: {counted(needed.pairs_fixed, 'pair')} for non-inferiority at margin {policy.margin:.2f},"
                f" one-sided alpha {policy.alpha:g}, power 0.8, by a t test whose number of pairs is fixed beforehand"
                f" (standard deviation {found.sd:.3f})."
            )
    if time.pairs and time.faster <= time.slower:
        said.append(
            "But the candidate was not faster more often than slower: more pairs like these do not lead to ADOPT."
        )
    return said


def without_information(tasks: Sequence[TaskEvidence]) -> list[str]:
    """Return which tasks came out alike in every attempt of both arms, and what leaving them out of the next plan saves."""
    constant = [task for task in tasks if task.constant]
    # A plan without any task is none.
    if not constant or len(constant) == len(tasks):
        return []
    shares = [task.time_share for task in constant if task.time_share is not None]
    took = f", and took {percent(sum(shares))} of the time" if len(shares) == len(constant) else ""
    names = ", ".join(f"{task.task} ({percent(task.baseline.share)} of the checks)" for task in constant)
    return [
        f"Tasks without information: {names} came out alike in every attempt of both arms{took}. Leaving them out of the next"
        " plan would save that; it changes nothing here."
    ]


AS_SO_FAR = "Pairs still needed if it goes on as it did so far"
NO_DIFFERENCE = "Pairs still needed if in truth nothing differs"


def as_so_far(needed: Needed) -> str:
    """Return what the gate will probably say, and after how many more pairs and hours."""
    found = needed.as_observed
    if found is None:
        return "cannot be said from fewer than two whole blocks."
    if found.more is None or found.low is None or found.high is None:
        return "more than 1,000; no decision is in sight."
    parts = [] if found.low == found.high else [f"{found.low} to {found.high}"]
    if needed.pair_s is not None:
        parts.append(f"about {_hours(found.more * needed.pair_s / 3600)}")
    often = "" if found.share >= 0.8 else f" in {percent(found.share)} of the simulated continuations"
    range_and_time = f" ({', '.join(parts)})" if parts else ""
    return f"about {found.more}{range_and_time}, then {found.decision}{often}."


def no_difference(needed: Needed, pairs: int, *, unproven: bool) -> str:
    """Return after how many more pairs and hours the gate could adopt; `pairs` are counted so far."""
    if needed.more is None:
        return "more than can be run, if pairs vary as they did so far."
    if unproven:
        more, hours = needed.afresh(pairs)
        took = "" if hours is None else f", about {_hours(hours)}"
        return f"about {more} with proof, run here (`agent-ab run --profile ...`){took}; those without proof are not among them."
    took = "" if needed.hours is None else f", about {_hours(needed.hours)}"
    return f"about {needed.more} ({needed.pairs_anytime} in all{took}), when pairs vary as they did so far."


def _shown(e: float, needed: float, what: str, parts: str = "") -> str:
    return f"{'Shown' if e >= needed else 'Not shown'}: {what}; evidence {e_value(e)}{parts}, {needed:g} needed."


def _by_both(e: EValues) -> str:
    return f"the mean of checks {e_value(e.harm_checks)} and solved tasks {e_value(e.harm_solved)}"


def _solved_bounds(found: Correctness) -> str:
    """Return both bounds of the difference in solved tasks of a hundred, which hold at any time."""
    low, high = (
        None if end is None else 100 * end for end in (found.solved_always_valid.low, found.solved_always_valid.high)
    )
    return "not known" if low is None or high is None else f"between {low:+.1f} and {high:+.1f}"


def _time_goal(policy: Policy) -> str:
    if policy.max_time_ratio == 1:
        return "that it takes less wall time than the baseline"
    return f"that it takes less than {policy.max_time_ratio:g} times the baseline's wall time"


def _mean(found: Correctness) -> str:
    return f"mean difference {found.mean:+.4f} over {counted(found.pairs, 'pair')}"


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 0.95 else counted(max(1, round(hours * 60)), "minute")
