"""Database -> observations."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.gate.observations import observe
from agent_ab.gate.observed import forced_rates, observed, subject
from agent_ab.gate.policy import Policy
from agent_ab.model import AgentEnd, AgentRun, Arm, CheckCount, Outcome
from agent_ab.pair.pair import judge
from agent_ab.review import marks
from agent_ab.review.marks import Mark, MarkKind
from agent_ab.store.store import Store
from tests import stored


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = stored.database(tmp_path)
    yield found
    found.close()


def test_a_stored_pair_is_observed_as_it_was_when_it_was_played(store: Store) -> None:
    played = [stored.pair("r", n, 10, 10 - n % 3) for n in range(8)]
    stored.save(store, "r", played)
    found = observed(store, store.run("r"))
    assert sorted(found.observations, key=lambda o: o.pair) == sorted(map(observe, played), key=lambda o: o.pair)
    assert (found.run.planned, found.run.extended, found.run.control) == ({0: 4, 1: 4}, False, False)
    assert (found.run.variable, found.run.pair_s) == ("server.speculation", 24.0)


def test_a_void_try_and_an_ageing_pair_are_told_apart_from_what_counts(store: Store) -> None:
    broken = stored.attempt(Arm.CANDIDATE, 0, 10, outcome=Outcome.INVALID, invalid_reason="server: died", evidence=())
    void = judge(replace(stored.pair("r", 0), candidate=broken))
    good = stored.pair("r", 0, id="build-planner-0-0.2", attempted=2)
    again = stored.pair("r", 0, id="build-planner-0-0-again", again=True)
    stored.save(store, "r", [void, good, again])
    found = observed(store, store.run("r")).observations
    assert [(o.pair, o.valid, o.broke) for o in found] == [
        ("build-planner-0-0", False, Arm.CANDIDATE),
        ("build-planner-0-0.2", True, None),
    ]
    assert "server: died" in found[0].reason


def test_counts_times_and_cuts_come_back(store: Store) -> None:
    cut = AgentRun(AgentEnd.TIMEOUT, None, 480.0, 480.0)
    left = stored.attempt(Arm.BASELINE, 0, 10, checks=(), counted=CheckCount(7, 10), agent=cut)
    right = stored.attempt(Arm.CANDIDATE, 0, 10, checks=(), counted=CheckCount(5, 10), agent=None)
    stored.save(store, "r", [replace(stored.pair("r", 0), baseline=left, candidate=right)])
    (found,) = observed(store, store.run("r")).observations
    assert found.baseline and found.candidate
    assert (found.baseline.passed, found.baseline.seconds, found.baseline.censored) == (7, 480.0, True)
    assert (found.candidate.passed, found.candidate.scored, found.candidate.seconds) == (5, 10, None)


def test_a_check_that_a_review_measured_to_be_flaky_counts_in_no_pair_of_its_task(store: Store) -> None:
    stored.save(store, "r", [stored.pair("r", n, 10, 9) for n in range(8)])
    marks.add(store, "r", Mark("build-planner-0-0", "check-9", MarkKind.FLAKY_CHECK, "", quarantined=True))
    marks.add(store, "r", Mark("csv-ledger-0-0", "check-9", MarkKind.FLAKY_CHECK, "", quarantined=False))
    marks.add(store, "r", Mark("csv-ledger-0-0", "check-8", MarkKind.ENVIRONMENT, ""))
    found = observed(store, store.run("r")).observations
    assert {o.pair for o in found if o.set_aside} == {"build-planner-0-0", "build-planner-1-0"}
    assert all(o.set_aside == {"check-9"} for o in found if o.set_aside)


def test_added_blocks_are_planned_and_make_the_run_an_extended_one(store: Store) -> None:
    stored.save(store, "r", [], blocks=2)
    store.set_blocks("r", 3)
    run = observed(store, store.run("r")).run
    assert (run.planned, run.extended) == ({0: 4, 1: 4, 2: 4}, True)


def test_forced_acceptance_makes_a_run_a_control(store: Store) -> None:
    forced = {"server": {"speculation": {"type": "draft-mtp", "synth_rates": [1.0, 1.0]}}}
    stored.save(store, "bad", [], plan=stored.plan(candidate=forced))
    stored.save(store, "aa", [], kind="aa")
    assert observed(store, store.run("bad")).run.control
    assert observed(store, store.run("aa")).run.control
    assert forced_rates(stored.plan(candidate=forced)) == (1.0, 1.0)
    assert forced_rates(stored.plan()) is None


def test_a_plan_or_a_policy_that_was_changed_in_the_database_is_a_fault(store: Store) -> None:
    stored.save(store, "r", [])
    record = store.run("r")
    assert observed(store, record).run.faults == ()
    changed = replace(record, plan={**record.plan, "grid": {**record.plan["grid"], "repeats": 2}})
    assert "the plan stored with the run is not the one that was hashed" in observed(store, changed).run.faults[0]
    lax = replace(record, policy=Policy(margin=0.5).to_json())
    assert "the policy stored with the run is not the one" in observed(store, lax).run.faults[0]


def test_runs_speak_for_each_other_when_baseline_model_binary_and_tasks_are_the_same() -> None:
    plan = stored.plan()
    assert subject(plan) == subject(stored.plan(candidate={}, name="demo.aa", description="other words"))
    assert subject(plan) == subject(stored.plan(seeds=5))
    others = [
        stored.plan(server={"context": 4096}),
        stored.plan(baseline={"server": {"speculation": {"type": "ngram-mod"}}}),
        stored.plan(tasks=("csv-ledger",)),
        {**plan, "engines": {"baseline": "f" * 64}},
        {**plan, "models": {"baseline": {}}},
        {**plan, "tasks": dict.fromkeys(plan["tasks"], "u" * 64)},
    ]
    assert len({subject(other) for other in (plan, *others)}) == 7
