"""What a bench plays."""

import json
from pathlib import Path

import pytest

from agent_ab import tasks
from agent_ab.bench import requests
from agent_ab.config import load_profile
from agent_ab.errors import UserError
from agent_ab.requests import Recorded
from tests.command import ROOT

PROFILES, TASKS = ROOT / "profiles", ROOT / "tasks"
GOLDEN = ROOT / "tests" / "golden" / "exchanges.jsonl"


def test_without_a_source_it_is_our_own_set_of_five_classes(tmp_path: Path) -> None:
    found = requests.find("", load_profile("cpu-demo", PROFILES), None, tmp_path)
    assert {r.kind for r in found} == {"tools", "reasoning", "json", "code", "prose"}


def test_a_scripted_model_is_asked_for_each_of_its_replies(tmp_path: Path) -> None:
    task = tasks.load("transfer-repair", TASKS)
    found = requests.find("", load_profile("scripted-bench", PROFILES), task, tmp_path)
    assert [r.id for r in found] == [f"reply-{n}" for n in range(9)]
    answers = [sum(m["role"] == "assistant" for m in r.body["messages"]) for r in found]
    assert answers == list(range(9))
    assert {r.kind for r in found} == {"tools", "code", "prose"}
    thinking = requests.of_script(task.root / "scripts" / "thinking.toml", task)
    assert thinking[0].kind == "reasoning"


def test_a_pairs_requests_come_from_its_exchange_log_in_the_class_of_their_answer(tmp_path: Path) -> None:
    folder = tmp_path / "run-1" / "pair-1" / "baseline"
    folder.mkdir(parents=True)
    (folder / "exchanges.jsonl").write_bytes(GOLDEN.read_bytes())
    found = requests.find("run-1/pair-1", load_profile("cpu-demo", PROFILES), None, tmp_path)
    assert found and all(r.id.startswith("exchange-") and "stream" not in r.body for r in found)
    assert requests.find(str(folder / "exchanges.jsonl"), load_profile("cpu-demo", PROFILES), None, tmp_path) == found


def test_a_source_that_is_nothing_says_what_it_could_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a \.jsonl file nor a pair"):
        requests.find("nothing", load_profile("cpu-demo", PROFILES), None, tmp_path)


def test_no_request_is_played_twice_on_one_server() -> None:
    one, other = {"messages": [{"role": "user", "content": "a"}]}, {"messages": [{"role": "user", "content": "b"}]}
    found = [
        Recorded("1", "code", one),
        Recorded("2", "code", json.loads(json.dumps(one))),
        Recorded("3", "code", other),
    ]
    assert [r.id for r in requests.some_of_each(found, None)] == ["1", "3"]
    assert [r.id for r in requests.some_of_each([*found, Recorded("4", "prose", {})], 1)] == ["1", "4"]
