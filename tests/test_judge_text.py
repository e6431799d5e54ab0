from typing import Any

from agent_ab.judge.case import Case, Guess, Said
from agent_ab.judge.exam import examine
from agent_ab.judge.rules import Reading
from agent_ab.judge.sampler_support import from_settings
from agent_ab.judge.text import NOT_LAID, Recut, recut
from tests.table_model import TableModel, settings

WORDS = ["<go>", "The", " c", "at", " cat", " dog", " odd", " sat", "\n", "<call>"]
AFTER = {
    "<go>": {"The": 5.0},
    "The": {" cat": 3.0, " dog": 2.9, " c": 2.0},
    " c": {"at": 5.0},
    "at": {" sat": 5.0, "<end>": 3.0},
    " cat": {" sat": 5.0, "<end>": 4.5},
    " dog": {" sat": 5.0, "<end>": 4.5},
    " sat": {"<end>": 5.0},
    "\n": {"<end>": 5.0},
}


def model(after: dict[str, dict[str, float]] | None = None, **more: Any) -> TableModel:
    return TableModel(WORDS, {**AFTER, **(after or {})}, **more)


def said(text: str, ended: bool = True, recorded: tuple[tuple[int, int], ...] | None = None) -> Said:
    spans = ((0, len(text)),) if recorded is None and text else recorded or ()
    return Said(None, ended, (Guess(text, spans),))


def cut(left: Said, right: Said, target: TableModel | None = None, **changes: Any) -> Recut | str:
    target = target or model()
    chosen = settings(**changes)
    return recut(left, right, Reading(target, [0], from_settings(chosen), chosen))


def words(found: Recut | str) -> tuple[str, ...]:
    assert isinstance(found, Recut), found
    target = model()
    return tuple(target.words[token] for token in (*found.path, found.baseline, found.candidate))


def test_texts_are_cut_as_the_tokenizer_cuts_them_where_the_model_could_have_said_so() -> None:
    found = cut(said("The cat sat"), said("The dog sat"))
    assert words(found) == ("The", " cat", " dog")
    assert isinstance(found, Recut) and found.laid


def test_a_text_that_the_model_can_only_have_said_with_other_tokens_is_no_fault() -> None:
    # The tokenizer would cut ` cat`, which the target does not say here; ` c` and `at` it does.
    target = model({"The": {" dog": 3.0, " c": 2.9}})
    assert words(cut(said("The dog sat"), said("The cat sat"), target)) == ("The", " dog", " c")


def test_the_baselines_own_text_may_have_been_said_with_other_tokens_too() -> None:
    target = model({"The": {" c": 3.0}, "at": {" sat": 5.0, "<end>": 4.9}})
    found = cut(said("The cat sat"), said("The cat"), target)
    assert isinstance(found, Recut)
    assert [target.words[t] for t in (*found.path, found.baseline, found.candidate)] == [
        "The",
        " c",
        "at",
        " sat",
        "<end>",
    ]


def test_where_no_way_leads_on_the_tokenizers_own_token_was_let_through() -> None:
    found = cut(said("The cat sat"), said("The odd sat"))
    assert words(found) == ("The", " cat", " odd")
    assert isinstance(found, Recut) and not found.laid


def test_a_reply_that_ends_where_the_target_would_go_on_ended_in_an_improbable_end() -> None:
    target = model({" cat": {" sat": 5.0}})
    found = cut(said("The cat sat"), said("The cat"), target)
    assert words(found) == ("The", " cat", " sat", "<end>")


def test_blanks_before_the_end_may_have_been_taken_away_by_the_server() -> None:
    target = model({" cat": {" sat": 5.0, "\n": 4.9}})
    found = cut(said("The cat sat"), said("The cat"), target)
    assert isinstance(found, Recut)
    assert (target.words[found.baseline], target.words[found.candidate], found.laid) == (" sat", "\n", True)


def test_a_baseline_that_the_model_would_not_have_said_is_no_measure() -> None:
    assert cut(said("The odd sat"), said("The cat sat")) == NOT_LAID


def test_a_reply_that_was_cut_off_where_the_other_goes_on_shows_no_difference() -> None:
    assert cut(said("The cat sat"), said("The cat", ended=False)) == NOT_LAID


def test_the_first_style_in_which_both_are_possible_is_taken() -> None:
    target = model({"<go>": {"\n": 5.0}, "\n": {"The": 5.0}})
    guesses = [
        Said(None, True, (Guess(text, ((0, len(text)),)), Guess("\n" + text, ((1, 1 + len(text)),))))
        for text in ("The cat", "The dog")
    ]
    found = cut(guesses[0], guesses[1], target)
    assert isinstance(found, Recut)
    assert [target.words[t] for t in found.path] == ["\n", "The"]


def test_nobody_is_accused_of_a_mark_that_was_guessed() -> None:
    # Whether a line break stood before the call is not known, and ` cat<call>` is nothing that this model says.
    left, right = said("The cat sat"), said("The cat<call>", recorded=((0, 7),))
    assert cut(left, right) == NOT_LAID
    written = cut(left, said("The cat<call>"))
    assert isinstance(written, Recut) and not written.laid


def test_the_end_of_a_constrained_reply_is_not_judged_since_closing_marks_may_have_been_taken_away() -> None:
    target = model({" cat": {" sat": 5.0}}, allowed=lambda _path, _token: True)
    assert cut(said("The cat sat"), said("The cat"), target, grammar="root ::= ...") == NOT_LAID


def test_a_search_that_is_given_up_proves_nothing() -> None:
    many = [f"{a}{b}" for a in "xyz" for b in "xyz"]
    target = TableModel(
        ["<go>", "x", "y", "z", *many, "!"],
        {w: {v: 1.0 for v in ["x", "y", "z", *many]} for w in ["<go>", "x", "y", "z", *many]},
    )
    text = "xyzxyzxyzxyzxyzxyzxyz"
    found = recut(said(text + "x"), said(text + "!"), Reading(target, [0], from_settings(settings()), settings()))
    assert isinstance(found, str) or found.candidate == target.id("!")


def test_a_case_of_texts_is_scored_like_one_of_tokens() -> None:
    target = model()
    case = Case("x", "<go>", 1, settings(), said("The cat sat"), said("The odd sat"))
    score = examine(case, target, 2)
    assert not score.exact and score.index == 1
    assert (
        score.candidate and score.candidate.piece == " odd" and score.candidate.margin and score.candidate.margin > 20
    )
    assert examine(Case("x", "<go>", 1, settings(), said("The odd"), said("The cat")), target, 2).note == NOT_LAID
