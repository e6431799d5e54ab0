"""A run's figures: only what counts is counted, and nothing unknown is a zero."""

from dataclasses import replace

from agent_ab.divergence.parting import Kind
from agent_ab.model import AgentEnd, AgentRun, Arm, Outcome, PairOutcome
from agent_ab.pair.pair import judge
from agent_ab.report.summary import bin_edge, bin_of, counts, summarise, timed_out
from tests.builders import attempt, pair
from tests.page.runs import TASKS, played


def test_flips_are_gathered_by_check_over_the_pairs_of_their_task() -> None:
    found = summarise([played(0, candidate=8), played(4, candidate=9), played(8), played(1)])
    assert [(f.task, f.check_id, len(f.broken), f.pairs) for f in found.flips] == [
        (TASKS[0], "check-9", 2, 3),
        (TASKS[0], "check-8", 1, 3),
    ]
    assert (found.broken, found.fixed) == (3, 0)
    assert found.flips[0].rule == "It works."


def test_a_check_can_break_in_one_pair_and_be_fixed_in_another() -> None:
    found = summarise([played(0, candidate=9), played(4, baseline=9)])
    assert [(len(f.broken), len(f.fixed)) for f in found.flips] == [(1, 1)]


def test_an_arms_price_is_summed_over_its_attempts() -> None:
    found = summarise([played(0, candidate=1), played(1)])
    b, c = found.arms
    assert (b.attempts, b.solved, b.passed, b.scored) == (2, 2, 20, 20)
    assert (c.solved, c.passed, c.mean_wall_s) == (1, 11, 80.0)
    assert (b.tokens_per_s, c.tokens_per_s) == (200.0, 200.0)
    assert (b.acceptance, c.acceptance) == (None, 0.7)
    assert c.finish_reasons == {"stop": 4} and c.ends == {"completed": 2}
    assert found.kinds[Kind.IDENTICAL] == 2


def test_void_pairs_and_pairs_played_again_are_no_observations() -> None:
    broken = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died")
    unplayed = attempt(Arm.BASELINE, outcome=Outcome.INVALID, invalid_reason="not played: the other arm's is invalid")
    void = replace(judge(pair(unplayed, broken)), id="void")
    unproven = replace(judge(pair(candidate=attempt(Arm.CANDIDATE, manifest_sha256="other"))), id="drift")
    again = played(0, again=True)
    found = summarise([played(0), void, unproven, again])
    assert found.pairs == 1 and not counts(again)
    assert (found.voids[0].arm, found.voids[0].reason) == (Arm.CANDIDATE, "server: died")
    assert found.voids[1].arm is None and found.voids[1].reason.startswith("same start")
    assert found.outcomes == {PairOutcome.BOTH_PASS: 1, PairOutcome.VOID: 2}


def test_speed_and_acceptance_are_binned_by_context_length() -> None:
    found = summarise([played(0)])
    assert [(b.arm, b.exchanges, b.tokens_per_s, b.acceptance) for b in found.lengths] == [
        (Arm.BASELINE, 1, 200.0, None),
        (Arm.BASELINE, 1, 200.0, None),
        (Arm.CANDIDATE, 1, 200.0, 0.7),
        (Arm.CANDIDATE, 1, 200.0, 0.7),
    ]
    assert all(b.low <= tokens < b.high for b, tokens in zip(found.lengths, (700, 3000) * 2, strict=True))
    assert bin_edge(bin_of(1024)) == 1024 and bin_of(1) == 0 and bin_of(0) == 0


def test_without_logs_the_arms_say_that_nothing_is_known() -> None:
    made = replace(played(0), baseline=attempt(Arm.BASELINE, log=None, patch=None))
    arm = summarise([made]).arms[0]
    assert (arm.logged, arm.patched, arm.tokens_per_s, arm.acceptance) == (0, 0, None, None)
    assert summarise([]).arms[0].mean_wall_s is None


def test_an_attempt_cut_at_its_limit_is_known_as_such() -> None:
    assert timed_out(attempt(Arm.BASELINE, agent=AgentRun(AgentEnd.TIMEOUT, None, 480.1, 480.0)))
    assert not timed_out(attempt(Arm.BASELINE, agent=None))
