"""Where two arms part, on real parts: the model, the clock, or nobody. By our own agent; with OpenCode when it is asked for."""

from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, agent_ab

PROFILES = {"builtin": "scripted-solve", "opencode": "scripted-opencode"}


@pytest.fixture(params=PROFILES)
def agent(request: pytest.FixtureRequest) -> str:
    kind = str(request.param)
    return str(request.getfixturevalue(kind)) if kind == "opencode" else kind


def diff(cwd: Path, agent: str, *changes: tuple[str, str], control: str = "") -> tuple[Any, str]:
    """Play a pair of the agent's profile with `changes`, `control` in the candidate; return its divergence and its text."""
    profile = (ROOT / "profiles" / f"{PROFILES[agent]}.toml").read_text()
    for old, new in changes:
        assert old in profile
        profile = profile.replace(old, new)
    (cwd / "changed.toml").write_text(f"{profile}\n{control}\n")
    played = agent_ab(cwd, "pair", "--task", "transfer-repair", "--profile", "changed.toml", "--json", timeout_s=600)
    assert played.status == 0, played.stderr
    assert all(line["ok"] for line in played.data["pair"]["proof"])
    text = agent_ab(cwd, "diff")
    assert text.status == 0, text.stderr
    return agent_ab(cwd, "diff", "--json").data["divergence"], text.stdout


def script(agent: str) -> tuple[str, str]:
    """Return the change that has the model ask for the time and a listing."""
    name = {"builtin": "solve", "opencode": "opencode"}[agent]
    return f'script = "{name}"', 'script = "clock"'


def test_what_a_clock_did_is_the_environment_s_with_its_path(tmp_path: Path, agent: str) -> None:
    found, text = diff(tmp_path, agent, script(agent))
    raw = found["raw"]
    assert raw["kind"] == "environment"
    assert raw["path"].startswith("$.messages[") and raw["path"] in text
    assert raw["baseline"]["value"] != raw["candidate"]["value"]
    # Times are named, and passed over in the second view only.
    assert found["normalised"]["kind"] == "identical" and found["ignored"]


@pytest.mark.long
def test_with_the_clock_pinned_nothing_differs(tmp_path: Path, agent: str, pinned_clock: str) -> None:
    found, _ = diff(tmp_path, agent, script(agent), ("[agent]\n", f'[agent]\nclock = "{pinned_clock}"\n'))
    assert found["raw"]["kind"] == "identical"
    assert f"began at {pinned_clock} UTC" in agent_ab(tmp_path, "show").stdout


def test_what_a_broken_verification_did_is_the_model_s_with_exchange_and_token(tmp_path: Path, opencode: str) -> None:
    found, text = diff(tmp_path, opencode, control="synth_rates = [1.0, 1.0, 1.0]")
    raw = found["raw"]
    assert raw["kind"] == "model"
    assert isinstance(raw["exchange"], int) and isinstance(raw["token"], int)
    assert f"exchange {raw['exchange']}" in text and f"token {raw['token']}" in text


def test_a_placebo_parts_nothing(tmp_path: Path, opencode: str) -> None:
    found, _ = diff(tmp_path, opencode, control="synth_rates = [0.0, 0.0, 0.0]")
    assert found["raw"]["kind"] == "identical"


def test_another_temperature_is_declared_and_neither_the_proxy_s_nor_the_environment_s(tmp_path: Path) -> None:
    speculation = (ROOT / "profiles" / "scripted-solve.toml").read_text().partition("[baseline.")[2]
    arms = "[baseline.sampling]\ntemperature = 0.2\n[candidate.sampling]\ntemperature = 1.0\n"
    changes = (('variable = "server.speculation"', 'variable = "sampling"'), (f"[baseline.{speculation}", arms))
    found, text = diff(tmp_path, "builtin", *changes)
    assert (found["raw"]["kind"], found["raw"]["where"]) == ("declared", "nowhere")
    declared = [(seen["path"], seen["baseline"], seen["candidate"]) for seen in found["declared"]]
    assert declared == [("$.temperature", "0.2", "1.0")] and "$.temperature (0.2, 1.0)" in text
