"""The plan of a suite: blocks, tries, what is left, and how long it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_ab.config import SeedOrder, Seeds
from agent_ab.model import Arm, PairOutcome
from agent_ab.schedule import (
    Grid,
    PlannedPair,
    Tried,
    block_seed,
    changes,
    digest,
    estimate_s,
    next_try,
    plan_pair,
    standing,
    unplayed,
)

ORDERS = (SeedOrder(seed=1, first=Arm.BASELINE), SeedOrder(seed=2, first=Arm.CANDIDATE))
SEEDS = Seeds(seeds=ORDERS)
GRID = Grid(("a", "b"), ORDERS, repeats=2, plan_sha256="f" * 64)
OUTCOMES = st.sampled_from(list(PairOutcome))


def tried(planned: PlannedPair, outcome: PairOutcome = PairOutcome.BOTH_PASS) -> Tried:
    return Tried(planned.place, planned.attempted, outcome)


def test_the_arms_are_played_in_the_order_that_the_seed_names() -> None:
    assert plan_pair("t", 1, SEEDS).order == (Arm.BASELINE, Arm.CANDIDATE)
    assert plan_pair("t", 2, SEEDS).order == (Arm.CANDIDATE, Arm.BASELINE)


def test_a_pair_is_identified_by_task_seed_repeat_and_try() -> None:
    assert plan_pair("t", 2, SEEDS, repeat=3).id == "t-2-3"
    assert PlannedPair("t", 2, 3, Arm.BASELINE, attempted=2).id == "t-2-3.2"
    assert PlannedPair("t", 2, 3, Arm.BASELINE, again=True).id == "t-2-3-again"


def test_a_block_is_one_seed_over_all_tasks_with_all_repeats() -> None:
    assert [p.id for p in GRID.block(1)] == ["a-2-0", "a-2-1", "b-2-0", "b-2-1"]
    assert {(p.block, p.first_arm) for p in GRID.block(1)} == {(1, Arm.CANDIDATE)}
    assert len(GRID.block(0)) == GRID.block_size == 4


def test_blocks_past_the_plan_have_seeds_that_the_plan_settles_and_orders_that_alternate() -> None:
    more = [GRID.seed(block) for block in range(2, 6)]
    assert [order.first for order in more] == [Arm.BASELINE, Arm.CANDIDATE, Arm.BASELINE, Arm.CANDIDATE]
    assert [order.seed for order in more] == [block_seed("f" * 64, block) for block in range(2, 6)]
    assert len({order.seed for order in more} | {1, 2}) == 6


@given(st.text(), st.integers(0, 10_000))
def test_the_seed_of_a_block_is_a_seed(plan: str, block: int) -> None:
    assert SeedOrder(seed=block_seed(plan, block), first=Arm.BASELINE).seed == block_seed(plan, block)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


def test_a_void_pair_is_played_again_up_to_the_stated_number_of_times() -> None:
    planned = GRID.block(0)[0]
    assert next_try(planned, [], retries=2) == planned
    ids = []
    voids: list[Tried] = []
    while (due := next_try(planned, voids, retries=2)) is not None:
        ids.append(due.id)
        voids.append(tried(due, PairOutcome.VOID))
    assert ids == ["a-1-0", "a-1-0.2", "a-1-0.3"]


def test_a_valid_pair_is_not_played_again() -> None:
    planned = GRID.block(0)[0]
    assert next_try(planned, [tried(planned, PairOutcome.VOID), tried(planned)], retries=5) is None


@given(st.lists(st.tuples(st.integers(0, 7), OUTCOMES), max_size=40), st.integers(0, 3))
def test_what_is_left_is_exactly_what_has_no_valid_try_and_tries_to_spare(
    history: list[tuple[int, PairOutcome]], retries: int
) -> None:
    pairs = [*GRID.block(0), *GRID.block(1)]
    done: list[Tried] = []
    for index, outcome in history:
        due = next_try(pairs[index], done, retries)
        if due is not None:
            done.append(tried(due, outcome))
    left = {p.place for p in unplayed(GRID, 2, done, retries)}
    for planned in pairs:
        mine = [t for t in done if t.place == planned.place]
        finished = len(mine) > retries or any(t.outcome is not PairOutcome.VOID for t in mine)
        assert (planned.place in left) is not finished
        assert len(mine) <= retries + 1
    now = standing(GRID, 2, done, retries, {})
    assert sum(now.outcomes.values()) == now.done
    assert now.void_tries == sum(t.outcome is PairOutcome.VOID for t in done)


def test_a_run_goes_on_with_the_first_block_that_is_not_done() -> None:
    first, *rest = GRID.block(0)
    now = standing(GRID, 2, [tried(p) for p in rest], 2, {"a": [10.0, 20.0], "b": [30.0]})
    assert (now.blocks_done, now.done, now.left[0]) == (0, 3, first)
    assert (now.left_s, now.next_block_s) == (15.0 + 2 * 15 + 2 * 30, 15.0)


def test_the_repeated_first_pair_of_a_life_is_no_pair_of_the_plan() -> None:
    again = PlannedPair("a", 1, 0, Arm.BASELINE, again=True)
    now = standing(GRID, 1, [tried(again)], 2, {})
    assert (now.done, now.outcomes) == (0, {})


def test_a_task_that_was_not_measured_is_taken_for_an_average_one() -> None:
    assert estimate_s(["a", "new"], {"a": [10.0], "b": [30.0]}) == 10.0 + 20.0


def test_nothing_is_estimated_from_nothing() -> None:
    assert estimate_s(["a"], {}) is None
    assert standing(GRID, 1, [], 0, {}).left_s is None


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"grid": {"repeats": 2, "tasks": ["a"]}}, ("grid.repeats: 1 -> 2",)),
        ({"grid": {"repeats": 1, "tasks": ["a"]}, "new": 5}, ("new: nothing -> 5",)),
        ({"grid": {"repeats": 1, "tasks": ["a"]}}, ()),
    ],
)
def test_the_difference_of_two_plans_is_told_leaf_by_leaf(now: object, said: tuple[str, ...]) -> None:
    assert changes({"grid": {"repeats": 1, "tasks": ["a"]}}, now) == said
