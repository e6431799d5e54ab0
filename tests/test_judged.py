"""A stored run -> its verdict, with what A/A and control runs say of the apparatus."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.gate import judged
from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, FileDigest, Pair
from agent_ab.store.store import Store
from agent_ab.verdict.verdict import Decision, Verdict
from tests import builders, stored

FORCED = {
    name: {"server": {"speculation": {"type": "draft-mtp", "synth_rates": [rate] * 3}}}
    for name, rate in (("placebo", 0.0), ("known-bad", 1.0))
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = stored.database(tmp_path)
    yield found
    found.close()


POLICY = Policy(margin=0.4, solved_margin=0.4)
"""With so wide a margin, few pairs are enough."""
BLOCKS = 3


def suite(store: Store, run: str = "20260103-000000") -> None:
    pairs = [stored.pair(run, n) for n in range(4 * BLOCKS)]
    stored.save(store, run, pairs, plan=stored.plan(seeds=BLOCKS), blocks=BLOCKS, policy=POLICY)


def same(run: str, number: int, candidate: int = 10) -> Pair:
    """Return an A/A pair: one setting; every second time the candidate is the slower one."""
    pair = stored.pair(run, number, 10, candidate)
    assert pair.candidate.agent
    slower = replace(pair.candidate.agent, duration_s=11.0 if number % 2 else 9.0)
    return replace(pair, candidate=replace(pair.candidate, settings=pair.baseline.settings, agent=slower))


def aa(store: Store, candidate: int = 10, run: str = "20260101-000000") -> None:
    pairs = [same(run, n, candidate) for n in range(4 * BLOCKS)]
    stored.save(store, run, pairs, kind="aa", plan=stored.plan(seeds=BLOCKS, candidate={}), blocks=BLOCKS)


def control(store: Store, name: str, candidate: int, run: str) -> None:
    pairs = [stored.pair(run, n, 10, candidate) for n in range(8)]
    stored.save(store, run, pairs, kind="controls", plan=stored.plan(candidate=FORCED[name]))


def states(verdict: Verdict) -> dict[str, bool | None]:
    return {state.name: state.ok for state in verdict.controls}


def test_a_run_without_aa_and_controls_is_judged_and_warned_of(store: Store) -> None:
    suite(store)
    verdict = judged.verdict_of(store)
    assert verdict.decision is Decision.ADOPT
    assert states(verdict) == {"A/A": None, "placebo": None, "known-bad": None}
    assert "`agent-ab aa` plays one" in " ".join(verdict.warnings)
    assert "`agent-ab controls` does" in " ".join(verdict.warnings)


def test_an_apparatus_that_passed_its_own_tests_is_told(store: Store) -> None:
    aa(store)
    control(store, "placebo", 10, "20260101-000001")
    control(store, "known-bad", 1, "20260101-000002")
    suite(store)
    verdict = judged.verdict_of(store)
    assert (verdict.decision, states(verdict)) == (
        Decision.ADOPT,
        {"A/A": True, "placebo": True, "known-bad": True},
    )


def test_an_aa_run_that_is_decided_as_a_difference_makes_the_gate_refuse(store: Store) -> None:
    aa(store, candidate=1)
    suite(store)
    verdict = judged.verdict_of(store)
    assert verdict.decision is Decision.INVALID
    assert "the same setting twice comes out as a difference in checks passed" in verdict.reasons[0]
    assert states(verdict)["A/A"] is False


def test_a_known_bad_that_is_not_rejected_makes_the_run_invalid(store: Store) -> None:
    control(store, "known-bad", 10, "20260101-000002")
    suite(store)
    verdict = judged.verdict_of(store)
    assert verdict.decision is Decision.INVALID
    assert "was not rejected: the apparatus cannot see harm" in verdict.reasons[0]


def test_a_placebo_that_is_rejected_makes_the_run_invalid(store: Store) -> None:
    control(store, "placebo", 1, "20260101-000002")
    suite(store)
    verdict = judged.verdict_of(store)
    assert verdict.decision is Decision.INVALID
    assert verdict.reasons[0].startswith("placebo (run 20260101-000002): was rejected.")


def test_a_control_that_is_not_finished_says_nothing_yet(store: Store) -> None:
    control(store, "known-bad", 10, "20260101-000002")
    store.end_run("20260101-000002", "stopped")
    suite(store)
    assert states(judged.verdict_of(store))["known-bad"] is None
    stored.save(store, "20260101-000003", [], kind="controls", plan=stored.plan(candidate=FORCED["placebo"]))
    assert states(judged.verdict_of(store))["placebo"] is None


def test_too_few_pairs_of_a_control_say_nothing_of_the_apparatus(store: Store) -> None:
    pairs = [stored.pair("20260101-000002", n, 10, 1) for n in range(4)]
    plan = stored.plan(seeds=1, candidate=FORCED["known-bad"])
    stored.save(store, "20260101-000002", pairs, kind="controls", plan=plan)
    suite(store)
    verdict = judged.verdict_of(store)
    assert (verdict.decision, states(verdict)["known-bad"]) == (Decision.ADOPT, None)
    assert "known-bad: not decided: 4 pairs cannot reject anything" in " ".join(verdict.warnings)


def test_controls_that_the_binary_lacks_are_warned_of(store: Store) -> None:
    plan = {**stored.plan(), judged.UNAVAILABLE: "this llama-server has no --spec-synth-rates"}
    stored.save(store, "20260101-000002", [], kind="controls", plan=plan, blocks=0)
    suite(store)
    verdict = judged.verdict_of(store)
    assert verdict.decision is Decision.ADOPT
    assert "controls: controls not available: this llama-server has no --spec-synth-rates" in verdict.warnings


def test_the_newest_aa_run_of_the_same_plan_speaks_and_one_of_another_plan_does_not(store: Store) -> None:
    aa(store, candidate=1, run="20260101-000000")
    aa(store, run="20260102-000000")
    suite(store)
    assert states(judged.verdict_of(store))["A/A"] is True
    other = stored.plan(seeds=3, candidate={}, server={"context": 4096})
    run = "20260102-000001"
    stored.save(store, run, [same(run, n, 1) for n in range(12)], kind="aa", plan=other, blocks=3)
    assert states(judged.verdict_of(store))["A/A"] is True


def test_a_check_that_disagreed_with_itself_in_the_aa_run_is_quarantined(store: Store) -> None:
    run = "20260101-000000"
    pairs = [same(run, n) for n in range(12)]
    flipped = replace(
        pairs[0].candidate, checks=builders.checks(9), evidence=(FileDigest("snapshot.tar", "5" * 64, 1),)
    )
    pairs[0] = replace(pairs[0], baseline=replace(pairs[0].baseline, evidence=flipped.evidence), candidate=flipped)
    stored.save(store, run, pairs, kind="aa", plan=stored.plan(seeds=3, candidate={}), blocks=3)
    suite(store)
    verdict = judged.verdict_of(store)
    assert verdict.quarantined == (("build-planner", "check-9"),)
    assert verdict.correctness and verdict.correctness.checks == 12 * 10 - 3
    lenient = judged.verdict_of(store, None, Policy(quarantine_after=2))
    assert lenient.quarantined == ()


def test_the_runs_own_policy_judges_unless_another_one_is_named(store: Store) -> None:
    own = Policy(margin=0.4)
    stored.save(store, "r", [stored.pair("r", n) for n in range(16)], plan=stored.plan(seeds=4), blocks=4, policy=own)
    assert judged.verdict_of(store).policy["margin"] == 0.4
    named = judged.verdict_of(store, "r", Policy())
    assert (named.policy["margin"], named.decision) == (0.1, Decision.INCONCLUSIVE)
    assert "margin 0.4 -> 0.1" in named.warnings[0]


def test_the_newest_comparison_is_judged_and_controls_only_by_name(store: Store) -> None:
    suite(store)
    control(store, "known-bad", 1, "20260109-000000")
    assert judged.verdict_of(store).run == "20260103-000000"
    named = judged.verdict_of(store, "20260109-000000")
    assert (named.decision, named.controls) == (Decision.REJECT, ())


def test_a_run_that_is_not_there_is_the_users_mistake(store: Store) -> None:
    with pytest.raises(UserError, match="holds no run to judge"):
        judged.verdict_of(store)
    with pytest.raises(UserError, match="no run 'x'"):
        judged.verdict_of(store, "x")


def test_the_order_in_which_pairs_were_stored_does_not_change_the_verdict(tmp_path: Path) -> None:
    verdicts = []
    for name, step in (("a", 1), ("b", -1)):
        (tmp_path / name).mkdir()
        store = stored.database(tmp_path / name)
        pairs = [stored.pair("r", n, 10, 10 - n % 4) for n in range(8)]
        stored.save(store, "r", pairs[::step])
        verdicts.append(judged.verdict_of(store))
        store.close()
    assert verdicts[0] == verdicts[1]


def test_both_arms_of_one_setting_are_no_comparison(store: Store) -> None:
    pair = stored.pair("r", 0)
    stored.save(store, "r", [replace(pair, candidate=replace(pair.candidate, settings=pair.baseline.settings))])
    verdict = judged.verdict_of(store)
    assert verdict.decision is Decision.INVALID
    assert "both arms had the same setting" in verdict.reasons[0]
    assert Arm.CANDIDATE.value not in verdict.reasons[0].split(":")[0]
