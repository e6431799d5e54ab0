from typing import Any

import pytest

from agent_ab.judge.case import Case, Said
from agent_ab.judge.exam import examine
from tests.table_model import TableModel, settings

WORDS = ["<go>", "a", "b", "c", "d", "odd"]
AFTER = {
    "<go>": {"a": 5.0, "b": 4.9},
    "a": {"b": 3.0, "c": 2.9, "d": 1.0},
    "b": {"c": 3.0, "d": 2.0},
    "c": {"<end>": 4.0, "a": 3.5},
    "d": {"<end>": 4.0},
}


def model(**changes: Any) -> TableModel:
    return TableModel(WORDS, AFTER, **changes)


def case(target: TableModel, left: str, right: str, **changes: Any) -> Case:
    said = [Said(target.ids(*words.split())) for words in (left, right)]
    made = {
        "id": "x",
        "prompt": "<go>",
        "prompt_tokens": 1,
        "settings": settings(),
        "baseline": said[0],
        "candidate": said[1],
    }
    return Case(**{**made, **changes})


def test_the_first_difference_is_scored_under_the_target() -> None:
    target = model()
    score = examine(case(target, "a b c <end>", "a c <end>"), target, 2)
    assert score.note == "" and score.exact and score.index == 1 and score.before == "a"
    assert score.baseline and score.candidate
    assert (score.baseline.piece, score.baseline.rank, score.baseline.margin) == ("b", 0, 0.0)
    assert (score.candidate.piece, score.candidate.rank, score.candidate.margin) == ("c", 1, 0.0)
    assert score.gap == pytest.approx(0.1) and score.gap_many == pytest.approx(0.1)
    assert score.baseline.logp and score.candidate.logp and score.baseline.logp > score.candidate.logp


def test_the_noise_is_the_largest_change_of_a_gap_in_batches_of_n_max_plus_one() -> None:
    target = model(noise=0.25)
    score = examine(case(target, "a b c <end>", "a c <end>"), target, 2)
    assert score.noise == pytest.approx(0.25)
    assert score.positions == 2
    assert score.gap_many == pytest.approx(0.1 - 0.25 if target.id("b") % 2 == 0 else 0.1 + 0.25)


def test_a_batch_is_always_whole_however_short_the_reply_is() -> None:
    target = model()
    examine(case(target, "a b c <end>", "a c <end>"), target, 4)
    assert {size for size in target.batches if size > 1} == {4}


def test_a_token_that_the_target_would_not_say_has_a_margin() -> None:
    target = model()
    score = examine(case(target, "a b c <end>", "a odd c <end>"), target, 2)
    assert score.candidate and score.candidate.margin and score.candidate.margin > 20


def test_at_temperature_0_the_margin_is_the_gap() -> None:
    target = model()
    score = examine(case(target, "a b c <end>", "a c <end>", settings=settings(temperature=0.0)), target, 2)
    assert score.candidate and score.candidate.margin == pytest.approx(0.1, abs=1e-4)


def test_every_later_token_of_the_candidate_is_looked_at_too() -> None:
    target = model()
    score = examine(case(target, "a b c <end>", "a c odd d <end>"), target, 2)
    assert [(o.index, o.arm, o.score.piece) for o in score.outliers] == [(2, "candidate", "odd")]
    assert score.scanned == 5


def test_equal_replies_have_no_index_and_are_read_all_the_same() -> None:
    target = model()
    score = examine(case(target, "a b c <end>", "a b c <end>"), target, 2)
    assert (score.index, score.note, score.scanned, score.outliers) == (None, "", 4, ())


def test_a_token_outside_in_both_replies_says_that_the_judge_sees_something_else_than_the_servers() -> None:
    target = model()
    score = examine(case(target, "odd a b <end>", "odd a c <end>"), target, 2)
    assert score.outliers[0].arm == "both"


def test_a_reply_that_was_cut_off_is_not_judged() -> None:
    target = model()
    assert "cut off" in examine(case(target, "a b c <end>", "a b"), target, 2).note


def test_a_prompt_that_the_server_cut_into_other_tokens_is_not_judged() -> None:
    target = model()
    assert "prompt" in examine(case(target, "a <end>", "b <end>", prompt_tokens=7), target, 2).note


def test_a_sampler_that_is_not_modelled_is_not_judged() -> None:
    target = model()
    assert "xtc" in examine(case(target, "a <end>", "b <end>", settings=settings(xtc_probability=0.5)), target, 2).note


def test_a_difference_in_the_first_token_is_judged_after_the_prompt() -> None:
    target = model()
    score = examine(case(target, "a c <end>", "b c <end>"), target, 2)
    assert score.index == 0 and score.gap == pytest.approx(0.1) and score.gap_many is None


def test_the_noise_of_a_short_reply_is_measured_on_the_prompt_as_well() -> None:
    target = model(noise=0.5)
    prompt = "<go>" + "ab" * 10
    long = case(target, "a c <end>", "b c <end>", prompt=prompt, prompt_tokens=21)
    short = examine(long, target, 2)
    more = examine(long, target, 2, places=12)
    assert short.positions == 2 and more.positions == 11
    assert more.noise == pytest.approx(0.5)


def test_a_model_that_cannot_go_back_is_read_again_from_its_prompt() -> None:
    there, here = model(), model(rewinds=False)
    asked = case(there, "a b c <end>", "a c <end>")
    assert examine(asked, here, 2) == examine(asked, there, 2)


def only(*words: str) -> Any:
    target = TableModel(WORDS, AFTER)
    allowed = set(target.ids(*words))
    return lambda _path, token: token in allowed


def test_under_a_grammar_a_token_that_only_the_grammar_makes_likely_is_inside() -> None:
    # Without the grammar `b` and `c` have all the mass of the support; within it `d` is all that is left.
    target = model(allowed=only("a", "d", "<end>"))
    constrained = settings(grammar="root ::= ...", top_p=0.8)
    score = examine(case(target, "a d <end>", "a d <end>", settings=constrained), target, 2)
    assert (score.note, score.outliers, score.grammar) == ("", (), "applied")
    free = examine(case(target, "a d <end>", "a d <end>", settings=settings(top_p=0.8)), target, 2)
    assert [o.score.piece for o in free.outliers] == ["d"]


def test_what_the_grammar_forbids_is_outside_however_likely_it_is() -> None:
    target = model(allowed=only("a", "d", "<end>"))
    score = examine(case(target, "a d <end>", "a b c <end>", settings=settings(grammar="root ::= ...")), target, 2)
    assert score.candidate and score.candidate.margin is None
    assert score.scanned == 2


def test_a_baseline_that_does_not_fit_its_grammar_is_not_judged() -> None:
    target = model(allowed=only("a"))
    score = examine(case(target, "b c <end>", "b d <end>", settings=settings(grammar="root ::= ...")), target, 2)
    assert "grammar" in score.note


def test_a_grammar_that_llama_cpp_cannot_read_is_not_judged() -> None:
    target = model()
    score = examine(case(target, "a b <end>", "a c <end>", settings=settings(grammar="root ::= ...")), target, 2)
    assert "grammar" in score.note
