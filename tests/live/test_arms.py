"""Arms that differ in something else than speculation, more than two of them, and one setting swept, on real parts."""

from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, agent_ab, here
from tests.fakes import wrap
from tests.small_suite import SCRIPT, SmallSuite, small_suite

THINKING = SCRIPT.replace("[[turns]]\nsay =", "[[turns]]\nthink = 120\nsay =")
"""Every reply takes more than a hundred tokens to get anywhere."""
ARMS = (ROOT / "profiles" / "scripted-solve.toml").read_text()
ARMS = ARMS[ARMS.index("[baseline.") :]


def given(folder: Path, script: str, changes: dict[str, str]) -> SmallSuite:
    suite = small_suite(folder, 1, {'script = "solve"': 'script = "own"', **changes})
    (folder / "tasks" / "tiny" / "scripts" / "own.toml").write_text(script)
    return suite


def words(suite: SmallSuite, *more: object) -> list[object]:
    return ["--profile", suite.profile, "--tasks-dir", suite.folder / "tasks", "--json", *more]


def line(pair: Any, name: str) -> Any:
    return next(found for found in pair["proof"] if found["name"] == name)


@pytest.mark.long
def test_a_response_budget_can_be_what_the_arms_differ_in(tmp_path: Path) -> None:
    arms = "[baseline.agent]\nresponse_budget = 64\n[candidate.agent]\nresponse_budget = 512\n"
    changes = {'variable = "server.speculation"': 'variable = "agent.response_budget"', ARMS: arms}
    suite = given(tmp_path, THINKING, changes)
    done = agent_ab(tmp_path, "pair", "--task", "tiny", *words(suite))
    assert done.status == 0, done.stderr
    pair = done.data["pair"]
    assert pair["outcome"] == "FIXED"
    assert "without max_tokens (64, 512), the variable itself" in line(pair, "same first request")["detail"]
    assert "agent.response_budget = 512 instead of 64" in line(pair, "one variable")["detail"]
    assert done.data["metrics"]["baseline"]["budget_stops"] == 2
    assert done.data["metrics"]["candidate"]["budget_stops"] == 0


def test_several_candidates_share_one_baseline_attempt_and_each_is_a_run(tmp_path: Path) -> None:
    arms = "".join(
        f'[candidates.{name}.server.speculation]\ntype = "draft-mtp"\nn_max = 3\n{extra}'
        for name, extra in (("mtp", ""), ("bad", "synth_rates = [1.0, 1.0, 1.0]\n"))
    )
    suite = given(tmp_path, SCRIPT, {ARMS: arms})
    done = agent_ab(tmp_path, "blocks", "--seeds", "4242", *words(suite))
    assert done.status == 0, done.stderr
    good, bad = done.data["candidates"]
    lines = [line.split() for line in done.stderr.splitlines()]
    assert [line[0] for line in lines if "tiny-4242-0" in line] == ["mtp", "bad"]
    assert [line[0] for line in lines if "run" in line] == ["mtp:", "bad:"]
    assert not [line for line in lines if line and line[0] == "candidate"]
    assert [c["decision"] for c in (good, bad)] == ["INCONCLUSIVE", "INCONCLUSIVE"] and bad["harm"] > good["harm"]
    shown = [here(tmp_path, "show", f"{c['run']}/tiny-4242-0", "--json").data["pair"] for c in (good, bad)]
    assert [pair["outcome"] for pair in shown] == ["BOTH_PASS", "BROKEN"]
    assert shown[0]["baseline"]["started_at"] == shown[1]["baseline"]["started_at"]
    assert shown[0]["baseline"]["evidence"] == shown[1]["baseline"]["evidence"]
    logs = [tmp_path / "runs" / c["run"] / "tiny-4242-0" / "baseline" / "exchanges.jsonl" for c in (good, bad)]
    assert logs[0].read_bytes() == logs[1].read_bytes()
    again = here(tmp_path, "blocks", "--seeds", "4242", *words(suite))
    assert [c["run"] for c in again.data["candidates"]] == [good["run"], bad["run"]]
    assert len(here(tmp_path, "pairs", "--json").data) == 2


def test_a_sweep_whose_pairs_stay_void_says_so_and_is_no_success(tmp_path: Path) -> None:
    suite = given(tmp_path, SCRIPT, {"n_min = 0\np_min = 0.0\n": ""})
    fake = {"AGENT_AB_LLAMA_SERVER": str(wrap.llama_server(tmp_path / "bin", "dies-loading"))}
    done = agent_ab(tmp_path, "sweep", "response_budget=64,512", "--seeds", "4242", *words(suite), env=fake)
    assert done.status == 4, done.stderr
    assert [value["pairs"] for value in done.data["values"]] == [0, 0]
    assert "At 64 1 pair stayed VOID, left out here." in done.data["words"]


def test_a_budget_is_swept_with_both_arms_alike(tmp_path: Path) -> None:
    suite = given(tmp_path, THINKING, {})
    done = agent_ab(tmp_path, "sweep", "response_budget=64,512", "--seeds", "4242", *words(suite))
    assert done.status == 0, done.stderr
    little, enough = done.data["values"]
    for arm in ("baseline", "candidate"):
        assert (little[arm]["length_stops"], little[arm]["edited"], little[arm]["solved"]) == (2, 0, 0)
        assert (enough[arm]["length_stops"], enough[arm]["edited"], enough[arm]["solved"]) == (0, 1, 1)
    assert done.data["words"][0].startswith("No gap at any value")
    assert "in both arms alike: 2 to 0" in done.data["words"][1]
