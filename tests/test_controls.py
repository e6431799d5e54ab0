"""The profiles that test the apparatus."""

from pathlib import Path

import pytest

from agent_ab.config import Profile, differing, load_profile, undeclared
from agent_ab.gate import controls
from agent_ab.gate.observed import forced_rates, subject
from agent_ab.model import Arm

PROFILES = Path(__file__).parent.parent / "profiles"


@pytest.fixture
def profile() -> Profile:
    return load_profile("cpu-demo", PROFILES)


def plan(profile: Profile) -> dict[str, object]:
    return {"profile": profile.model_dump(mode="json")}


def test_the_baseline_against_itself_differs_in_nothing(profile: Profile) -> None:
    itself = controls.against_itself(profile)
    assert differing(itself.arm(Arm.BASELINE), itself.arm(Arm.CANDIDATE)) == ()
    assert itself.arm(Arm.BASELINE) == profile.arm(Arm.BASELINE)
    assert subject(plan(itself)) == subject(plan(profile))


@pytest.mark.parametrize(("name", "rate"), [("placebo", 0.0), ("known-bad", 1.0)])
def test_a_control_forces_what_is_accepted_and_changes_nothing_else(profile: Profile, name: str, rate: float) -> None:
    control = controls.control(profile, name)
    speculation = control.arm(Arm.CANDIDATE).server.speculation
    assert speculation.synth_rates == (rate,) * (speculation.n_max or 0)
    assert speculation.type == profile.arm(Arm.CANDIDATE).server.speculation.type
    assert undeclared(control) == ()
    assert control.arm(Arm.BASELINE) == profile.arm(Arm.BASELINE)
    assert subject(plan(control)) == subject(plan(profile))
    assert forced_rates(plan(control)) == speculation.synth_rates


def test_a_candidate_that_does_not_say_how_much_it_drafts_gets_three(profile: Profile) -> None:
    bare = profile.model_copy(update={"candidate": {"server": {"speculation": {"type": "draft-mtp"}}}})
    assert controls.control(bare, "known-bad").arm(Arm.CANDIDATE).server.speculation.synth_rates == (1.0, 1.0, 1.0)


def test_the_baselines_own_overrides_are_in_both_arms_of_a_control(profile: Profile) -> None:
    own = profile.model_copy(update={"baseline": {"server": {"context": 4096}, "agent": {"max_turns": 3}}})
    control = controls.control(own, "placebo")
    assert undeclared(control) == ()
    assert control.arm(Arm.CANDIDATE).server.context == 4096


def test_there_are_no_controls_without_the_flag_or_without_a_drafting_model(profile: Profile) -> None:
    assert controls.unavailable(profile, {"--spec-synth-rates"}) == ""
    assert controls.unavailable(profile, ()) == "this llama-server has no --spec-synth-rates"
    ngram = profile.model_copy(update={"candidate": {"server": {"speculation": {"type": "ngram-mod"}}}})
    assert "drafts with no model (ngram-mod)" in controls.unavailable(ngram, {"--spec-synth-rates"})
