"""Where the time went and how fast it was."""

import pytest

from agent_ab.model import AgentEnd, AgentRun, Arm, ExchangeLog
from agent_ab.pair.metrics import measure
from tests.builders import attempt, exchange, timings


def test_throughput_is_a_ratio_of_sums_and_never_a_mean_of_rates() -> None:
    log = ExchangeLog(
        (
            exchange(0, timings=timings(predicted_n=10, predicted_ms=1000.0)),
            exchange(1, timings=timings(predicted_n=90, predicted_ms=1000.0)),
        ),
        (),
    )
    assert measure(attempt(Arm.BASELINE, log=log)).tokens_per_s == pytest.approx(50.0)


def test_wall_time_splits_without_remainder() -> None:
    wall = measure(attempt(Arm.BASELINE)).wall
    assert wall.total_s == pytest.approx(wall.prefill_s + wall.decode_s + wall.tools_s + wall.other_s)
    assert wall.tools_s == pytest.approx(0.75)


def test_absent_drafts_are_no_acceptance_rather_than_zero() -> None:
    assert measure(attempt(Arm.BASELINE)).acceptance is None
    log = ExchangeLog((exchange(0, timings=timings(draft_n=8, draft_n_accepted=6)), exchange(1)), ())
    assert measure(attempt(Arm.CANDIDATE, log=log)).acceptance == pytest.approx(0.75)


def test_an_attempt_without_a_log_measures_as_no_turns() -> None:
    metrics = measure(attempt(Arm.BASELINE, log=None, agent=AgentRun(AgentEnd.CRASHED, 1, 3.0, 120.0)))
    assert (metrics.turns, metrics.tokens_per_s, metrics.wall.other_s) == (0, None, 3.0)


def test_errors_budget_stops_and_broken_streams_are_counted_apart() -> None:
    log = ExchangeLog(
        (
            exchange(0, status=500, finish_reason=None, error="does not match", timings=None),
            exchange(1, finish_reason="length"),
            exchange(2, finish_reason=None, error="closed", timings=None),
        ),
        (),
    )
    metrics = measure(attempt(Arm.CANDIDATE, log=log))
    assert (metrics.http_errors, metrics.budget_stops, metrics.broken_streams) == (1, 1, 1)
    assert metrics.finish_reasons == {"error": 2, "length": 1}


def test_json_actions_count_as_tool_calls_and_the_end_does_not() -> None:
    replies = ('{"tool":"read","path":"a.py"}', '{"tool":"done","summary":"x"}', "{ cut off", "prose")
    log = ExchangeLog(tuple(exchange(i, content=text) for i, text in enumerate(replies)), ())
    assert measure(attempt(Arm.BASELINE, log=log)).tool_calls == 1
