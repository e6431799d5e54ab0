"""The plan is stored first; the same plan goes on, a changed one is refused with the difference."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.config import Profile, SeedOrder
from agent_ab.errors import UserError
from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, RunStatus, SeedMode
from agent_ab.paths import RunPaths
from agent_ab.schedule import digest
from agent_ab.store.store import Store
from agent_ab.suite.plan import FORMAT, Asked, Suite, asked_of, begin_or_resume

PROFILE = Profile(
    name="p",
    variable="server.speculation",
    candidate={"server": {"speculation": {"type": "draft-mtp"}}},
)
ASKED = Asked(PROFILE, ("a", "b"), (SeedOrder(seed=1, first=Arm.BASELINE),), 2, Policy())


def suite(asked: Asked = ASKED, **found: object) -> Suite:
    plan = {
        "format": FORMAT,
        "kind": asked.kind.value,
        "profile": asked.profile.model_dump(mode="json", exclude={"description"}),
        "grid": {
            "tasks": list(asked.tasks),
            "seeds": [order.model_dump(mode="json") for order in asked.seeds],
            "repeats": asked.repeats,
        },
        "policy_sha256": asked.policy.sha256(),
        "tasks": {"a": "1", "b": "2"},
        **found,
    }
    return Suite(asked, {}, plan)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "runs.db")
    yield made
    made.close()


def begun(made: Suite, store: Store, root: Path, *, new: bool = False) -> RunPaths:
    return begin_or_resume(made, store, root / "runs", new=new)


def test_the_plan_and_its_policy_are_in_the_database_and_beside_the_evidence(store: Store, tmp_path: Path) -> None:
    paths = begun(suite(), store, tmp_path)
    record = store.run(paths.root.name)
    assert record.plan == json.loads(paths.plan.read_text()) == suite().plan
    assert (record.plan_sha256, record.policy_sha256) == (digest(suite().plan), ASKED.policy.sha256())
    assert (record.kind, record.blocks, record.status) == ("suite", 1, "running")


def test_what_was_asked_is_known_from_the_stored_plan(store: Store, tmp_path: Path) -> None:
    record = store.run(begun(suite(), store, tmp_path).root.name)
    again = asked_of(record)
    assert replace(again, profile=ASKED.profile) == ASKED
    assert [again.profile.arm(arm) for arm in Arm] == [PROFILE.arm(arm) for arm in Arm]


def test_the_same_plan_is_the_same_run_finished_or_not(store: Store, tmp_path: Path) -> None:
    first = begun(suite(), store, tmp_path)
    assert begun(suite(), store, tmp_path) == first
    store.end_run(first.root.name, RunStatus.FINISHED)
    assert begun(suite(), store, tmp_path) == first


def test_a_new_run_is_begun_when_it_is_asked_for(store: Store, tmp_path: Path) -> None:
    first = begun(suite(), store, tmp_path)
    second = begun(suite(), store, tmp_path, new=True)
    assert second != first and len(store.runs()) == 2


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (suite(replace(ASKED, repeats=3)), "grid.repeats: 2 -> 3"),
        (suite(tasks={"a": "1", "b": "changed"}), 'tasks.b: "2" -> "changed"'),
        (suite(replace(ASKED, policy=Policy(margin=0.2))), "policy_sha256"),
        (
            suite(replace(ASKED, profile=PROFILE.model_copy(update={"seed_mode": SeedMode.PER_TURN}))),
            "profile.seed_mode",
        ),
    ],
)
def test_a_changed_plan_is_refused_with_the_difference_while_its_run_is_unfinished(
    store: Store, tmp_path: Path, other: Suite, said: str
) -> None:
    first = begun(suite(), store, tmp_path)
    with pytest.raises(UserError) as refused:
        begun(other, store, tmp_path)
    assert said in str(refused.value) and first.root.name in str(refused.value) and "--new" in str(refused.value)
    assert len(store.runs()) == 1


def test_many_differences_are_cut_short(store: Store, tmp_path: Path) -> None:
    begun(suite(), store, tmp_path)
    with pytest.raises(UserError, match="and 4 more"):
        begun(suite(more={str(number): number for number in range(9)}), store, tmp_path)


def test_after_a_finished_run_a_changed_plan_is_a_new_run(store: Store, tmp_path: Path) -> None:
    first = begun(suite(), store, tmp_path)
    store.end_run(first.root.name, RunStatus.FINISHED)
    assert begun(suite(replace(ASKED, repeats=3)), store, tmp_path) != first


def test_an_unfinished_run_is_gone_on_with_although_another_was_played_meanwhile(store: Store, tmp_path: Path) -> None:
    first = begun(suite(), store, tmp_path)
    other = begun(suite(replace(ASKED, repeats=3)), store, tmp_path, new=True)
    store.end_run(other.root.name, RunStatus.FINISHED)
    assert begun(suite(), store, tmp_path) == first


def test_a_description_is_no_part_of_the_plan() -> None:
    described = replace(ASKED, profile=PROFILE.model_copy(update={"description": "better words"}))
    assert suite(described).plan == suite().plan


def test_evidence_that_is_not_there_is_named(store: Store, tmp_path: Path) -> None:
    begun(suite(), store, tmp_path)
    with pytest.raises(UserError, match="--runs-dir"):
        begin_or_resume(suite(), store, tmp_path / "elsewhere")


def test_a_run_that_is_no_suite_cannot_be_gone_on_with(store: Store) -> None:
    store.save_run("r1", "p", "0.1.0", {"pairs": []})
    with pytest.raises(UserError, match="no suite"):
        asked_of(store.run("r1"))
