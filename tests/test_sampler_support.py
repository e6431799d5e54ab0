import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_ab.judge.sampler_support import (
    Head,
    Sampler,
    adjusted,
    from_settings,
    gap_change,
    likely,
    log_probability,
    margin,
    objection,
    rank,
    supports,
)
from tests.table_model import settings


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def of_probabilities(*shares: float) -> np.ndarray:
    return row(*map(math.log, shares))


def sampler(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, **more: object
) -> Sampler:
    return Sampler(temperature, top_k, top_p, min_p, **more)  # type: ignore[arg-type]


def test_at_temperature_0_only_the_top_token_is_said() -> None:
    logits = row(1.0, 3.0, 2.5)
    assert [supports(logits, token, sampler(0.0)) for token in range(3)] == [False, True, False]
    assert margin(logits, 2, sampler(0.0)) == pytest.approx(0.5, abs=1e-4)
    assert margin(logits, 1, sampler(0.0)) == 0.0


def test_top_k_keeps_as_many_as_it_says() -> None:
    logits = row(5, 4, 3, 2, 1)
    assert likely(logits, sampler(top_k=2), 0.0, 10) == [0, 1]
    assert margin(logits, 2, sampler(top_k=2)) == pytest.approx(1.0, abs=1e-4)


def test_top_p_keeps_the_token_that_crosses_the_share() -> None:
    logits = of_probabilities(0.6, 0.3, 0.08, 0.02)
    assert likely(logits, sampler(top_p=0.95), 0.0, 10) == [0, 1, 2]
    assert likely(logits, sampler(top_p=0.89), 0.0, 10) == [0, 1]
    assert likely(logits, sampler(top_p=0.5), 0.0, 10) == [0]


def test_top_p_works_on_what_top_k_left_over() -> None:
    # Of 0.5 and 0.3, which top-k leaves, the first has 0.625.
    logits = of_probabilities(0.5, 0.3, 0.2)
    assert likely(logits, sampler(top_k=2, top_p=0.6), 0.0, 10) == [0]
    assert likely(logits, sampler(top_k=2, top_p=0.63), 0.0, 10) == [0, 1]


def test_temperature_comes_last_so_that_top_p_sees_the_models_own_distribution() -> None:
    logits = of_probabilities(0.6, 0.3, 0.08, 0.02)
    assert likely(logits, sampler(temperature=5.0, top_p=0.89), 0.0, 10) == [0, 1]
    hot = sampler(temperature=5.0, top_p=0.89, order=("temperature", "top_p"))
    assert likely(logits, hot, 0.0, 10) == [0, 1, 2, 3]


def test_min_p_is_a_share_of_the_top_token() -> None:
    logits = of_probabilities(0.5, 0.3, 0.15, 0.05)
    assert likely(logits, sampler(min_p=0.25), 0.0, 10) == [0, 1, 2]
    assert margin(logits, 3, sampler(min_p=0.25)) == pytest.approx(math.log(0.125 / 0.05), abs=1e-4)


def test_min_keep_keeps_tokens_that_the_samplers_would_not() -> None:
    logits = of_probabilities(0.9, 0.06, 0.04)
    assert likely(logits, sampler(top_k=1, top_p=0.5, min_p=0.5, min_keep=2), 0.0, 10) == [0, 1]


def test_a_forbidden_token_has_no_margin_at_all() -> None:
    assert margin(row(1.0, -math.inf), 1, sampler()) == math.inf


@given(
    st.lists(st.floats(-15, 15), min_size=2, max_size=40),
    st.integers(0, 39),
    st.sampled_from([0, 3, 20]),
    st.booleans(),
)
def test_a_larger_slack_never_takes_a_token_out_and_the_margin_lets_it_in(
    values: list[float], token: int, top_k: int, greedy: bool
) -> None:
    logits, token = row(*values), token % len(values)
    chain = sampler(0.0 if greedy else 1.0, top_k, 0.9, 0.05)
    allowed = [supports(logits, token, chain, slack) for slack in (0.0, 0.3, 1.0, 3.0, 40.0)]
    assert allowed == sorted(allowed) and allowed[-1]
    assert supports(logits, token, chain, margin(logits, token, chain) + 1e-5)


@given(st.lists(st.floats(-15, 15), min_size=2, max_size=40), st.sampled_from([0, 3]))
def test_the_support_is_a_beginning_of_the_tokens_by_probability(values: list[float], top_k: int) -> None:
    logits, chain = row(*values), sampler(1.0, top_k, 0.9, 0.05)
    order = np.argsort(-logits, kind="stable")
    inside = [supports(logits, int(token), chain) for token in order]
    assert inside == sorted(inside, reverse=True)
    assert likely(logits, chain, 0.0, len(values)) == [int(t) for t, ok in zip(order, inside, strict=True) if ok]


def test_the_head_decides_as_the_whole_row_does() -> None:
    logits = np.random.default_rng(3).normal(0, 3, 5000)
    chain = sampler(1.0, 20, 0.95)
    head = Head.of(logits, chain)
    assert head.ids.size < logits.size
    for token in [*np.argsort(-logits)[:40].tolist(), 7, 4999]:
        assert supports(*head.around(token), chain) == supports(logits, token, chain)
        assert supports(*head.around(token), chain, 0.5) == supports(logits, token, chain, 0.5)
    assert Head.of(logits, sampler(top_p=0.9)).ids.size == logits.size


def test_penalties_and_biases_are_llama_cpps() -> None:
    chain = sampler(repeat_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25, repeat_last_n=3, bias=((3, 4.0),))
    # Token 0 stands outside of the last three; 1 twice, 2 once.
    found = adjusted(np.array([1.0, 1.0, -1.0, 0.0], np.float32), chain, [0, 1, 2, 1])
    assert found.tolist() == [1.0, 0.5 - 0.5 - 0.5, -2.0 - 0.25 - 0.5, 4.0]
    neutral = adjusted(np.array([1.0, -1.0], np.float32), sampler(), [0, 1])
    assert neutral.tolist() == [1.0, -1.0]


def test_a_sampler_that_is_not_modelled_is_objected_to() -> None:
    assert objection(settings()) == ""
    assert objection(settings(dry_multiplier=0.8)) == "the sampler dry_multiplier = 0.8 is not modelled"
    assert "top_n_sigma" in objection(settings(top_n_sigma=1.5)) and objection(settings(top_n_sigma=-1.0)) == ""
    assert "mirostat" in objection(settings(mirostat=2))
    assert "adaptive_p" in objection(settings(samplers=["adaptive_p"]))
    assert objection({"temperature": 1.0}) == "the server does not say its top_k"


def test_the_servers_own_words_make_the_sampler() -> None:
    found = from_settings(settings(temperature=0.7, top_k=5, logit_bias=[{"token": 4, "bias": -1.5}]), suppressed=(9,))
    assert (found.temperature, found.top_k, found.order) == (0.7, 5, ("top_k", "top_p", "min_p", "temperature"))
    assert found.bias == ((4, -1.5), (9, -math.inf))


def test_rank_and_log_probability_are_of_the_whole_distribution() -> None:
    logits = of_probabilities(0.2, 0.5, 0.3)
    assert [rank(logits, token) for token in range(3)] == [2, 0, 1]
    assert log_probability(logits, 0) == pytest.approx(math.log(0.2))


def test_the_change_of_a_gap_is_that_of_the_two_tokens_that_moved_apart_most() -> None:
    one, other = row(1.0, 2.0, 3.0, -math.inf), row(1.5, 1.8, 3.0, -math.inf)
    assert gap_change(one, other, [0, 1, 2, 3]) == pytest.approx(0.7)
    assert gap_change(one, other, [2]) == 0.0
    assert gap_change(one, other, []) == 0.0
