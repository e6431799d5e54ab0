"""The log for Inspect AI: one sample an attempt, with its transcript and its scores."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_ab.errors import UserError
from agent_ab.export import eval_log
from agent_ab.model import AgentEnd, AgentRun, Arm, ExchangeLog, Json, Outcome, Pair
from tests.builders import attempt, exchange
from tests.run_files import RUN, pair_of, played

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
ODD = {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{path"}}
HISTORY = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": [{"type": "text", "text": "fix it"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "print()"},
    {"role": "developer", "content": "be kind"},
]


def talkative() -> Pair:
    last = exchange(1, request={"messages": HISTORY}, content="done", reasoning="hm", tool_calls=(ODD,))
    return replace(pair_of(), baseline=attempt(Arm.BASELINE, log=ExchangeLog((exchange(0), last), ())))


def written(tmp_path: Path, *pairs: Pair, runs_dir: Path | None = None) -> Any:
    store, there = played(tmp_path, *pairs)
    with closing(store):
        eval_log.write(store, RUN, runs_dir or there, tmp_path / "log.json")
    return json.loads((tmp_path / "log.json").read_text())


def sample(log: Json, arm: str) -> Any:
    return next(sample for sample in log["samples"] if sample["id"].endswith(arm))


def test_every_attempt_is_a_sample_and_every_check_a_score(tmp_path: Path) -> None:
    log = written(tmp_path, pair_of(), pair_of(7, (10, 10)))
    assert (log["version"], log["status"], len(log["samples"])) == (2, "success", 4)
    assert sample(log, "4242-0/candidate")["scores"]["solved"]["value"] == "I"
    assert sample(log, "4242-0/candidate")["scores"]["checks"]["value"] == 0.1
    assert sample(log, "4242-0/candidate")["scores"]["check"]["value"]["check-3"] == 0
    assert {score["name"]: score["metrics"]["mean"]["value"] for score in log["results"]["scores"]} == {
        "solved (baseline)": 1.0,
        "checks (baseline)": 1.0,
        "solved (candidate)": 0.5,
        "checks (candidate)": 0.55,
    }


def test_the_transcript_is_in_inspects_own_words(tmp_path: Path) -> None:
    said = sample(written(tmp_path, talkative()), "baseline")
    assert said["input"] == "fix it"
    assert [message["role"] for message in said["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert said["messages"][2]["tool_calls"][0]["arguments"] == {"path": "a.py"}
    assert said["messages"][3]["tool_call_id"] == "c1"
    assert said["messages"][5]["content"][0] == {"type": "reasoning", "reasoning": "hm"}
    assert said["messages"][5]["tool_calls"][0]["parse_error"] == "the arguments are no JSON object"
    assert said["output"]["choices"][0]["stop_reason"] == "stop"
    assert said["model_usage"]["local"] == {"input_tokens": 200, "output_tokens": 40, "total_tokens": 240}


def test_an_attempt_that_broke_has_an_error_and_no_score(tmp_path: Path) -> None:
    broke = attempt(
        Arm.CANDIDATE, outcome=Outcome.INVALID, checks=(), log=None, patch=None, invalid_reason="server: gone"
    )
    log = written(tmp_path, replace(pair_of(), candidate=broke))
    assert sample(log, "candidate")["error"]["message"] == "server: gone"
    assert sample(log, "candidate")["scores"] is None
    assert log["results"]["scores"][0]["scored_samples"] == 0 and log["results"]["scores"][0]["metrics"] == {}


def test_a_time_limit_is_told_as_one(tmp_path: Path) -> None:
    late = attempt(Arm.CANDIDATE, 9, agent=AgentRun(AgentEnd.TIMEOUT, None, 120.0, 120.0))
    limit = sample(written(tmp_path, replace(pair_of(), candidate=late)), "candidate")["limit"]
    assert limit == {"type": "time", "limit": 120.0}


def test_without_evidence_the_transcript_is_empty_and_the_scores_stay(tmp_path: Path) -> None:
    said = sample(written(tmp_path, talkative(), runs_dir=tmp_path / "nowhere"), "baseline")
    assert said["messages"] == [] and said["scores"]["solved"]["value"] == "C"
    assert said["input"] == "transfer-repair"


def test_the_header_comes_before_the_samples(tmp_path: Path) -> None:
    written(tmp_path, pair_of())
    text = (tmp_path / "log.json").read_text()
    assert text.index('"results"') < text.index('"samples": [') < text.index('"messages"')


def test_another_ending_is_refused(tmp_path: Path) -> None:
    store, runs_dir = played(tmp_path)
    with closing(store), pytest.raises(UserError, match=r"one of \.json"):
        eval_log.write(store, RUN, runs_dir, tmp_path / "log.eval")
