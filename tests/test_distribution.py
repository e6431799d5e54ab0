import numpy as np
import pytest

from agent_ab.lossless.distribution import compare, sentences


def replies(rng: np.random.Generator, shares: list[float], count: int, positions: int = 3) -> list[tuple[int, ...]]:
    return [tuple(rng.choice(len(shares), positions, p=shares).tolist()) for _ in range(count)]


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


FAIR = [0.5, 0.3, 0.15, 0.05]


def test_the_same_distribution_is_not_accused() -> None:
    source = rng()
    found = compare({"x": replies(source, FAIR, 200)}, {"x": replies(source, FAIR, 200)}, 3, rng())
    assert (found.requests, found.repeats, found.different) == (1, 200, ())
    assert all(p.p is not None and p.p > found.alpha for p in found.positions)


def test_a_shifted_second_token_is_found() -> None:
    source = rng()
    same = replies(source, FAIR, 200)
    shifted = [(reply[0], 0, reply[2]) if i % 3 else reply for i, reply in enumerate(replies(source, FAIR, 200))]
    found = compare({"x": same}, {"x": shifted}, 3, rng())
    assert [p.index for p in found.different] == [1]
    assert "token 2: differs" in sentences(found)[1]


def test_a_difference_in_the_first_token_is_told_and_is_no_fault_of_the_verification() -> None:
    found = compare({"x": [(0, 1)] * 50}, {"x": [(2, 1)] * 50}, 2, rng())
    assert found.positions[0].p is not None and found.positions[0].p < found.alpha
    assert found.different == ()


def test_the_stated_power_is_what_repeated_tests_find() -> None:
    source = rng(7)
    first = compare({"x": replies(source, FAIR, 150)}, {"x": replies(source, FAIR, 150)}, 2, rng())
    share = first.positions[1].detectable
    assert share is not None and 0.1 < share < 0.5
    found = 0
    for _ in range(40):
        switched = [(r[0], 0) if source.random() < share else r for r in replies(source, FAIR, 150, 2)]
        result = compare({"x": replies(source, FAIR, 150, 2)}, {"x": switched}, 2, rng())
        found += bool(result.different)
    # 80 of 100 are promised; fewer than 24 of 40 or all of them would be chances of less than 1 in 100.
    assert 24 <= found <= 39


def test_more_replies_find_smaller_shifts() -> None:
    source = rng()
    few, many = (
        compare({"x": replies(source, FAIR, n)}, {"x": replies(source, FAIR, n)}, 2, rng()).positions[1].detectable
        for n in (50, 400)
    )
    assert few is not None and many is not None and many < few


def test_replies_that_are_all_the_same_leave_nothing_to_test() -> None:
    found = compare({"x": [(4, 5)] * 20}, {"x": [(4, 5)] * 20}, 2, rng())
    assert [p.p for p in found.positions] == [None, None] and found.different == ()
    assert "the same token in every reply" in sentences(found)[1]


def test_requests_are_strata_so_that_their_own_differences_count_for_nothing() -> None:
    left = {"x": [(0, 1)] * 40, "y": [(0, 2)] * 40}
    found = compare(left, left, 2, rng())
    assert found.positions[1].p is None and found.positions[1].tokens == 2


def test_a_reply_that_ended_early_is_an_outcome_of_its_own() -> None:
    found = compare({"x": [(0, 1)] * 60}, {"x": [(0,)] * 60}, 2, rng())
    assert [p.index for p in found.different] == [1]
    assert found.positions[1].distance == pytest.approx(1.0)


def test_rare_tokens_are_put_together() -> None:
    source = rng()
    many = [0.5] + [0.01] * 50
    found = compare({"x": replies(source, many, 100)}, {"x": replies(source, many, 100)}, 2, rng())
    assert found.different == () and found.positions[1].tokens > 20


def test_no_replies_at_all_are_no_test() -> None:
    found = compare({}, {}, 2, rng())
    assert (found.requests, found.repeats) == (0, 0) and found.different == ()
