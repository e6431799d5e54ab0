"""The main job on real parts: llama-server, mitmproxy, the sandbox, and a scripted model."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, agent_ab
from tests.played import once
from tests.small_suite import small_task


def play(cwd: Path, profile: str, *words: object, seed: int = 4242, task: str = "transfer-repair") -> tuple[int, Any]:
    done = agent_ab(cwd, "pair", "--task", task, "--seed", seed, "--profile", profile, "--json", *words)
    assert done.stdout, done.stderr
    return done.status, done.data


def passed(data: Any, arm: str) -> int:
    return sum(c["scored"] and c["status"] == "pass" for c in data["pair"][arm]["checks"])


def first(data: Any, arm: str) -> Any:
    return data["pair"][arm]["log"]["exchanges"][0]


def test_a_scripted_model_solves_the_task_in_both_arms_and_the_pair_is_proven(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    played = once(tmp_path_factory, "scripted-solve")
    assert played.done.status == 0, played.done.stderr
    data = played.done.data
    assert (passed(data, "baseline"), passed(data, "candidate")) == (10, 10)
    assert data["pair"]["outcome"] == "BOTH_PASS" and data["pair"]["flips"] == []
    assert all(line["ok"] for line in data["pair"]["proof"])
    assert first(data, "baseline")["agent_sha256"] == first(data, "candidate")["agent_sha256"]
    drafted = [e["timings"]["draft_n"] for e in data["pair"]["baseline"]["log"]["exchanges"]]
    assert set(drafted) == {None}
    assert data["metrics"]["candidate"]["drafted"] > 0
    assert data["metrics"]["baseline"]["tool_calls"] == data["metrics"]["candidate"]["tool_calls"] > 0
    again = agent_ab(played.folder, "show", "--json")
    assert again.data["pair"]["outcome"] == "BOTH_PASS"
    with closing(sqlite3.connect(played.folder / "runs.db")) as connection, connection:
        assert connection.execute("select count(*) from check_result where scored").fetchone() == (20,)
    connection.close()


def test_the_known_bad_candidate_breaks_nine_checks_and_the_pair_stays_valid(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    played = once(tmp_path_factory, "scripted-known-bad")
    assert played.done.status == 0, played.done.stderr
    data = played.done.data
    assert (passed(data, "baseline"), passed(data, "candidate")) == (10, 1)
    assert data["pair"]["outcome"] == "BROKEN"
    assert len(data["pair"]["flips"]) == 9
    text = agent_ab(played.folder, "show").stdout
    assert all(flip["check_id"] in text for flip in data["pair"]["flips"])
    # The model parted, and it is said where.
    raw = agent_ab(played.folder, "diff", "--json").data["divergence"]["raw"]
    assert raw["kind"] == "model"
    assert isinstance(raw["exchange"], int) and isinstance(raw["token"], int)
    text = agent_ab(played.folder, "diff").stdout
    assert f"exchange {raw['exchange']}" in text and f"token {raw['token']}" in text


def test_the_placebo_drafts_accepts_nothing_and_solves_the_task(tmp_path: Path) -> None:
    status, data = play(tmp_path, "scripted-placebo", seed=8675309)
    assert status == 0
    assert data["pair"]["first_arm"] == "candidate"
    assert (passed(data, "baseline"), passed(data, "candidate")) == (10, 10)
    assert data["metrics"]["candidate"]["drafted"] > 0 and data["metrics"]["candidate"]["accepted"] == 0
    assert data["pair"]["divergence"]["raw"]["kind"] == "identical"


CLOCK_IN_THE_PROMPT = """
import json, sys, time, urllib.request
body = {"messages": [{"role": "user", "content": str(time.time_ns())}], "max_tokens": 8}
request = urllib.request.Request(sys.argv[1] + "/chat/completions", json.dumps(body).encode())
try:
    urllib.request.urlopen(request).read()
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_another_first_request_is_refused_by_the_proxy_before_the_server_sees_it(tmp_path: Path) -> None:
    text = (ROOT / "profiles" / "scripted-solve.toml").read_text()
    command = ["python3", "-c", CLOCK_IN_THE_PROMPT, "{base_url}"]
    text = text.replace('kind = "builtin"', f'kind = "command"\ncommand = {json.dumps(command)}')
    (tmp_path / "drift.toml").write_text(text)
    status, data = play(tmp_path, "drift.toml")
    assert status == 4
    assert data["pair"]["outcome"] == "VOID"
    assert "same first request" in [line["name"] for line in data["pair"]["proof"] if not line["ok"]]
    refused = data["pair"]["candidate"]["log"]
    assert refused["exchanges"] == [] and refused["refused"][0]["reason"] == "identity"
    server_log = tmp_path / data["evidence"] / "candidate" / "server.log"
    assert "POST /v1/chat/completions" not in server_log.read_text(errors="replace")


@pytest.mark.parametrize(("agent", "checks"), [("oracle", 10), ("nop", 1)])
def test_the_control_agents_bound_what_a_task_can_give(tmp_path: Path, agent: str, checks: int) -> None:
    status, data = play(tmp_path, "scripted-solve", "--agent", agent)
    assert status == 0
    assert (passed(data, "baseline"), passed(data, "candidate")) == (checks, checks)
    assert "baseline: no model call at all" in data["pair"]["findings"]


def test_a_real_small_model_answers_in_both_arms_and_its_fitted_mtp_block_drafts(tmp_path: Path) -> None:
    profile = (ROOT / "profiles" / "cpu-demo.toml").read_text()
    for long, short in (("max_turns = 10", "max_turns = 1"), ("response_budget = 256", "response_budget = 96")):
        assert long in profile
        profile = profile.replace(long, short)
    (tmp_path / "short.toml").write_text(profile)
    # The shortest task, whose prompt is half as long.
    small_task(tmp_path)
    status, data = play(tmp_path, "short.toml", "--tasks-dir", tmp_path / "tasks", task="tiny")
    assert status == 0
    assert data["metrics"]["candidate"]["drafted"] > 0
    for arm in ("baseline", "candidate"):
        assert data["metrics"][arm]["turns"] == 1 and data["metrics"][arm]["generated_tokens"] > 0
    # Whether they part depends on the processor's last bits; nothing but the model may do it, and then by its tokens.
    found = data["pair"]["divergence"]["raw"]
    assert found["kind"] in ("identical", "model")
    if found["kind"] == "model":
        assert found["baseline"]["token"]["piece"] != found["candidate"]["token"]["piece"]
