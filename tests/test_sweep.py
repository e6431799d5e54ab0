"""What is swept: one setting, found by name, at values that both arms share."""

from pathlib import Path

import pytest

from agent_ab.config import Profile, load_profile
from agent_ab.errors import UserError
from agent_ab.model import Arm
from agent_ab.suite.sweep import parse
from tests.command import ROOT

PROFILE = load_profile("scripted-thinking", ROOT / "profiles")


def refusal(text: str, profile: Profile = PROFILE) -> str:
    with pytest.raises(UserError) as caught:
        parse(text, profile)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_both_arms_get_each_value_and_the_profiles_have_names_of_their_own() -> None:
    swept = parse("response_budget=1024,4096", PROFILE)
    assert swept.setting == "agent.response_budget"
    assert [v.profile.name for v in swept.variants] == [
        "scripted-thinking.response_budget=1024",
        "scripted-thinking.response_budget=4096",
    ]
    for variant, budget in zip(swept.variants, (1024, 4096), strict=True):
        assert {variant.profile.arm(arm).agent.response_budget for arm in Arm} == {budget}
        assert variant.profile.candidate == PROFILE.candidate


def test_words_and_fractions_are_values_too() -> None:
    assert parse("reasoning_effort=low,high", PROFILE).variants[1].profile.agent.reasoning_effort == "high"
    assert parse("sampling.temperature=0.0,0.7", PROFILE).variants[1].profile.sampling.temperature == 0.7


def test_what_cannot_be_swept_is_refused_in_one_line() -> None:
    assert "at least two values" in refusal("response_budget=1024")
    assert "at least two values" in refusal("response_budget")
    assert "twice" in refusal("response_budget=1024,1024")
    assert "response_budget" in refusal("response_buget=1,2")
    assert "server.kv_type_k or server.speculation.kv_type_k" in refusal("kv_type_k=f16,q8_0")
    assert "what the arms differ in" in refusal("server.speculation.n_max=1,2")
    assert "'agent.response_budget'" in refusal("response_budget=1,2")


def test_a_setting_of_the_declared_variable_is_not_shared(tmp_path: Path) -> None:
    text = (ROOT / "profiles" / "scripted-thinking.toml").read_text()
    text = text[: text.index("[baseline.")].replace('"server.speculation"', '"agent.response_budget"')
    (tmp_path / "p.toml").write_text(text + "[candidate.agent]\nresponse_budget = 64\n")
    assert "what the arms differ in" in refusal("response_budget=1024,4096", load_profile("p", tmp_path))
