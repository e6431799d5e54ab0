"""What the proxy writes into a request, and that it touches nothing else."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.pins import MAX_DEPTH, Settings, Unreadable, parse, pin, seed_for

SAMPLING = {"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0.0}


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {
        "exchanges": "e",
        "socket": "s",
        "seed": 4242,
        "seed_mode": "fixed",
        "sampling": SAMPLING,
        "task": "transfer-repair",
        "repeat": 0,
        "max_tokens": 512,
        "expected_first": None,
    }
    return Settings(**given | changes)


ALL = {"seed": 4242, **SAMPLING, "cache_prompt": False, "max_tokens": 512}

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
bodies = st.dictionaries(
    st.text() | st.sampled_from([*ALL, "stream", "stream_options", "n_predict"]), values, max_size=8
)


def pinned(text: str, turn: int = 0, **changes: Any) -> tuple[str, dict[str, Any]]:
    result = pin(parse(text.encode()), settings(**changes), turn)
    assert json.loads(result.body) == result.value
    return result.body.decode(), result.pinned


def test_missing_keys_are_written_before_the_closing_brace_and_nothing_else_changes() -> None:
    text = '{"model": "local",\n "x": [1.10, 1e3, "\\u00e9"] }\n'
    body, written = pinned(text)
    assert body == text.replace(
        " }\n",
        ' ,"seed":4242,"temperature":1.0,"top_p":0.95,"top_k":20,"min_p":0.0,"cache_prompt":false,"max_tokens":512}\n',
    )
    assert written == ALL


@pytest.mark.parametrize("value", ["true", "0", '"no"', "null"])
def test_the_prompt_cache_stays_off_whatever_the_agent_sends(value: str) -> None:
    text = '{"cache_prompt": %s, "seed": 1, "temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0.5, "max_tokens": 9}'
    assert pinned(text % value) == (text % "false", {"cache_prompt": False})


def test_keys_that_the_agent_sends_are_kept() -> None:
    text = json.dumps(
        {"seed": 1, "temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0.5, "cache_prompt": False, "max_tokens": 9}
    )
    assert pinned(text) == (text, {})


def test_with_nothing_to_pin_both_digests_are_equal() -> None:
    text = json.dumps(ALL, indent=3)
    assert pin(parse(text.encode()), settings(), 0).body == text.encode()


def test_null_counts_as_not_sent_and_is_replaced_in_its_place() -> None:
    body, written = pinned('{"seed" : null , "top_k":3}')
    assert body.startswith('{"seed" : 4242 , "top_k":3,"temperature":1.0,')
    assert "top_k" not in written


def test_of_equal_keys_the_last_counts_as_in_the_servers_parser() -> None:
    assert "seed" not in pinned('{"seed":null,"seed":7}')[1]
    assert pinned('{"seed":7,"seed":null}')[0].startswith('{"seed":7,"seed":4242,')


def test_an_empty_object_gets_no_leading_comma() -> None:
    assert pinned("{ }")[0].startswith('{ "seed":4242,')


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_a_budget_of_the_agents_own_is_kept_under_each_of_its_names(key: str) -> None:
    body, written = pinned(json.dumps({key: 33}))
    assert "max_tokens" not in written
    assert json.loads(body)[key] == 33


@pytest.mark.parametrize(
    ("sent", "options"),
    [
        ('"stream":true', {"include_usage": True}),
        ('"stream":true,"stream_options":null', {"include_usage": True}),
        ('"stream":true,"stream_options":{"a":1}', {"a": 1, "include_usage": True}),
    ],
)
def test_usage_is_asked_for_in_streams_only_where_the_agent_does_not(sent: str, options: dict[str, Any]) -> None:
    body, written = pinned("{" + sent + "}")
    assert json.loads(body)["stream_options"] == options
    assert written["stream_options.include_usage"] is True


@pytest.mark.parametrize("sent", ['"stream":true,"stream_options":{"include_usage":false}', '"stream":false', '"a":1'])
def test_usage_is_not_asked_for_otherwise(sent: str) -> None:
    assert "stream_options.include_usage" not in pinned("{" + sent + "}")[1]


@given(bodies, st.booleans(), st.sampled_from([None, 1]))
def test_the_servers_body_is_the_agents_with_the_pins_whatever_it_holds(
    body: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    result = pin(parse(raw), settings(), 0)
    assert json.loads(result.body) == result.value
    kept = {key: value for key, value in result.value.items() if key not in result.pinned and key != "stream_options"}
    assert kept == {key: value for key, value in body.items() if key in kept}
    assert {key for key, value in body.items() if value is not None} <= set(result.value)


def test_a_fixed_seed_is_the_pairs_in_every_turn() -> None:
    assert [seed_for(settings(), turn) for turn in range(3)] == [4242] * 3


def test_a_seed_per_turn_is_derived_from_seed_task_repeat_and_turn() -> None:
    # `python3 -c "import hashlib; print(hashlib.sha256(b'4242/transfer-repair/0/1').hexdigest()[:8])"`
    expected = int(hashlib.sha256(b"4242/transfer-repair/0/1").hexdigest()[:8], 16)
    assert seed_for(settings(seed_mode="per-turn"), 1) == expected
    assert len({seed_for(settings(seed_mode="per-turn", repeat=r), t) for r in range(3) for t in range(3)}) == 9


@given(st.integers(min_value=0, max_value=2**32 - 2), st.integers(min_value=0, max_value=1000))
def test_a_seed_per_turn_is_never_the_one_that_means_random(seed: int, turn: int) -> None:
    assert 0 <= seed_for(settings(seed_mode="per-turn", seed=seed), turn) < 2**32 - 1


def test_another_server_gets_its_own_keys_and_its_own_name_for_the_model() -> None:
    text, written = pinned('{"model":"local","top_k":3}', fixed={}, model="big", sampling={"repetition_penalty": 1.1})
    added = {"seed": 4242, "repetition_penalty": 1.1, "max_tokens": 512, "model": "big"}
    assert written == added and json.loads(text) == {"top_k": 3, **added}
    assert pinned('{"model":"big"}', model="big")[1] == ALL


def test_an_unknown_seed_mode_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown seed mode"):
        seed_for(settings(seed_mode="random"), 0)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a":1} x', "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":NaN}', "a number that JSON cannot hold"),
        (b'{"a":1e999}', "a number that JSON cannot hold"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
        (b'{"a":' + b"[" * 100_000, "nested deeper"),
        (b'{"a":' + b"1" * 5000 + b"}", "integer string"),
    ],
    ids=range(11),
)
def test_a_body_that_cannot_be_recorded_is_unreadable_and_says_why(raw: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_unreadable(raw: bytes) -> None:
    try:
        parse(raw)
    except Unreadable:
        return


def test_the_deepest_allowed_body_is_read() -> None:
    assert parse(b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}").value["a"]
