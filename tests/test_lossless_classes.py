from typing import Any

from agent_ab.judge.case import Outlier, Score, TokenScore
from agent_ab.judge.classes import Class, Judged, Threshold, classify, counts, judge_all, sentence, threshold

LIMIT = Threshold(0.3, 500, 2)


def token(piece: str = " a", margin: float | None = 0.0) -> TokenScore:
    return TokenScore(7, piece, -1.25, 1, margin)


def score(gap: float = 0.1, left: float | None = 0.0, right: float | None = 0.0, **changes: Any) -> Score:
    made = {"case": "x", "index": 3, "baseline": token(" the", left), "candidate": token(" a", right), "gap": gap}
    return Score(**{**made, **changes})


def kind(found: Score, limit: Threshold = LIMIT) -> Class | None:
    return classify(found, limit).kind


def test_a_gap_within_the_threshold_is_a_near_tie_and_a_larger_one_is_sampling() -> None:
    assert kind(score(0.3)) is Class.NEAR_TIE and kind(score(-0.3)) is Class.NEAR_TIE
    assert kind(score(0.31)) is Class.SAMPLING


def test_a_token_outside_by_less_than_the_threshold_is_no_fault() -> None:
    assert kind(score(0.2, right=0.2)) is Class.NEAR_TIE


def test_a_token_outside_by_more_than_the_threshold_is_a_fault_of_the_arm_that_said_it() -> None:
    found = classify(score(9.0, right=8.0), LIMIT)
    assert (found.kind, found.arm, found.fault) == (Class.OUTSIDE, "candidate", True)
    assert classify(score(-9.0, left=8.0), LIMIT).arm == "baseline"
    assert kind(score(9.0, right=None)) is Class.OUTSIDE


def test_when_both_tokens_are_outside_the_judge_does_not_see_what_the_servers_saw() -> None:
    assert kind(score(0.0, left=5.0, right=5.0)) is Class.NOT_JUDGED
    both = Outlier(1, "both", token(margin=4.0))
    assert kind(score(0.1, outliers=(both,))) is Class.NOT_JUDGED


def test_a_baseline_outside_is_no_fault_when_only_its_text_was_recorded() -> None:
    assert kind(score(-9.0, left=8.0, exact=False)) is Class.NOT_JUDGED
    assert kind(score(9.0, right=8.0, exact=False)) is Class.OUTSIDE


def test_without_a_measured_threshold_nothing_is_called_a_fault() -> None:
    unmeasured = Threshold(0.0, 0, 2)
    assert kind(score(9.0, right=8.0), unmeasured) is Class.NOT_JUDGED
    assert kind(score(9.0), unmeasured) is Class.SAMPLING


def test_equal_replies_have_no_class() -> None:
    found = classify(Score("x", scanned=12), LIMIT)
    assert found.kind is None and not found.fault
    assert sentence(found, LIMIT) == "equal, 12 tokens looked at"


def test_later_tokens_outside_the_support_are_a_fault_whatever_the_first_difference_is() -> None:
    later = Outlier(9, "candidate", token(margin=4.0)), Outlier(11, "candidate", token(margin=0.2))
    found = classify(score(0.1, outliers=later), LIMIT)
    assert found.kind is Class.NEAR_TIE and found.fault and [o.index for o in found.outliers] == [9]


def test_what_was_not_scored_is_not_judged_and_says_why() -> None:
    found = classify(Score("x", "no memory"), LIMIT)
    assert (found.kind, sentence(found, LIMIT)) == (Class.NOT_JUDGED, "not judged: no memory")


def test_the_threshold_is_the_largest_noise_of_everything_that_was_scored() -> None:
    scores = (
        score(noise=0.2, positions=30),
        score(noise=0.5, positions=4),
        Score("y", "no memory", noise=9.0, positions=3),
    )
    assert threshold(scores, 4) == Threshold(0.5, 34, 4)
    assert threshold((), 4) == Threshold(0.0, 0, 4)


def test_every_class_is_counted_and_equal_replies_are_not() -> None:
    judged = judge_all([score(0.1), score(0.2), score(9.0, right=8.0), Score("x")], LIMIT)
    assert counts(judged) == {"near tie": 2, "sampling": 0, "outside support": 1, "not judged": 0}


def test_a_sentence_names_the_place_both_tokens_and_the_threshold() -> None:
    told = sentence(classify(score(0.1, right=0.05), LIMIT), LIMIT)
    assert told == (
        "near tie: token 3: baseline ' the' (-1.250, rank 1), candidate ' a' (-1.250, rank 1, 0.050 outside);"
        " gap 0.100 nat, threshold 0.300"
    )
    assert "outside support (candidate)" in sentence(classify(score(9.0, right=None), LIMIT), LIMIT)
    assert "forbidden" in sentence(classify(score(9.0, right=None), LIMIT), LIMIT)
    later = Judged(score(), Class.SAMPLING, outliers=(Outlier(9, "candidate", token(margin=4.0)),))
    assert sentence(later, LIMIT).endswith("1 later tokens outside as well")
