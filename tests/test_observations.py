"""What statistics see of a pair. The faults that make a run INVALID are in test_gate.py."""

from dataclasses import replace

from agent_ab.gate.observations import conversation_digest, flaky, observe, settings_digest, who_broke, without
from agent_ab.model import AgentEnd, AgentRun, Arm, CheckCount, ExchangeLog, FileDigest, Outcome
from agent_ab.pair.pair import judge
from tests import builders
from tests.verdicts import pair


def test_a_pair_is_observed_with_both_arms_results() -> None:
    cut = AgentRun(AgentEnd.TIMEOUT, None, 480.1, 480.0)
    snapshot = FileDigest("snapshot.tar", "5" * 64, 1)
    played = judge(
        builders.pair(
            builders.attempt(Arm.BASELINE, agent=cut, evidence=(snapshot,)), builders.attempt(Arm.CANDIDATE, 1)
        )
    )
    seen = observe(played)
    assert seen.baseline and seen.candidate
    assert (seen.baseline.passed, seen.baseline.scored, seen.baseline.solved) == (10, 10, True)
    assert (seen.baseline.seconds, seen.baseline.censored) == (480.1, True)
    assert (seen.candidate.passed, seen.candidate.solved, seen.candidate.censored) == (1, False, False)
    assert seen.baseline.snapshot == "5" * 64
    assert seen.difference == -0.9
    assert seen.baseline.settings != seen.candidate.settings


def test_probes_are_not_observed() -> None:
    probed = builders.attempt(Arm.BASELINE, checks=(*builders.checks(10), builders.check("probe", scored=False)))
    seen = observe(judge(builders.pair(probed)))
    assert seen.baseline and seen.baseline.scored == 10


def test_a_void_pair_says_whose_attempt_broke_and_why() -> None:
    broken = builders.attempt(Arm.BASELINE, outcome=Outcome.INVALID, invalid_reason="server: died", evidence=())
    idle = builders.attempt(
        Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="not played: the other arm's attempt is invalid"
    )
    seen = observe(judge(builders.pair(broken, idle)))
    assert (seen.valid, seen.broke, seen.baseline) == (False, Arm.BASELINE, None)
    assert "server: died" in seen.reason
    assert who_broke([(Arm.CANDIDATE, "proxy: ended")]) is Arm.CANDIDATE
    assert who_broke([]) is None


def test_an_imported_attempt_is_observed_by_its_counts() -> None:
    counted = builders.attempt(Arm.BASELINE, checks=(), counted=CheckCount(7, 10))
    seen = observe(judge(builders.pair(counted)))
    assert seen.baseline and (seen.baseline.passed, seen.baseline.scored, seen.baseline.checks) == (7, 10, {})


def test_a_conversation_is_what_the_model_said_whatever_it_was_asked_and_when() -> None:
    call = {"id": "random", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    first = ExchangeLog((builders.exchange(0, tool_calls=(call,)), builders.exchange(1)), ())
    same = builders.exchange(
        0,
        tool_calls=({**call, "id": "other dice"},),
        agent_sha256="8" * 64,
        pinned={"seed": 7},
        server_sha256="9" * 64,
        started_s=3.0,
    )
    assert conversation_digest(ExchangeLog((same, builders.exchange(1)), ())) == conversation_digest(first)
    for change in (
        {"content": "other"},
        {"reasoning": "other"},
        {"finish_reason": "length"},
        {"status": 500},
        {"tool_calls": ({**call, "function": {"name": "bash", "arguments": "{ }"}},)},
    ):
        other = ExchangeLog((replace(same, **change), builders.exchange(1)), ())
        assert conversation_digest(other) != conversation_digest(first)


def test_no_model_call_at_all_is_a_conversation_too_and_one_that_is_not_known_is_none() -> None:
    assert conversation_digest(ExchangeLog((), ())) != ""
    assert conversation_digest(None) == ""


def test_settings_are_the_same_whatever_the_order_of_their_keys() -> None:
    assert settings_digest({"a": 1, "b": 2}) == settings_digest({"b": 2, "a": 1}) != settings_digest({"a": 1, "b": 3})
    assert settings_digest({}) == ""


def test_a_check_is_flaky_only_where_both_snapshots_are_known_to_be_the_same() -> None:
    seen = pair(0, 10, 9)
    assert seen.baseline and seen.candidate
    assert flaky(seen) == frozenset()
    other = replace(seen.candidate, snapshot="t")
    left = replace(seen.baseline, snapshot="s")
    assert flaky(replace(seen, baseline=left, candidate=other)) == frozenset()
    assert flaky(replace(seen, baseline=left, candidate=replace(other, snapshot="s"))) == {"check-9"}
    assert flaky(replace(seen, candidate=None)) == frozenset()


def test_checks_are_left_out_of_both_arms_alike() -> None:
    less = without(pair(0, 10, 9), {"check-9", "check-0"})
    assert less.baseline and less.candidate
    assert (less.baseline.passed, less.baseline.scored) == (8, 8)
    assert (less.candidate.passed, less.candidate.scored) == (8, 8)
    assert less.candidate.solved
    untouched = pair(0, 10, 9)
    assert without(untouched, ()) is untouched
    assert without(untouched, {"of another task"}) is untouched
