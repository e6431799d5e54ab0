"""The decision: which word, and the reason that comes with it."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_ab.gate.gate import Apparatus, Rules, judge, word
from agent_ab.gate.observations import Observation
from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, PairOutcome
from agent_ab.verdict.verdict import ControlState, Decision, EValues, Verdict, to_json
from tests.command import here
from tests.verdicts import TASKS, pair, pairs, run, side

POLICY = Policy()


def judged(observations: Sequence[Observation], policy: Policy = POLICY, **changes: Any) -> Verdict:
    return judge(run(observations, **changes), observations, Rules(policy, policy))


def said(verdict: Verdict) -> str:
    return " ".join((*verdict.reasons, *verdict.warnings))


def test_eight_identical_pairs_are_inconclusive_and_more_are_asked_for() -> None:
    verdict = judged(pairs(8))
    assert verdict.decision is Decision.INCONCLUSIVE
    assert verdict.needed and (verdict.needed.more, verdict.needed.pairs_anytime) == (28, 36)
    assert verdict.needed.hours == pytest.approx(28 * 600 / 3600)
    assert "Pairs still needed if in truth nothing differs: about 28 (36 in all, about 4.7 hours)" in said(verdict)


def test_thirty_six_distinct_pairs_solved_in_both_arms_are_adopted_when_the_candidate_is_faster() -> None:
    assert judged(pairs(36, ratio=0.9), planned={0: 36}).decision is Decision.INCONCLUSIVE
    one_block = [replace(o, block=0) for o in pairs(36, ratio=0.9)]
    assert judged(one_block).decision is Decision.ADOPT
    assert judged(one_block[:35]).decision is Decision.INCONCLUSIVE
    assert judged(pairs(36, ratio=0.9)).exit_status == 0


def test_pairs_solved_in_both_arms_are_never_adopted_when_the_candidate_is_slower() -> None:
    for count in (44, 120, 400):
        verdict = judged(pairs(count, ratio=1.1))
        assert verdict.decision is Decision.INCONCLUSIVE
        assert "more pairs like these do not lead to ADOPT" in said(verdict)


def test_pairs_that_fail_in_both_arms_cannot_show_harm() -> None:
    verdict = judged([replace(o, block=0) for o in pairs(43, 1, 1)])
    assert verdict.decision is Decision.INCONCLUSIVE
    assert verdict.evidence and verdict.evidence.noninferior > 20
    assert "these tasks cannot show harm" in verdict.reasons[0]
    assert "take tasks that the baseline solves more often" in said(verdict)


def test_thirty_of_eighty_tasks_that_lose_one_check_are_rejected_by_solved_tasks() -> None:
    observations = pairs(80)
    observations[:30] = [pair(n, 10, 9) for n in range(30)]
    verdict = judged(observations)
    assert (verdict.decision, verdict.exit_status) == (Decision.REJECT, 1)
    e = verdict.evidence
    assert e and e.harm_checks < 20 < e.harm_solved and e.noninferior > 20 > e.noninferior_solved
    assert e.harm == pytest.approx((e.harm_checks + e.harm_solved) / 2)
    assert verdict.reasons[0].startswith(
        "The candidate solves fewer tasks: evidence over 1,000,000 (the mean of checks"
    )
    assert "solved tasks: 30 broken, 0 fixed." in verdict.reasons[0]


def test_one_broken_pair_of_two_hundred_is_no_reason_to_reject() -> None:
    verdict = judged([pair(0, 10, 9), *pairs(200)[1:]])
    assert verdict.decision is Decision.ADOPT
    assert verdict.evidence and verdict.evidence.harm < 2


def test_a_loss_of_solved_tasks_that_is_not_excluded_keeps_from_adopting() -> None:
    observations = pairs(60)
    for n in (0, 21):
        observations[n] = pair(n, 10, 9)
    verdict = judged(observations)
    assert verdict.decision is Decision.INCONCLUSIVE
    assert verdict.evidence and verdict.evidence.noninferior > 20 > verdict.evidence.noninferior_solved
    assert "Not shown: that it loses fewer than 10 solved tasks in a hundred (between -1" in said(verdict)
    assert judged(observations, Policy(solved_margin=0.2)).decision is Decision.ADOPT


def test_six_pairs_from_ten_to_one_check_are_rejected_and_five_are_not() -> None:
    broken = [replace(o, block=0) for o in pairs(6, 10, 1)]
    assert judged(broken).decision is Decision.REJECT
    assert judged(broken).exit_status == 1
    assert judged(broken[:5]).decision is Decision.INCONCLUSIVE


@given(st.permutations(range(12)), st.integers(0, 12))
def test_only_blocks_before_which_all_are_whole_count_in_whatever_order_pairs_finish(
    order: list[int], done: int
) -> None:
    finished = [pair(n, 10, n % 11) for n in order[:done]]
    verdict = judged(finished, planned={0: 4, 1: 4, 2: 4})
    whole = 0
    while whole < 3 and all(n in order[:done] for n in range(4 * whole, 4 * whole + 4)):
        whole += 1
    assert (verdict.counts.counted, verdict.counts.unfinished) == (4 * whole, done - 4 * whole)
    prefix = [pair(n, 10, n % 11) for n in range(4 * whole)]
    assert verdict.evidence == (judged(prefix).evidence if whole else None)


def test_a_rejection_says_why_the_two_sided_sequence_may_still_hold_zero() -> None:
    just = judged([replace(o, block=0) for o in pairs(7, 10, 1)])
    assert just.correctness and just.correctness.always_valid.high and just.correctness.always_valid.high > 0
    assert (
        "still holds 0, since it gives each side 0.025 (evidence 40); REJECT asks for the side of harm alone"
        in said(just)
    )
    clear = judged([replace(o, block=0) for o in pairs(12, 10, 1)])
    assert clear.decision is Decision.REJECT
    assert "still holds 0" not in said(clear)


def test_a_tie_in_time_is_no_time_that_is_not_known() -> None:
    tied, faster, cut = pair(0, ratio=1.0), pair(1), pair(2)
    assert cut.baseline and cut.candidate
    both_cut = replace(
        cut, baseline=replace(cut.baseline, censored=True), candidate=replace(cut.candidate, censored=True)
    )
    time = judged([tied, faster, both_cut, pair(3, ratio=1.2)]).time
    assert time and (time.faster, time.slower, time.equal, time.unknown, time.pairs) == (1, 1, 1, 1, 4)


def test_the_order_of_the_rows_does_not_change_a_byte() -> None:
    observations = [pair(n, 10 - n % 3, 10 - n % 4, 0.7 + 0.1 * (n % 5)) for n in range(40)]
    expected = json.dumps(to_json(judged(observations)))
    for seed in range(3):
        shuffled = random.Random(seed).sample(observations, len(observations))
        assert json.dumps(to_json(judged(shuffled))) == expected


def spoiled(change: str) -> list[Observation]:
    observations = pairs(8)
    first = observations[0]
    assert first.candidate and first.baseline
    match change:
        case "nan":
            observations[0] = replace(first, candidate=replace(first.candidate, seconds=math.nan))
        case "negative":
            observations[0] = replace(first, candidate=replace(first.candidate, seconds=-3.0))
        case "duplicate":
            observations.append(replace(first, pair="again"))
        case "missing":
            observations[0] = replace(first, candidate=None)
        case "checks":
            observations[0] = replace(first, candidate=side(9, of=9, settings="b"))
        case "settings":
            observations[0] = replace(first, candidate=replace(first.candidate, settings="a"))
        case "impossible":
            observations[0] = replace(first, candidate=replace(first.candidate, passed=11))
        case "void":
            observations[0] = replace(first, outcome=PairOutcome.VOID, broke=Arm.CANDIDATE, candidate=None)
    return observations


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("nan", "the wall time of the candidate is nan: not a number"),
        ("negative", "the wall time of the candidate is -3.0: negative"),
        ("duplicate", "a duplicate of"),
        ("missing", "the candidate has no attempt; a pair needs both arms"),
        ("checks", "the arms were judged by different check sets: the candidate lacks check-9"),
        ("settings", "both arms had the same setting, in a run that was planned as a comparison"),
        ("impossible", "11 of 10 checks passed in the candidate, which is not possible"),
        ("void", "VOID, the candidate broke, and no later try of it is valid"),
    ],
)
def test_what_cannot_be_judged_is_invalid_with_the_reason(change: str, reason: str) -> None:
    verdict = judged(spoiled(change))
    assert verdict.decision is Decision.INVALID
    assert verdict.exit_status == 4
    assert reason in verdict.reasons[0]
    assert verdict.correctness is None


def test_many_faults_are_told_in_a_few_lines() -> None:
    verdict = judged([replace(o, candidate=None) for o in pairs(40)])
    assert len(verdict.reasons) == 6
    assert verdict.reasons[-1] == "And 35 more faults like these."


def test_a_void_try_that_was_played_again_counts_once_and_is_told_by_arm() -> None:
    observations = pairs(8)
    void = replace(observations[0], pair="first try", outcome=PairOutcome.VOID, broke=Arm.CANDIDATE, candidate=None)
    verdict = judge(run(observations), [void, *observations], Rules(POLICY, POLICY))
    assert verdict.decision is Decision.INCONCLUSIVE
    assert (verdict.counts.counted, verdict.counts.voids_candidate, verdict.counts.voids_baseline) == (8, 1, 0)
    assert "1 in which the candidate broke" in said(verdict)


def test_a_pair_that_may_still_be_played_again_only_leaves_its_block_unfinished() -> None:
    observations = pairs(8)
    observations[7] = replace(observations[7], outcome=PairOutcome.VOID, broke=Arm.BASELINE)
    verdict = judged(observations, running=True)
    assert verdict.decision is Decision.INCONCLUSIVE
    assert (verdict.counts.counted, verdict.counts.unfinished) == (4, 3)


def test_evidence_is_read_at_block_ends_only() -> None:
    observations = pairs(7, 10, 1)
    verdict = judged(observations, planned={0: 4, 1: 4})
    assert verdict.decision is Decision.INCONCLUSIVE
    assert (verdict.counts.counted, verdict.counts.unfinished) == (4, 3)
    assert "3 pairs of blocks that are not whole are not counted" in said(verdict)
    assert judged(pairs(8, 10, 1)).decision is Decision.REJECT
    nothing = judged(pairs(3), planned={0: 4})
    assert (nothing.decision, nothing.correctness) == (Decision.INCONCLUSIVE, None)
    assert "No block of the run is whole yet" in nothing.reasons[0]


def repeating(observations: Sequence[Observation]) -> list[Observation]:
    """Return pairs that hold, task by task, the same conversations."""
    same = []
    for o in observations:
        assert o.baseline and o.candidate
        left, right = (replace(s, conversation=f"{o.task} {s.settings}") for s in (o.baseline, o.candidate))
        same.append(replace(o, baseline=left, candidate=right))
    return same


def test_a_machine_that_repeats_itself_is_no_new_evidence() -> None:
    verdict = judged(repeating(pairs(120, ratio=0.5)))
    assert verdict.decision is Decision.INCONCLUSIVE
    assert (verdict.counts.counted, verdict.counts.repeated) == (4, 116)
    assert "116 pairs in which both models say, word for word, what they said" in said(verdict)
    assert judged(repeating(pairs(40, 10, 1))).decision is Decision.INCONCLUSIVE


def test_a_repeated_conversation_may_count_against_a_claim_but_never_for_it() -> None:
    worse, better = pairs(8, 10, 1), repeating(pairs(48))[4:]
    shifted = [replace(o, block=o.block + 1, seed=o.seed + 1) for o in better]
    harm = judged(worse + shifted).evidence
    alone = judged(worse).evidence
    assert harm and alone and harm.harm <= alone.harm


def test_in_a_control_a_repeated_conversation_counts_and_it_is_said() -> None:
    verdict = judged(repeating(pairs(8, 10, 1)), control=True)
    assert verdict.decision is Decision.REJECT
    assert "Repeated conversations count here" in said(verdict)


def test_unproven_pairs_are_never_adopted_and_can_be_rejected() -> None:
    adoptable = [replace(o, proven=False) for o in pairs(48)]
    verdict = judged(adoptable)
    assert verdict.decision is Decision.INCONCLUSIVE
    assert "UNPROVEN: 48 of 48 pairs" in verdict.reasons[0]
    assert judged([replace(o, proven=False) for o in pairs(8, 10, 1)]).decision is Decision.REJECT
    attached = [
        replace(o, unproven=("of the baseline's server nobody proved which program serves",)) for o in adoptable
    ]
    assert "Of the baseline's server nobody proved which program serves." in judged(attached).reasons


def test_an_unknown_wall_time_keeps_from_adopting() -> None:
    observations = pairs(48)
    left = observations[0].baseline
    assert left
    observations[0] = replace(observations[0], baseline=replace(left, seconds=None))
    verdict = judged(observations)
    assert verdict.decision is Decision.INCONCLUSIVE
    assert "The wall time of 1 of 48 pairs is not known." in verdict.reasons


def test_a_candidate_that_is_mostly_faster_and_on_the_whole_slower_is_not_adopted() -> None:
    observations = [pair(n, ratio=0.99 if n % 4 else 9.0) for n in range(120)]
    verdict = judged(observations)
    assert verdict.evidence and verdict.evidence.faster > 20
    assert verdict.decision is Decision.INCONCLUSIVE
    assert "times the baseline's wall time (geometric mean)" in verdict.reasons[0]


def a_little_worse(count: int = 800) -> list[Observation]:
    observations = pairs(count, 10, 10)
    for n in range(0, count, 2):
        observations[n] = pair(n, 9, 8, 0.5)
    return observations


def test_worse_for_sure_and_inside_the_margin_is_what_the_policy_says() -> None:
    rejecting = judged(a_little_worse())
    assert rejecting.evidence and rejecting.evidence.harm > 20 and rejecting.evidence.no_worse
    assert rejecting.decision is Decision.REJECT
    assert "the policy says reject (inside_margin)" in said(rejecting)
    adopting = judged(a_little_worse(), Policy(inside_margin="adopt"))
    assert adopting.decision is Decision.ADOPT
    assert "the policy says adopt (inside_margin)" in said(adopting)


def test_a_bound_between_minus_margin_and_zero_is_told_with_what_the_policy_accepts() -> None:
    verdict = judged(pairs(48))
    assert verdict.decision is Decision.ADOPT
    assert verdict.correctness and -0.1 < verdict.correctness.lower_always < 0
    assert "is not excluded; the policy accepts a loss below 0.1" in verdict.reasons[-1]


def test_evidence_for_both_words_rejects_and_less_than_enough_is_inconclusive() -> None:
    def e(harm: float, noninferior: float, faster: float) -> EValues:
        return EValues(harm, harm, harm, noninferior, noninferior, faster, 20.0)

    unsolved = EValues(0, 0, 0, 20, 19.9, 20, 20.0)
    assert word(unsolved, POLICY, adoptable=True) is Decision.INCONCLUSIVE

    assert word(e(20, 20, 20), POLICY, adoptable=True) is Decision.REJECT
    assert word(e(19.9, 20, 20), POLICY, adoptable=True) is Decision.ADOPT
    assert word(e(0, 20, 20), POLICY, adoptable=False) is Decision.INCONCLUSIVE
    assert word(e(0, 19.9, 20), POLICY, adoptable=True) is Decision.INCONCLUSIVE
    assert word(e(0, 20, 19.9), POLICY, adoptable=True) is Decision.INCONCLUSIVE
    assert word(e(20, 20, 20), Policy(inside_margin="adopt"), adoptable=False) is Decision.REJECT


def test_a_policy_changed_after_the_run_was_planned_is_said() -> None:
    observations = pairs(8)
    lax = Policy(margin=0.3)
    verdict = judge(run(observations), observations, Rules(lax, POLICY))
    assert "The policy was changed after the run was planned: margin 0.1 -> 0.3." in verdict.warnings
    by_hash = judge(run(observations), observations, Rules(lax, None, POLICY.sha256()))
    assert "The policy was changed after the run was planned: its hash is another one." in by_hash.warnings
    without = judge(run(observations), observations, Rules(lax))
    assert "The run was planned without a policy; this one was chosen afterwards." in without.warnings


@pytest.mark.parametrize("name", ["A/A", "known-bad", "placebo"])
def test_an_apparatus_that_failed_its_own_test_makes_the_run_invalid(name: str) -> None:
    failed = Apparatus((ControlState(name, "r1", False, "came out wrong."),))
    verdict = judge(run(pairs(48)), pairs(48), Rules(POLICY, POLICY, None, failed))
    assert verdict.decision is Decision.INVALID
    assert verdict.reasons[0] == f"{name} (run r1): came out wrong."
    unknown = Apparatus((ControlState(name, "", None, "was not played."),))
    warned = judge(run(pairs(48)), pairs(48), Rules(POLICY, POLICY, None, unknown))
    assert warned.decision is Decision.ADOPT
    assert f"{name}: was not played." in warned.warnings


def same_setting(observations: Sequence[Observation]) -> list[Observation]:
    return [replace(o, candidate=replace(o.candidate, settings="a")) for o in observations if o.candidate]


def test_an_aa_run_that_comes_out_as_a_difference_is_invalid() -> None:
    calm = judged(same_setting([pair(n, ratio=0.9 if n % 2 else 1.1) for n in range(16)]), kind="aa", control=True)
    assert calm.decision is Decision.INCONCLUSIVE
    assert "no difference was found" in calm.reasons[0]
    harmed = judged(same_setting([pair(n, 10, 1, 1.1 if n % 2 else 0.9) for n in range(12)]), kind="aa", control=True)
    assert harmed.decision is Decision.INVALID
    assert "comes out as a difference in checks passed" in harmed.reasons[0]
    timed = judged(same_setting(pairs(12, ratio=1.5)), kind="aa", control=True)
    assert timed.decision is Decision.INVALID
    assert "comes out as a difference in wall time" in timed.reasons[0]
    unequal = judged(pairs(8), kind="aa", control=True)
    assert "the arms had different settings, in a run that was planned as A/A" in unequal.reasons[0]


def test_a_check_is_called_regressed_only_when_corrected_evidence_supports_it() -> None:
    few = judged([replace(o, block=0) for o in [pair(n, 10, 9) for n in range(20)]])
    row = few.checks[0]
    # Five pairs a task, forty checks: five flips of one direction are not enough.
    assert (row.check, row.broken, row.regressed) == ("check-9", 5, False)
    many = judged([pair(n, 10, 9) for n in range(48)])
    assert all(row.broken == 12 and row.p_holm < 0.05 and row.regressed for row in many.checks)
    assert len(many.unchanged) == 36
    assert len(many.flips) == 48
    # An extended run was looked at in between: the fixed-size test does not hold, the e-value must say it.
    extended = judged([pair(n, 10, 9) for n in range(44)], extended=True)
    assert not any(row.regressed for row in extended.checks)
    grown = judged([pair(n, 10, 9) for n in range(48)], extended=True)
    assert all(row.regressed and row.e >= 800 for row in grown.checks)


def test_a_check_that_disagrees_with_itself_on_one_snapshot_counts_in_neither_arm() -> None:
    observations = pairs(8)
    first = pair(0, 10, 9)
    assert first.baseline and first.candidate
    observations[0] = replace(
        first, baseline=replace(first.baseline, snapshot="s"), candidate=replace(first.candidate, snapshot="s")
    )
    verdict = judged(observations)
    assert verdict.correctness and verdict.correctness.mean == 0
    assert verdict.correctness.checks == 79
    assert "Checks that disagreed with themselves on one snapshot are left out there" in said(verdict)
    reviewed = [replace(first, set_aside=frozenset({"check-9"})), *observations[1:]]
    assert judged(reviewed).correctness == verdict.correctness


def test_quarantined_checks_are_left_out_everywhere_unless_the_policy_says_never() -> None:
    observations = [pair(n, 10, 9) for n in range(48)]
    flaky = frozenset((task, "check-9") for task in TASKS)
    verdict = judge(run(observations), observations, Rules(POLICY, POLICY, None, Apparatus(quarantined=flaky)))
    assert verdict.correctness and (verdict.correctness.mean, verdict.correctness.checks) == (0, 48 * 9)
    assert verdict.decision is Decision.ADOPT
    assert "Quarantined" in said(verdict)
    strict = Policy(quarantine_after=0)
    kept = judge(run(observations), observations, Rules(strict, strict, None, Apparatus(quarantined=flaky)))
    assert kept.decision is Decision.REJECT
    all_of_them = frozenset((task, f"check-{i}") for task in TASKS for i in range(10))
    empty = judge(run(observations), observations, Rules(POLICY, POLICY, None, Apparatus(quarantined=all_of_them)))
    assert empty.decision is Decision.INVALID
    assert "nothing is left to judge" in empty.reasons[0]


def test_more_pairs_than_the_policy_plans_are_said() -> None:
    assert "124 pairs are more than the 120 that the policy plans at most." in judged(pairs(124)).warnings


def test_four_tasks_are_said_to_be_four_tasks() -> None:
    assert "a claim about tasks in general needs at least 6" in said(judged(pairs(8)))


def test_the_forbidden_word_is_never_said() -> None:
    for observations in (pairs(8), pairs(48), pairs(8, 10, 1), a_little_worse(400), spoiled("nan")):
        assert "significan" not in json.dumps(to_json(judged(observations))).lower()


def test_the_commands_help_names_every_exit_status(tmp_path: Path) -> None:
    done = here(tmp_path, "gate", "--help")
    assert done.status == 0
    assert "0 ADOPT, 1 REJECT, 2 your mistake, 3 INCONCLUSIVE, 4 INVALID" in " ".join(done.stdout.split())


def test_flips_of_a_pair_come_in_one_order_whatever_order_its_checks_are_stored_in() -> None:
    def turned(o: Observation) -> Observation:
        assert o.baseline and o.candidate
        return replace(
            o,
            baseline=replace(o.baseline, checks=dict(reversed(list(o.baseline.checks.items())))),
            candidate=replace(o.candidate, checks=dict(reversed(list(o.candidate.checks.items())))),
        )

    played = pairs(8, 10, 7)
    flips = judged(played).flips
    assert flips == judged([turned(o) for o in played]).flips
    assert [flip.check for flip in flips[:3]] == ["check-7", "check-8", "check-9"]
