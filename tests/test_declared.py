"""What the declared variable changes in requests is its own: never the environment's, the proxy's or the model's."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent_ab.divergence.declared import shares
from agent_ab.divergence.divergence import Story, walk
from agent_ab.divergence.parting import Divergence, Kind, Parting, Where, from_json, sentence, to_json
from agent_ab.model import Exchange, ExchangeLog, Json
from agent_ab.pair.variable import VARIABLES
from tests.conversations import SYSTEM, TURNS, changed, conversation, sha, words

EFFECTS: dict[str, tuple[dict[str, Json], dict[str, Json]]] = {
    "sampling": ({"temperature": 0.2}, {"temperature": 1.0}),
    "agent.response_budget": ({"max_tokens": 512}, {"max_tokens": 4096}),
    "agent.reasoning_effort": ({}, {"reasoning_effort": "high"}),
    "agent.prompt": ({}, {}),
    "agent": ({"tools": []}, {"tools": [{"name": "other"}]}),
}
"""By variable: what each arm's agent or proxy puts into every request. The prompt is in the messages."""


def sent(log: ExchangeLog, own: dict[str, Json], *, by_proxy: bool = False) -> ExchangeLog:
    """Return `log` with the members `own` in every request, from the agent or written by the proxy."""

    def one(exchange: Exchange) -> Exchange:
        request = {**exchange.request, **own}
        pinned = {**exchange.pinned, **own} if by_proxy else exchange.pinned
        agents = {key: value for key, value in request.items() if key not in pinned}
        digests: Any = {
            "agent_sha256": exchange.agent_sha256 if by_proxy else sha(agents),
            "server_sha256": sha(request),
        }
        return replace(exchange, request=request, pinned=pinned, **digests)

    return ExchangeLog(tuple(map(one, log.exchanges)), log.refused)


def arms(variable: str, turns: Any = TURNS) -> tuple[ExchangeLog, ExchangeLog]:
    """Return the logs of two arms that differ by `variable` in every request, and in nothing else."""
    left, right = EFFECTS[variable]
    prompt = "Be brief. " + SYSTEM if variable == "agent.prompt" else SYSTEM
    by_proxy = variable == "sampling"
    return sent(conversation(), left, by_proxy=by_proxy), sent(conversation(turns, prompt), right, by_proxy=by_proxy)


def parted(left: ExchangeLog, right: ExchangeLog, variable: str) -> Parting:
    return walk(Story(left), Story(right), words, variable)


def raw(left: ExchangeLog, right: ExchangeLog, variable: str) -> Divergence:
    return parted(left, right, variable).raw


def test_every_variable_that_touches_requests_is_among_these() -> None:
    assert set(EFFECTS) == {name for name, variable in VARIABLES.items() if variable.request}


@pytest.mark.parametrize("variable", EFFECTS)
def test_requests_that_differ_by_the_variable_alone_are_declared_and_the_walk_goes_to_the_end(variable: str) -> None:
    found = parted(*arms(variable), variable)
    assert (found.raw.kind, found.raw.where, found.raw.common) == (Kind.DECLARED, Where.NOWHERE, 3)
    assert found.normalised == found.raw and found.declared
    assert sentence(found.raw).startswith("declared: all 3 replies are equal; the requests ")
    assert f"the declared variable {variable}" in found.raw.cause
    assert not any("random" in seen.baseline for seen in found.declared)
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


@pytest.mark.parametrize("variable", EFFECTS)
def test_replies_that_part_are_declared_with_their_place(variable: str) -> None:
    left, right = arms(variable)
    found = raw(left, changed(right, 1, content="I guess."), variable)
    assert (found.kind, found.where, found.exchange, found.token) == (Kind.DECLARED, Where.REPLY, 1, 1)


@pytest.mark.parametrize("variable", EFFECTS)
def test_without_its_declaration_the_same_difference_is_not_passed_over(variable: str) -> None:
    found = parted(*arms(variable), "server.speculation")
    assert found.raw.kind in (Kind.ENVIRONMENT, Kind.INFRASTRUCTURE) and found.raw.exchange == 0
    assert found.declared == ()


@pytest.mark.parametrize("variable", [name for name in EFFECTS if name != "agent"])
def test_the_first_difference_that_the_variable_does_not_explain_is_reported(variable: str) -> None:
    turns = (TURNS[0], replace(TURNS[1], prints="FAILED (failures=1)"), TURNS[2])
    found = raw(*arms(variable, turns), variable)
    assert (found.kind, found.exchange, found.path) == (Kind.ENVIRONMENT, 2, "$.messages[5].content")
    assert found.source == "the result of bash 'python3 -m unittest'"


@pytest.mark.parametrize("variable", EFFECTS)
def test_a_server_that_broke_is_infrastructure_all_the_same(variable: str) -> None:
    left, right = arms(variable)
    right = changed(right, 1, content="", tool_calls=(), status=None, finish_reason=None, error="reset")
    assert (raw(left, right, variable).kind, raw(left, right, variable).exchange) == (Kind.INFRASTRUCTURE, 1)


@pytest.mark.parametrize("index", [0, 1], ids=["equal bytes", "other call ids"])
@pytest.mark.parametrize("variable", [name for name in EFFECTS if name != "agent"])
def test_what_the_proxy_passes_on_besides_the_variable_is_infrastructure(variable: str, index: int) -> None:
    left, right = arms(variable)
    request = {**right.exchanges[index].request, "seed": 1}
    found = raw(left, changed(right, index, server_sha256="y" * 64, request=request), variable)
    assert (found.kind, found.exchange, found.path) == (Kind.INFRASTRUCTURE, index, "$.seed")


def test_another_agent_that_asks_on_is_declared_and_another_temperature_is_not() -> None:
    for variable, kind in (("agent", Kind.DECLARED), ("sampling", Kind.ENVIRONMENT)):
        left, right = arms(variable)
        found = raw(left, ExchangeLog(right.exchanges[:1], ()), variable)
        assert (found.kind, found.where, found.common) == (kind, Where.END, 1)


def test_the_declared_difference_is_named_with_both_values() -> None:
    left, right = arms("sampling")
    found = parted(left, changed(right, 0, content="I guess."), "sampling")
    assert "$.temperature (0.2, 1.0), which the declared variable sampling changes" in sentence(found.raw)
    assert [(seen.exchange, seen.path) for seen in found.declared] == [(0, "$.temperature")]


def test_two_equal_arms_of_such_a_variable_are_compared_as_any_others() -> None:
    log = conversation()
    assert raw(log, conversation(), "sampling").kind is Kind.IDENTICAL
    assert raw(log, changed(log, 0, content="I guess."), "sampling").kind is Kind.MODEL


def test_an_attached_servers_name_for_its_model_is_no_difference() -> None:
    left, right = (sent(conversation(), {"model": name}, by_proxy=True) for name in ("one", "two"))
    left, right = (ExchangeLog((log.exchanges[0],), ()) for log in (left, right))
    assert raw(left, right, "server.url").kind is Kind.IDENTICAL
    assert raw(left, changed(right, 0, content="I guess."), "server.url").kind is Kind.MODEL


def test_prompts_of_different_lengths_leave_the_later_messages_in_their_places() -> None:
    opening = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    later = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "printed"}]
    parts = shares({"messages": opening + later}, {"messages": opening[1:] + later}, {"messages"}, first=False)
    assert parts.own == ({"messages": opening}, {"messages": opening[1:]})
    assert parts.rest[0] == parts.rest[1] == {"messages": [None, None, *later]}
