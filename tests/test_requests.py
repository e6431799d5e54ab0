import json
from pathlib import Path
from typing import Any

import pytest

from agent_ab.config import Sampling
from agent_ab.errors import UserError
from agent_ab.model import ExchangeLog
from agent_ab.requests import choose, forced, load, of_log, pinned, plain
from tests.builders import exchange

GOLDEN = Path(__file__).parent / "golden" / "exchanges.jsonl"


def line(**changes: Any) -> str:
    return json.dumps({"id": "a", "class": "code", "body": {"messages": []}, **changes})


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_our_own_set_holds_five_requests_of_each_class_and_names_no_seed_and_no_sampling() -> None:
    found = load()
    kinds = [request.kind for request in found]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ["tools", "reasoning", "json", "code", "prose"], 5
    )
    named = {key for request in found for key in request.body}
    assert named == {"messages", "max_tokens", "tools", "response_format"}
    assert sum("response_format" not in request.body for request in found) >= 20


def test_an_exchange_log_gives_the_requests_as_they_reached_the_server() -> None:
    found = load(GOLDEN)
    assert found and found[0].id == "exchange-0" and found[0].kind == "recorded"
    assert "seed" in found[0].body and "stream" not in found[0].body


def test_other_endpoints_are_left_out() -> None:
    log = ExchangeLog((exchange(0, path="/v1/completions"), exchange(1)), ())
    assert [request.id for request in of_log(log)] == ["exchange-1"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("{",), "line 1: not valid JSON"),
        ((line(), line(id="b", seed=1)), "line 2: unknown key 'seed'"),
        ((line(), line()), "the id 'a' is there twice"),
        ((line(body={}),), "key 'body.messages'"),
        (("",), "holds no request"),
    ],
)
def test_a_bad_file_is_one_line_that_names_the_place(tmp_path: Path, lines: tuple[str, ...], told: str) -> None:
    with pytest.raises(UserError) as caught:
        load(written(tmp_path, *lines))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no recorded requests"):
        load(tmp_path / "none.jsonl")


def test_seed_and_sampling_are_pinned_where_a_request_names_none() -> None:
    body = pinned({"messages": [], "temperature": 0.2, "seed": 7, "top_k": None}, Sampling(), 4242)
    assert (body["temperature"], body["seed"], body["top_k"], body["top_p"]) == (0.2, 7, 20, 0.95)
    assert body["cache_prompt"] is False
    assert pinned({"messages": []}, Sampling(), 4242)["seed"] == 4242


def test_how_an_answer_is_delivered_is_not_part_of_a_request() -> None:
    assert plain({"messages": [], "stream": True, "stream_options": {}, "verbose": True}) == {"messages": []}


def test_requests_are_chosen_by_class_and_number() -> None:
    found = load()
    assert [r.id for r in choose(found, ["prose", "json"], 6)] == [
        "json-1",
        "json-2",
        "json-3",
        "json-4",
        "json-5",
        "prose-1",
    ]
    assert len(choose(found, [], None)) == 25
    with pytest.raises(UserError, match="there are: code, json, prose, reasoning, tools"):
        choose(found, ["poems"], None)


def test_a_budget_of_thoughts_forces_tokens() -> None:
    assert "reasoning_budget_tokens" in forced({"reasoning_budget_tokens": 100})
    assert forced({"thinking_budget_tokens": -1}) == ""
