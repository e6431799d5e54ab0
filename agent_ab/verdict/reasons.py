"""The verdict's sentences. Pure. None of them says more than the numbers do."""

from agent_ab.gate.policy import Policy
from agent_ab.verdict.verdict import Correctness, EValues, Needed, Time
from agent_ab.wording import counted

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
    said = []
    if found.worse:
        said.append("More pairs like these do not lead to ADOPT: the candidate passes fewer checks.")
    elif unproven and needed.more is not None:
        pairs, hours = needed.afresh(found.pairs)
        said.append(
            f"Pairs still needed: about {pairs} with proof, played here (`agent-ab run --profile ...`)"
            f"{'' if hours is None else f', about {_hours(hours)}'}, if in truth nothing differs and they are like these;"
            " those without proof are not among them."
        )
    elif needed.more:
        took = "" if needed.hours is None else f", about {_hours(needed.hours)}"
        said.append(
            f"Pairs still needed: about {needed.more} ({needed.pairs_anytime} in all{took}), if in truth nothing differs"
            " and pairs vary as they did so far."
        )
    elif needed.more is None:
        said.append("Pairs still needed: more than can be played, if pairs vary as they did so far.")
    if needed.pairs_fixed is not None and not found.worse:
        said.append(
            f"For comparison: {counted(needed.pairs_fixed, 'pair')} for non-inferiority at margin {policy.margin:.2f}, one-sided"
            f" alpha {policy.alpha:g}, power 0.8, by a t test whose number of pairs is fixed beforehand"
            f" (standard deviation {found.sd:.3f})."
        )
    if time.pairs and time.faster <= time.slower and not found.worse:
        said.append(
            "But the candidate was not faster more often than slower: more pairs like these do not lead to ADOPT."
        )
    if needed.pairs_as_observed and needed.pairs_as_observed > found.pairs:
        said.append(
            f"If all pairs were like those so far, a decision would come after about"
            f" {counted(needed.pairs_as_observed, 'pair')}"
            + ("; without proof it can only be REJECT." if unproven else ".")
        )
    return said


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
