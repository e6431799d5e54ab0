"""The plan of a pair."""

from agent_ab.config import SeedOrder, Seeds
from agent_ab.model import Arm
from agent_ab.schedule import plan_pair

SEEDS = Seeds(seeds=(SeedOrder(seed=1, first=Arm.BASELINE), SeedOrder(seed=2, first=Arm.CANDIDATE)))


def test_the_arms_are_played_in_the_order_that_the_seed_names() -> None:
    assert plan_pair("t", 1, SEEDS).order == (Arm.BASELINE, Arm.CANDIDATE)
    assert plan_pair("t", 2, SEEDS).order == (Arm.CANDIDATE, Arm.BASELINE)


def test_a_pair_is_identified_by_task_seed_and_repeat() -> None:
    assert plan_pair("t", 2, SEEDS, repeat=3).id == "t-2-3"
