"""Medians with exact intervals, ratios within rounds, acceptance in every cut."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from agent_ab.bench.stats import (
    ALL,
    Interval,
    Reply,
    context_name,
    goes_on,
    interval,
    never_accepted,
    order,
    ratio_interval,
    table,
)
from agent_ab.model import Drafting

PLAIN = Reply("none", 0, "code-1", "code", 100, 50.0, 41, 400.0, 0.06, 0.5, None, "t", "stop")


def reply(method: str = "none", round_: int = 0, **changes: object) -> Reply:
    return replace(PLAIN, method=method, round=round_, **changes)  # type: ignore[arg-type]


def test_the_interval_of_a_median_is_that_of_order_statistics() -> None:
    # Binomial(9, 1/2): 1 - 2 (1 + 9) / 512; the ends are the second smallest and the second greatest.
    found = interval([9, 1, 8, 2, 7, 3, 6, 4, 5])
    assert found == Interval(5, 2, 8, pytest.approx(1 - 20 / 512), 9)  # type: ignore[arg-type]
    assert found is not None and found.half_width == 0.6


@pytest.mark.parametrize(("rounds", "cut"), [(1, 1), (5, 1), (6, 1), (8, 1), (9, 2), (12, 3), (20, 6)])
def test_as_many_extremes_as_95_percent_allow_are_cut_off(rounds: int, cut: int) -> None:
    found = interval([*range(1, rounds + 1)])
    assert found is not None and (found.low, found.high) == (cut, rounds + 1 - cut)


def test_too_few_rounds_say_how_little_their_range_covers() -> None:
    two = interval([1.0, 2.0])
    assert two is not None and two.coverage == 0.5
    assert interval([1.0]) == Interval(1.0, 1.0, 1.0, 0.0, 1)
    assert interval([]) is None


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40))
def test_the_median_lies_within_its_interval(values: list[float]) -> None:
    found = interval(values)
    assert found is not None and found.low <= found.median <= found.high


def test_the_interval_of_a_ratio_holds_the_values_that_the_signed_rank_test_does_not_refuse() -> None:
    ratios = [0.50, 0.55, 0.61, 0.48, 0.52, 0.58, 0.35, 0.54, 0.57]
    found = ratio_interval(ratios)
    assert found is not None and found.coverage == pytest.approx(1 - 20 / 512)

    def p(value: float) -> float:
        return float(wilcoxon([math.log(ratio / value) for ratio in ratios], method="exact").pvalue)

    assert p(found.low * 0.999) < 0.05 < p(found.low * 1.001)
    assert p(found.high * 1.001) < 0.05 < p(found.high * 0.999)
    assert p(found.median) > 0.9


def test_the_interval_of_a_ratio_turns_round_with_it() -> None:
    ratios = [0.5, 0.8, 0.7, 0.9, 0.6, 1.1]
    found, turned = ratio_interval(ratios), ratio_interval([1 / ratio for ratio in ratios])
    assert found is not None and turned is not None
    assert (turned.low, turned.median, turned.high) == pytest.approx((1 / found.high, 1 / found.median, 1 / found.low))
    assert ratio_interval([]) is None and ratio_interval([2.0]) == Interval(2.0, 2.0, 2.0, 0.0, 1)


def test_methods_are_played_there_and_back_again() -> None:
    assert [order("abc", number) for number in range(3)] == [tuple("abc"), tuple("cba"), tuple("abc")]


@pytest.mark.parametrize(
    ("done", "elapsed_s", "goes"),
    [(0, 0.0, True), (5, 9e9, True), (6, 500.0, False), (6, 400.0, True), (9, 1.0, False)],
)
def test_the_clock_alone_decides_on_another_round(done: int, elapsed_s: float, goes: bool) -> None:
    assert goes_on(done, 9, elapsed_s, 540.0) is goes
    assert goes_on(done, 9, elapsed_s, None) is (done < 9)


def test_a_ratio_divides_the_rates_of_one_round() -> None:
    # The second round ran at half the speed, for both.
    replies = [
        reply("none", 0, predicted_ms=400.0),
        reply("mtp-2", 0, predicted_ms=200.0),
        reply("mtp-2", 1, predicted_ms=400.0),
        reply("none", 1, predicted_ms=800.0),
    ]
    rows = {(row.method, row.kind): row for row in table(replies, "none")}
    assert rows["none", ALL].decode_ratio is None
    decode = rows["none", ALL].decode
    assert decode is not None and (decode.low, decode.high) == (50.0, 100.0)
    ratio = rows["mtp-2", "code"].decode_ratio
    assert ratio is not None and (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 2.0)


def test_the_first_token_belongs_to_the_prompt() -> None:
    (row, _) = table([reply(predicted_n=11, predicted_ms=100.0, prompt_n=100, prompt_ms=50.0)], "none")
    assert row.decode is not None and row.decode.median == 100.0
    assert row.prefill is not None and row.prefill.median == 2000.0


def test_a_failed_request_counts_in_no_rate() -> None:
    rows = table([reply(), reply(request="code-2", error="HTTP 400", predicted_n=0, predicted_ms=0.0)], "none")
    assert (rows[0].replies, rows[0].errors) == (1, 1)
    assert rows[0].wall_s is not None and rows[0].wall_s.median == 0.5


def test_a_round_that_one_of_both_did_not_play_gives_no_ratio() -> None:
    rows = table([reply("none", 0), reply("mtp-2", 1)], "none")
    assert next(row for row in rows if row.method == "mtp-2").decode_ratio is None


def test_acceptance_is_told_overall_by_position_and_by_prompt_length() -> None:
    short = Drafting(drafts=10, drafted=30, accepted=15, accepted_at=(8, 5, 2))
    long = Drafting(drafts=10, drafted=30, accepted=3, accepted_at=(3,))
    replies = [
        reply(),
        reply("mtp-3", drafting=short),
        reply("mtp-3", request="code-2", prompt_n=5000, drafting=long),
    ]
    row = next(row for row in table(replies, "none") if row.method == "mtp-3")
    assert row.acceptance == 0.3
    assert row.by_position == (0.55, 0.25, 0.1)
    assert row.by_context == {"< 256": 0.5, "< 16384": 0.1}


def test_equal_text_is_counted_against_the_baselines_of_the_same_round() -> None:
    replies = [reply(), reply("mtp-2"), reply("none", 1, text_sha256="u"), reply("mtp-2", 1, text_sha256="v")]
    assert next(row for row in table(replies, "none") if row.method == "mtp-2").same_text == 1


def test_a_draft_that_is_never_accepted_does_not_fit() -> None:
    none = Drafting(drafts=20, drafted=60, accepted=0)
    assert "none of 60 drafted tokens" in never_accepted([reply(drafting=none)])
    assert never_accepted([reply(drafting=replace(none, accepted=1))]) == ""
    assert never_accepted([reply(drafting=replace(none, drafted=10))]) == ""
    assert never_accepted([reply()]) == ""


def test_prompt_lengths_have_names() -> None:
    assert [context_name(n) for n in (0, 255, 256, 70000)] == ["< 256", "< 256", "< 1024", ">= 65536"]


def test_intervals_agree_when_they_overlap() -> None:
    one = Interval(1.0, 0.9, 1.1, 0.96, 9)
    assert one.agrees(Interval(1.2, 1.1, 1.3, 0.96, 9)) and not one.agrees(Interval(1.3, 1.2, 1.4, 0.96, 9))
