"""Where two arms part, and that the model is never blamed for what its surroundings did."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_ab.divergence.divergence import Story, between, walk
from agent_ab.divergence.normalise import CALL_IDS
from agent_ab.divergence.parting import Divergence, Kind, Parting, Side, Where
from agent_ab.model import AgentEnd, AgentRun, Arm, ExchangeLog, Outcome, RefusedRequest
from tests.builders import attempt
from tests.conversations import (
    SYSTEM,
    TURNS,
    Turn,
    asked,
    changed,
    conversation,
    golden,
    golden_stories,
    golden_tokens,
    words,
)

relaxed = settings(max_examples=50)

UNPARSED = "The model produced output that does not match the expected peg-native format"


def parted(left: ExchangeLog, right: ExchangeLog) -> Parting:
    return walk(Story(left), Story(right), words)


def raw(left: ExchangeLog, right: ExchangeLog) -> Divergence:
    return parted(left, right).raw


def with_turn(index: int, **changes: Any) -> ExchangeLog:
    turns = list(TURNS)
    turns[index] = replace(turns[index], **changes)
    return conversation(turns)


# ---- real logs of llama-server


def test_the_real_known_bad_candidate_parts_at_the_token_that_broke_its_tool_call() -> None:
    found = walk(*golden_stories("known-bad"), golden_tokens("known-bad"))
    assert found.raw == found.normalised
    assert (found.raw.kind, found.raw.exchange, found.raw.token) == (Kind.MODEL, 1, 9)
    assert found.raw.path == "tool_calls[0].function.arguments"
    assert found.raw.candidate.end == UNPARSED
    pieces = [side.token.piece for side in (found.raw.baseline, found.raw.candidate) if side.token]
    assert pieces == ['{"', "{"]


def test_the_real_placebo_differs_in_a_duration_only() -> None:
    found = parted(*golden("placebo"))
    assert (found.raw.kind, found.raw.where, found.raw.exchange) == (Kind.ENVIRONMENT, Where.REQUEST, 2)
    assert (found.raw.path, found.raw.cause) == ("$.messages[15].content", "a duration")
    assert "python3 -m unittest" in found.raw.source
    assert (found.raw.baseline.value, found.raw.candidate.value) == ("Ran 18 tests in 0.114s", "Ran 18 tests in 0.215s")
    assert found.normalised.kind is Kind.IDENTICAL
    assert [(seen.exchange, seen.rules) for seen in found.ignored] == [(2, ("durations",))]


def test_the_real_small_model_parts_at_its_second_token() -> None:
    found = walk(*golden_stories("cpu-demo"), golden_tokens("cpu-demo")).raw
    assert (found.kind, found.exchange, found.token, found.path) == (Kind.MODEL, 0, 1, "content")
    assert found.baseline.token is not None and found.candidate.token is not None
    assert (found.baseline.token.piece, found.candidate.token.piece) == ("\n   ", "\n ")
    assert found.baseline.value.startswith('\n    "tool": "read"')


def test_the_real_opencode_sends_random_call_ids_back_and_its_requests_are_still_equal() -> None:
    left, right = golden("opencode-cut")
    assert [a.agent_sha256 == b.agent_sha256 for a, b in zip(left.exchanges, right.exchanges, strict=True)] == [
        True,
        False,
        False,
        False,
    ]
    found = raw(ExchangeLog(left.exchanges[:3], ()), ExchangeLog(right.exchanges[:3], ()))
    assert (found.kind, found.common, found.rules) == (Kind.IDENTICAL, 3, (CALL_IDS,))


def test_the_real_opencode_that_was_cut_off_in_the_middle_is_not_the_models() -> None:
    found = raw(*golden("opencode-cut"))
    assert (found.kind, found.where, found.exchange) == (Kind.ENVIRONMENT, Where.REPLY, 3)
    assert (found.baseline.value, found.baseline.end) == ("", "client closed")


# ---- properties

texts = st.text(alphabet="ab ", max_size=6)
turns = st.lists(st.builds(Turn, texts, texts, texts), min_size=1, max_size=4)


@relaxed
@given(turns)
def test_a_log_is_identical_to_itself_and_to_one_with_other_call_ids(made: list[Turn]) -> None:
    log = conversation(made)
    for other in (log, conversation(made)):
        found = parted(log, other)
        assert (found.raw.kind, found.raw.common, found.raw.exchange) == (Kind.IDENTICAL, len(made), None)
        assert found.normalised == found.raw


@relaxed
@given(turns, turns)
def test_swapping_the_arms_swaps_the_two_sides(left: list[Turn], right: list[Turn]) -> None:
    logs = conversation(left), conversation(right)
    both = parted(*logs)
    assert both.normalised == both.raw or both.normalised.kind is not Kind.MODEL
    there, back = both.raw, raw(*reversed(logs))
    assert (there.baseline, there.candidate) == (back.candidate, back.baseline)
    assert (there.kind, there.exchange, there.where, there.path, there.token, there.character) == (
        back.kind,
        back.exchange,
        back.where,
        back.path,
        back.token,
        back.character,
    )


@relaxed
@given(turns, st.data())
def test_one_changed_reply_is_found_at_its_exchange(made: list[Turn], data: st.DataObject) -> None:
    log = conversation(made)
    index = data.draw(st.integers(0, len(made) - 1))
    what = data.draw(st.sampled_from(("content", "reasoning", "finish_reason")))
    found = raw(log, changed(log, index, **{what: "quite different"}))
    assert (found.kind, found.exchange, found.common, found.path) == (Kind.MODEL, index, index, what)


@relaxed
@given(turns, st.data())
def test_one_changed_result_is_found_in_the_request_that_carries_it(made: list[Turn], data: st.DataObject) -> None:
    made = [replace(turn, command="x") for turn in made] + [Turn("Done.")]
    index = data.draw(st.integers(0, len(made) - 2))
    other = [replace(turn, prints=turn.prints + "!") if i == index else turn for i, turn in enumerate(made)]
    found = parted(conversation(made), conversation(other))
    for one in (found.raw, found.normalised):
        assert (one.kind, one.where, one.exchange) == (Kind.ENVIRONMENT, Where.REQUEST, index + 1)
        assert one.path == f"$.messages[{3 + 2 * index}].content"


# ---- environment or model


def test_a_directory_listing_with_times_is_the_environments() -> None:
    left = with_turn(0, prints="-rw-r--r-- 1 agent agent 12 Nov 30 17:20 a.py")
    right = with_turn(0, prints="-rw-r--r-- 1 agent agent 12 Nov 30 17:21 a.py")
    found = parted(left, right)
    assert (found.raw.kind, found.raw.exchange, found.raw.cause) == (Kind.ENVIRONMENT, 1, "a time")
    assert found.raw.source == "the result of bash 'ls -la'"
    assert found.normalised.kind is Kind.IDENTICAL


def test_a_listing_in_another_order_is_the_environments() -> None:
    found = parted(conversation(), with_turn(0, prints="b.py\na.py"))
    assert (found.raw.kind, found.raw.cause) == (Kind.ENVIRONMENT, "the order of lines")


def test_after_a_difference_that_was_passed_over_no_reply_is_blamed_on_the_model() -> None:
    left = with_turn(1, prints="Ran 2 tests in 0.1s")
    right = with_turn(1, prints="Ran 2 tests in 0.2s")
    right = changed(right, 2, content="Something else.")
    found = parted(left, right)
    assert found.raw.where is Where.REQUEST
    assert (found.normalised.kind, found.normalised.where) == (Kind.ENVIRONMENT, Where.REPLY)
    assert "a duration since exchange 2" in found.normalised.cause


def test_a_reply_that_quotes_what_was_passed_over_is_equal_when_normalised() -> None:
    left = conversation((*TURNS[:2], Turn("It took 0.1s.", "true"), Turn("Done.")))
    right = conversation(
        (TURNS[0], replace(TURNS[1], prints="Ran 2 tests in 0.3s\n\nOK"), Turn("It took 0.3s.", "true"), Turn("Done."))
    )
    found = parted(left, right)
    assert found.normalised.kind is Kind.IDENTICAL
    assert [seen.exchange for seen in found.ignored] == [2, 3]


def test_a_time_in_a_reply_to_equal_requests_is_the_models() -> None:
    found = parted(conversation((Turn("It is 12:00."),)), conversation((Turn("It is 12:01."),)))
    assert found.raw.kind is Kind.MODEL
    assert found.normalised == found.raw


def test_a_difference_beside_one_that_is_passed_over_is_still_found() -> None:
    left = conversation((replace(TURNS[0], prints="in 0.1s"), replace(TURNS[1], prints="one"), TURNS[2]))
    right = conversation((replace(TURNS[0], prints="in 0.2s"), replace(TURNS[1], prints="two"), TURNS[2]))
    found = parted(left, right)
    assert (found.raw.exchange, found.raw.rules) == (1, ("durations",))
    assert (found.normalised.kind, found.normalised.exchange) == (Kind.ENVIRONMENT, 2)
    assert (found.normalised.path, found.normalised.rules) == ("$.messages[5].content", ())


def test_a_changed_setting_is_never_passed_over() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "note": "took 0.1s"}
    other = {**body, "note": "took 0.2s"}
    found = parted(ExchangeLog((asked(body),), ()), ExchangeLog((asked(other),), ()))
    assert found.normalised == found.raw
    assert (found.raw.kind, found.raw.path) == (Kind.ENVIRONMENT, "$.note")


def test_a_model_difference_after_mapped_call_ids_says_what_it_rests_on() -> None:
    found = raw(conversation(), with_turn(2, says="Quite done."))
    assert (found.kind, found.exchange, found.rules) == (Kind.MODEL, 2, (CALL_IDS,))
    assert "call ids" in found.cause
    assert raw(conversation(), with_turn(0, says="I read.")).rules == ()


def test_equal_requests_that_became_different_prompts_are_not_the_models() -> None:
    log = conversation()
    usage = {"prompt_tokens": 7}
    found = raw(log, changed(log, 1, usage=usage, content="Something else."))
    assert (found.kind, found.exchange, found.path) == (Kind.ENVIRONMENT, 1, "usage.prompt_tokens")
    assert "chat template" in found.cause


def test_bytes_that_differ_where_the_record_shows_nothing_are_not_called_equal() -> None:
    log = conversation()
    found = raw(log, changed(log, 1, agent_sha256="x" * 64, content="Something else."))
    assert (found.kind, found.exchange, found.path) == (Kind.ENVIRONMENT, 1, "$")


# ---- the first request


def test_a_first_request_that_differs_is_explained() -> None:
    found = raw(conversation(), conversation(system=SYSTEM.replace("Mon Nov 30", "Tue Dec 01")))
    assert (found.kind, found.common, found.exchange, found.path) == (Kind.ENVIRONMENT, 0, 0, "$.messages[0].content")
    assert "the date rolled over" in found.cause


@pytest.mark.parametrize("arm", [0, 1])
def test_a_first_request_that_the_proxy_refused_is_explained(arm: int) -> None:
    log = conversation()
    body = {**log.exchanges[0].request, "max_tokens": 1}
    for key in log.exchanges[0].pinned:
        del body[key]
    refused = ExchangeLog((), (RefusedRequest("POST", "/v1/chat/completions", "identity", "x" * 64, body),))
    logs = (refused, log) if arm == 0 else (log, refused)
    found = raw(*logs)
    assert (found.kind, found.path, found.cause) == (Kind.ENVIRONMENT, "$.max_tokens", "the response budget")
    assert {found.baseline.value, found.candidate.value} == {"8192", "1"}


# ---- ends


def shorter(log: ExchangeLog, by: int = 1) -> ExchangeLog:
    return ExchangeLog(log.exchanges[:-by], ())


def test_one_arm_that_was_cut_by_its_time_limit_is_the_environments_and_named() -> None:
    log = conversation()
    run = AgentRun(AgentEnd.TIMEOUT, None, 480.0, 480.0)
    left = attempt(Arm.BASELINE, log=shorter(log), agent=run)
    found = between(left, attempt(Arm.CANDIDATE, log=log)).raw
    assert (found.kind, found.where, found.exchange, found.common) == (Kind.ENVIRONMENT, Where.END, 2, 2)
    assert found.cause.startswith("baseline: the agent was cut off by its time limit of 480 s")
    assert (found.baseline.value, found.candidate.value) == ("2 exchanges", "3 exchanges")


def test_one_arm_that_made_no_request_at_all_is_the_environments() -> None:
    crashed = attempt(Arm.CANDIDATE, log=ExchangeLog((), ()), agent=AgentRun(AgentEnd.CRASHED, 1, 0.1, 480.0, "boom"))
    found = between(attempt(Arm.BASELINE, log=conversation()), crashed).raw
    assert (found.kind, found.common) == (Kind.ENVIRONMENT, 0)
    assert "candidate: the agent crashed with status 1 (boom)" in found.cause


def test_a_reply_that_was_cut_off_is_not_the_models() -> None:
    log = conversation()
    last = replace(log.exchanges[2], content="Do", finish_reason=None, error="client closed")
    cut = attempt(
        Arm.CANDIDATE,
        log=ExchangeLog((*log.exchanges[:2], last), ()),
        agent=AgentRun(AgentEnd.TIMEOUT, None, 480.0, 480.0),
    )
    found = between(attempt(Arm.BASELINE, log=log), cut, words).raw
    assert (found.kind, found.where, found.exchange) == (Kind.ENVIRONMENT, Where.REPLY, 2)
    assert "candidate: the agent was cut off by its time limit of 480 s" in found.cause


def test_two_arms_that_were_cut_at_the_same_place_are_identical() -> None:
    log = changed(conversation(), 2, content="", finish_reason=None, error="client closed")
    assert raw(log, log).kind is Kind.IDENTICAL


def test_a_broken_server_is_infrastructure() -> None:
    log = conversation()
    found = raw(log, changed(log, 1, content="", tool_calls=(), status=None, finish_reason=None, error="reset"))
    assert (found.kind, found.exchange) == (Kind.INFRASTRUCTURE, 1)


def test_an_error_that_the_output_caused_is_the_models() -> None:
    log = conversation()
    found = raw(log, changed(log, 1, content="I ", tool_calls=(), finish_reason=None, error=UNPARSED))
    assert (found.kind, found.exchange, found.token, found.candidate.end) == (Kind.MODEL, 1, 1, UNPARSED)


def test_a_proxy_that_passes_on_other_bytes_is_infrastructure() -> None:
    log = conversation()
    request = {**log.exchanges[1].request, "seed": 1}
    found = raw(log, changed(log, 1, server_sha256="y" * 64, request=request))
    assert (found.kind, found.path) == (Kind.INFRASTRUCTURE, "$.seed")


def test_an_invalid_attempt_is_infrastructure_where_nothing_parted_before() -> None:
    broken = attempt(Arm.CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died", log=shorter(conversation()))
    found = between(attempt(Arm.BASELINE, log=conversation()), broken).raw
    assert (found.kind, found.cause) == (Kind.INFRASTRUCTURE, "candidate: server: died")
    without = between(attempt(Arm.BASELINE, log=conversation()), replace(broken, log=None)).raw
    assert (without.kind, without.common) == (Kind.INFRASTRUCTURE, 0)


def test_a_missing_log_is_infrastructure() -> None:
    found = between(attempt(Arm.BASELINE, log=None, agent=None), attempt(Arm.CANDIDATE, log=conversation())).raw
    assert (found.kind, found.cause) == (Kind.INFRASTRUCTURE, "an exchange log is missing")


def test_two_arms_without_any_request_are_identical() -> None:
    empty = ExchangeLog((), ())
    assert (raw(empty, empty).kind, raw(empty, empty).common) == (Kind.IDENTICAL, 0)


def test_long_values_are_kept_around_the_difference_only() -> None:
    left = with_turn(0, prints="x" * 5000 + "left" + "y" * 5000)
    right = with_turn(0, prints="x" * 5000 + "right" + "y" * 5000)
    found = raw(left, right)
    assert "left" in found.baseline.value and "right" in found.candidate.value
    assert len(found.baseline.value) < 500
    assert found.character == 5000


def test_without_a_tokenizer_the_cause_says_so() -> None:
    found = walk(Story(conversation()), Story(with_turn(0, says="I read."))).raw
    assert (found.token, found.character) == (None, 2)
    assert "no tokenizer was at hand" in found.cause
    assert isinstance(found.baseline, Side)


def test_a_conversation_that_is_sent_again_is_passed_over_once() -> None:
    longer = (*TURNS[:2], Turn("More.", "true"), Turn("More.", "true"), TURNS[2])
    other = (TURNS[0], replace(TURNS[1], prints="Ran 2 tests in 7.1s\n\nOK"), *longer[2:])
    found = parted(conversation(longer), conversation(other))
    assert found.normalised.kind is Kind.IDENTICAL
    assert len(found.ignored) == 1
