"""Several candidates against one baseline: their order of play, and how they share the risk of a wrong word."""

from collections import Counter
from pathlib import Path

import pytest

from agent_ab.config import Profile, load_profile
from agent_ab.errors import UserError
from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, ServerLife
from agent_ab.schedule import PlannedPair
from agent_ab.suite import blocks
from agent_ab.suite.plan import Asked
from agent_ab.suite.suite import Show
from tests.command import ROOT
from tests.conftest import ignore

THREE = load_profile("scripted-three-arms", ROOT / "profiles")


def planned(block: int, first: Arm) -> PlannedPair:
    return PlannedPair("t", 1, 0, first, block)


def test_the_baseline_is_first_or_last_as_the_seed_says_and_candidates_rotate() -> None:
    arms = ["a", "b", "c"]
    assert blocks.order(arms, planned(0, Arm.BASELINE)) == ("", "a", "b", "c")
    assert blocks.order(arms, planned(0, Arm.CANDIDATE)) == ("c", "b", "a", "")
    assert blocks.order(arms, planned(1, Arm.BASELINE)) == ("", "b", "c", "a")
    places = Counter(
        (name, blocks.order(arms, planned(n, Arm.BASELINE)).index(name)) for n in range(3) for name in arms
    )
    assert set(places.values()) == {1}


def test_alpha_is_shared_out_and_nothing_else_of_the_policy_changes() -> None:
    policy = Policy()
    shared = blocks.shared(policy, 4)
    assert shared.alpha == policy.alpha / 4
    assert shared.model_copy(update={"alpha": policy.alpha}) == policy


def refusal(profile: Profile, tmp_path: Path) -> str:
    def ask(*_: object) -> Asked:
        raise AssertionError("nothing is planned")

    with pytest.raises(UserError) as caught:
        blocks.play(profile, ask, (tmp_path, tmp_path), None, Show(ignore))  # type: ignore[arg-type]
    return str(caught.value)


def test_one_candidate_is_a_pair_and_a_long_lived_server_is_refused(tmp_path: Path) -> None:
    assert "at least two" in refusal(load_profile("cpu-demo", ROOT / "profiles"), tmp_path)
    assert "server_life" in refusal(THREE.model_copy(update={"server_life": ServerLife.PER_TASK}), tmp_path)


def test_a_profile_of_several_candidates_is_refused_as_a_pair() -> None:
    with pytest.raises(UserError, match=r"2 candidates \(mtp, accepts-all\); `agent-ab blocks` plays them"):
        THREE.arm(Arm.CANDIDATE)
    only = THREE.only("mtp")
    assert only.arm(Arm.CANDIDATE).server.speculation.n_max == 3
    assert only.name == "scripted-three-arms.mtp"
