from dataclasses import replace

import pytest

from agent_ab.judge.symptoms import Symptoms, count, from_json, rows, to_json
from tests.builders import exchange, timings


def call(arguments: str) -> dict[str, object]:
    return {"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}


def test_healthy_replies_have_no_symptom() -> None:
    found = count([exchange(0), exchange(1, tool_calls=(call("{}"),), finish_reason="tool_calls")])
    assert (found.replies, found.empty, found.looping, found.malformed, found.past_end) == (2, 0, 0, 0, 0)
    assert (found.client_errors, found.server_errors, found.broken, found.length_stops) == (0, 0, 0, 0)
    assert found.acceptance is None and found.drift is None


def test_a_reply_without_text_or_call_is_empty_and_an_error_is_not() -> None:
    found = count(
        [
            exchange(0, content=" \n"),
            exchange(1, content="", reasoning="hm"),
            exchange(2, content="", status=500, error="x"),
        ]
    )
    assert (found.empty, found.server_errors) == (1, 1)


def test_repetition_is_found_in_text_and_in_reasoning() -> None:
    loop = "Let me pick a function. " * 12
    assert count([exchange(0, content=loop), exchange(1, reasoning=loop), exchange(2)]).looping == 2


def test_malformed_calls_are_counted_each_and_an_unparsable_reply_once() -> None:
    broken = exchange(0, tool_calls=(call("{"), call("[1]"), call("{}")))
    mismatch = exchange(
        1, status=500, error="The model produced output that does not match the expected peg-native format"
    )
    assert count([broken, mismatch]).malformed == 3


def test_errors_are_counted_by_kind_and_a_client_that_left_is_none() -> None:
    found = count(
        [
            exchange(0, status=400, error="context"),
            exchange(1, status=503, error="loading"),
            exchange(2, error="client closed"),
            exchange(3, error="the stream ended without a finish reason"),
            exchange(4, finish_reason="length"),
        ]
    )
    assert (found.client_errors, found.server_errors, found.broken, found.length_stops) == (1, 1, 1, 1)


def test_a_mark_that_ends_a_text_inside_of_it_means_that_it_went_on_past_its_end() -> None:
    assert count([exchange(0, content="done<|im_end|>\nmore"), exchange(1, content="a < b | c")]).past_end == 1


def test_more_accepted_tokens_than_a_reply_has_were_kept_past_its_end() -> None:
    # 1 first token, 4 steps of at most 3 drafts, 9 accepted: 14 tokens; the reply has 12.
    kept = exchange(0, timings=timings(predicted_n=12, draft_n=12, draft_n_accepted=9))
    assert count([kept], n_max=3).past_end == 1
    assert count([exchange(0, timings=timings(predicted_n=14, draft_n=12, draft_n_accepted=9))], n_max=3).past_end == 0
    # A budget may cut a draft in two.
    assert count([exchange(0, finish_reason="length", timings=kept.timings)], n_max=3).past_end == 0


@pytest.mark.parametrize(("predicted", "drafted", "accepted"), [(187, 204, 119), (50, 48, 34)])
def test_an_end_of_text_that_was_drafted_is_no_token_past_the_end(predicted: int, drafted: int, accepted: int) -> None:
    healthy = timings(predicted_n=predicted, draft_n=drafted, draft_n_accepted=accepted)
    assert count([exchange(0, timings=healthy)], n_max=3).past_end == 0
    assert count([exchange(0, timings=replace(healthy, predicted_n=predicted - 1))], n_max=3).past_end == 1


def test_acceptance_is_compared_between_the_halves_of_the_servers_life() -> None:
    drafts = [(30, 24), (30, 24), (30, 6), (30, 6)]
    found = count(
        [exchange(i, timings=timings(predicted_n=90, draft_n=d, draft_n_accepted=a)) for i, (d, a) in enumerate(drafts)]
    )
    assert (found.early, found.late, found.acceptance) == (0.8, 0.2, 0.5)
    assert found.drift is not None and round(found.drift, 6) == -0.6
    few = count([exchange(0, timings=timings(predicted_n=90, draft_n=5, draft_n_accepted=5))])
    assert (few.early, few.late, few.drift) == (None, None, None)


def test_the_rows_name_every_symptom() -> None:
    told = rows(
        count(
            [
                exchange(0, content=""),
                exchange(1, status=404, error="x", timings=timings(draft_n=10, draft_n_accepted=5)),
            ]
        )
    )
    assert told["empty replies"] == "1 of 2"
    assert told["4xx, 5xx"] == "1, 0"
    assert told["draft acceptance"] == "50.0 %"
    assert told["looping replies"] == "0"


def test_symptoms_survive_json() -> None:
    found = count([exchange(0)])
    assert from_json(to_json(found)) == found
    assert isinstance(found, Symptoms)
