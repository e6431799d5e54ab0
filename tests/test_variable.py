"""The declared variable: what it covers, where its difference may show, and what voids a pair."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from agent_ab.config import ArmSettings
from agent_ab.model import Arm, Attempt, ExchangeLog, ProofLine, ServerFacts
from agent_ab.pair.pair import judge
from agent_ab.pair.variable import VARIABLES, first_digest, named, one_variable, same_world
from proxy.ledger import Ledger
from proxy.pins import Settings
from tests.builders import attempt, exchange, pair, server

BASELINE, CANDIDATE = Arm.BASELINE, Arm.CANDIDATE
SAME = ("llama-server", "-m", "<model>", "-c", "8192", "-ctk", "f16", "-ctv", "f16", "--spec-type", "none")


def arm(which: Arm, settings: dict[str, Any], **facts: Any) -> Attempt:
    plain = replace(server(Arm.BASELINE), argv=SAME)
    return attempt(which, server=replace(plain, **facts), settings={"server.context": 8192, **settings})


def proof(variable: str, one: dict[str, Any], other: dict[str, Any], **facts: Any) -> ProofLine:
    return one_variable(arm(BASELINE, one), arm(CANDIDATE, other, **facts), variable)


def argv(*changes: tuple[str, str]) -> tuple[str, ...]:
    words = list(SAME)
    for flag, value in changes:
        words[words.index(flag) + 1] = value
    return tuple(words)


def test_every_variable_covers_settings_that_exist_and_facts_that_are_compared() -> None:
    for variable in VARIABLES.values():
        for setting in variable.settings:
            value: object = ArmSettings()
            for part in setting.split("."):
                assert hasattr(value, part), setting
                value = getattr(value, part)
        assert set(variable.facts) <= set(ServerFacts.__slots__)


@pytest.mark.parametrize(
    ("variable", "one", "other", "facts", "words"),
    [
        (
            "server.kv_type",
            {"server.kv_type_k": "f16", "server.kv_type_v": "f16"},
            {"server.kv_type_k": "q8_0", "server.kv_type_v": "q4_0"},
            {"argv": argv(("-ctk", "q8_0"), ("-ctv", "q4_0"))},
            "-ctk q8_0 -ctv q4_0",
        ),
        (
            "model",
            {"model.path": "a.gguf"},
            {"model.path": "b.gguf"},
            {"model_sha256": "b" * 64, "props": {"n_ctx": 8192, "model_ftype": "Q8_0"}},
            "model bbbbbbbbbbbb instead of model",
        ),
        (
            "server.binary",
            {"server.binary": ""},
            {"server.binary": "/opt/new/llama-server"},
            {"binary_sha256": "c" * 64, "build": "b2", "props": {"n_ctx": 8192, "build_info": "b2"}},
            "llama-server cccccccccccc instead of bin",
        ),
        (
            "server.context",
            {},
            {"server.context": 4096},
            {"argv": argv(("-c", "4096")), "props": {"n_ctx": 4096}},
            "-c 4096",
        ),
        (
            "server.speculation.draft",
            {"server.speculation.draft.path": "a"},
            {"server.speculation.draft.path": "b"},
            {"draft_sha256": "d" * 64},
            "draft dddddddddddd instead of none",
        ),
        ("agent.max_turns", {"agent.max_turns": 5}, {"agent.max_turns": 9}, {}, "agent.max_turns = 9 instead of 5"),
    ],
)
def test_a_declared_difference_is_proven_and_named(
    variable: str, one: dict[str, Any], other: dict[str, Any], facts: dict[str, Any], words: str
) -> None:
    line = proof(variable, one, other, **facts)
    assert line.ok, line.detail
    assert words in line.detail


def test_another_model_must_keep_its_chat_template_and_the_remedy_is_named() -> None:
    line = proof("model", {"model.path": "a"}, {"model.path": "b"}, model_sha256="b", chat_template_sha256="other")
    assert not line.ok and "chat_template_sha256 (name one server.chat_template_file for both arms)" in line.detail


def test_a_second_difference_voids_the_pair_whatever_the_variable_is() -> None:
    line = proof("server.kv_type_k", {}, {"server.kv_type_k": "q8_0"}, argv=argv(("-ctk", "q8_0"), ("-c", "4096")))
    assert (line.ok, line.detail) == (False, "the arms also differ in: command line")
    line = proof("server.context", {}, {"server.context": 4096, "agent.max_turns": 3}, argv=argv(("-c", "4096")))
    assert (line.ok, line.detail) == (False, "the arms also differ in: settings")


@pytest.mark.parametrize(
    ("variable", "setting"),
    [("model", "model.path"), ("server.kv_type_k", "server.kv_type_k"), ("server.extra_args", "server.extra_args")],
)
def test_a_difference_that_never_reached_the_server_is_no_arm(variable: str, setting: str) -> None:
    line = proof(variable, {setting: "a"}, {setting: "b"})
    assert not line.ok and "nothing of it reached the server" in line.detail


def test_of_two_builds_only_what_both_know_is_compared() -> None:
    left = arm(BASELINE, {"server.binary": "old"}, omitted_flags=("--fit",), props={"n_ctx": 1, "sampling": {"a": 1}})
    newer = {"binary_sha256": "n", "argv": (*SAME, "--fit", "off"), "props": {"n_ctx": 1, "sampling": {"a": 1, "b": 2}}}
    right = arm(CANDIDATE, {"server.binary": "new"}, **newer)
    line = one_variable(left, right, "server.binary")
    assert line.ok
    assert "the baseline's build lacks --fit, which the other arm was given" in line.detail
    assert "all else is equal" not in line.detail
    changed = replace(right, server=replace(right.server, props={"n_ctx": 1, "sampling": {"a": 9}}))  # type: ignore[type-var]
    assert "props (sampling.a: 1 and 9)" in one_variable(left, changed, "server.binary").detail


def test_extra_arguments_are_the_last_ones_of_the_command_line() -> None:
    one, other = {"server.extra_args": ["--mlock"]}, {"server.extra_args": ["--no-mmap", "--mlock"]}
    left = arm(BASELINE, one, argv=(*SAME, "--mlock"))
    right = arm(CANDIDATE, other, argv=(*SAME, "--no-mmap", "--mlock"))
    assert one_variable(left, right, "server.extra_args").ok
    assert not one_variable(left, right, "server.context").ok


def test_the_world_may_differ_only_where_the_variable_says() -> None:
    world = {"agent": {"version": "1", "config_sha256": "x"}, "workspace": "/workspace"}
    assert same_world(world, "server.context") == world
    assert same_world(world, "agent") == {"workspace": "/workspace"}
    assert same_world(world, "agent.prompt") == {"agent": {"version": "1"}, "workspace": "/workspace"}


# --- requests


def asked(which: Arm, settings: dict[str, Any], **request: Any) -> Attempt:
    body = {"messages": [{"role": "user", "content": "fix it"}], **request}
    digest = sha256(str(body).encode()).hexdigest()
    first = exchange(0, agent_sha256=digest, server_sha256=digest, request=body)
    return attempt(which, log=ExchangeLog((first,), ()), settings=settings, server=replace(server(BASELINE), argv=SAME))


def line_of(variable: str, one: Attempt, other: Attempt) -> ProofLine:
    judged = judge(replace(pair(one, other), variable=variable))
    return next(line for line in judged.proof if line.name == "same first request")


def test_a_response_budget_may_differ_in_the_requests_and_both_values_are_shown() -> None:
    left = asked(BASELINE, {"agent.response_budget": 1024}, max_tokens=1024)
    right = asked(CANDIDATE, {"agent.response_budget": 4096}, max_tokens=4096)
    line = line_of("agent.response_budget", left, right)
    assert line.ok and "without max_tokens (1024, 4096), the variable itself" in line.detail
    assert not line_of("server.speculation", left, right).ok


def test_anything_else_that_differs_in_the_first_request_voids_the_pair() -> None:
    left = asked(BASELINE, {"agent.response_budget": 1024}, max_tokens=1024, top_k=20)
    right = asked(CANDIDATE, {"agent.response_budget": 4096}, max_tokens=4096, top_k=40)
    line = line_of("agent.response_budget", left, right)
    assert not line.ok and "$.top_k" in line.detail


def test_an_effort_that_no_request_names_is_no_arm() -> None:
    left, right = (asked(which, {"agent.reasoning_effort": e}) for which, e in ((BASELINE, ""), (CANDIDATE, "high")))
    line = line_of("agent.reasoning_effort", left, right)
    assert not line.ok and "in no request: no arm" in line.detail


def test_another_agents_requests_are_its_own_and_where_they_part_is_told() -> None:
    left = asked(BASELINE, {"agent.version": "1"})
    right = asked(CANDIDATE, {"agent.version": "2"}, tools=[{"type": "function"}])
    line = line_of("agent", left, right)
    assert line.ok and "not compared" in line.detail and "$.tools" in line.detail


def test_proxy_and_proof_agree_on_what_must_be_equal() -> None:
    body = (
        b'{"model": "local", "max_tokens": 1024, "messages": [{"role": "user", "content": "\xc3\xa9"}], "stream": true}'
    )
    keys = named("agent.response_budget").request

    def settings(expected: str | None) -> Settings:
        return Settings("", "", 1, "fixed", {"top_k": 20}, "t", 0, 64, expected, keys)

    first = Ledger(settings(None), ())
    passage = first.admit("POST", "/v1/chat/completions", body, "", 0.0)
    recorded = first.close(passage, None)["request"]  # type: ignore[arg-type]
    expected = f"POST /v1/chat/completions {first_digest(recorded, keys)}"
    other = body.replace(b"1024", b"4096")
    assert hasattr(Ledger(settings(expected), ()).admit("POST", "/v1/chat/completions", other, "", 0.0), "sent")
    refused = Ledger(settings(expected), ()).admit("POST", "/v1/chat/completions", other.replace(b"local", b"x"), "", 0)
    assert refused.line["reason"] == "identity"  # type: ignore[union-attr]
