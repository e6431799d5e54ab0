"""Pieces: every text is cut so that no piece occurs twice, as long as there is a way to."""

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_ab.errors import UserError
from agent_ab.models.merges import ALPHABET, learn_merges
from agent_ab.models.vocabulary import END, Vocabulary, control, cut_all, lines_of

CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "python3 -m unittest"}}\n</tool_call>'


def fresh(corpus: str = "") -> Vocabulary:
    return Vocabulary.start(learn_merges([corpus], 50), 3)


def check(texts: list[str], cuts: list[list[str]]) -> None:
    assert ["".join(cut) for cut in cuts] == texts
    pieces = [piece for cut in cuts for piece in cut]
    assert len(pieces) == len(set(pieces)) and "" not in pieces


def test_a_long_text_is_cut_into_pieces_of_about_one_length() -> None:
    text = " ".join(f"word{number}" for number in range(500))
    [cut] = cut_all([text], fresh(), "script")
    check([text], [cut])
    assert len(text) / 14 < len(cut) < len(text) / 10


def test_equal_replies_are_cut_at_different_places() -> None:
    texts = ["All tests pass now."] * 6
    check(texts, cut_all(texts, fresh(), "script"))


def test_equal_calls_are_cut_at_different_places_and_keep_the_trigger_whole() -> None:
    texts = [f"{CALL}", f"Again.\n{CALL}", f"Again.\n{CALL}"]
    cuts = cut_all(texts, fresh(), "script")
    check(texts, cuts)
    for cut in cuts:
        assert sum(piece.startswith("<tool_call>\n{") for piece in cut) == 1


def test_a_text_of_one_repeated_letter_is_cut_into_different_lengths() -> None:
    check(["a" * 200], cut_all(["a" * 200], fresh(), "script"))


def test_the_shortest_reply_chooses_first() -> None:
    texts = ["Okay, on we go.", "ok", "Ok", "k"]
    check(texts, cut_all(texts, fresh(), "script"))


def test_words_that_cannot_be_said_once_more_are_told_with_the_turn() -> None:
    with pytest.raises(UserError, match=r"script: turn 2: other turns say the same words"):
        cut_all(["ok", "ok", "o", "k"], fresh(), "script")


def test_a_piece_may_be_a_word_that_prompts_hold() -> None:
    vocabulary = fresh("done done done")
    [cut] = cut_all(["done"], vocabulary, "script")
    before = len(vocabulary.tokens)
    assert vocabulary.types[vocabulary.say(cut[0])] is gguf.TokenType.NORMAL
    assert len(vocabulary.tokens) == before


def read_back(vocabulary: Vocabulary, piece: str) -> str:
    """Return what llama.cpp prints for the token of `piece`."""
    index = vocabulary.say(piece)
    token = vocabulary.tokens[index]
    if vocabulary.types[index] is gguf.TokenType.NORMAL:
        return bytes(ALPHABET.index(symbol) for symbol in token).decode()
    return token


def test_a_symbol_of_the_byte_alphabet_is_not_taken_for_the_byte() -> None:
    vocabulary = fresh("a b a b a b")
    texts = ["ĠbĠb", " b b", "éé", "Ġx", " x"]
    for text, cut in zip(texts, cut_all(texts, vocabulary, "script"), strict=True):
        assert "".join(read_back(vocabulary, piece) for piece in cut) == text


def test_no_piece_is_a_tag_that_the_server_could_take_for_a_control_token() -> None:
    texts = ["<div></div> <tool_response>", "</s>", "tool_call", "call"]
    cuts = cut_all(texts, fresh(), "script")
    check(texts, cuts)
    assert not [piece for cut in cuts for piece in cut if piece[0] == "<" and piece[-1] == ">"]


def test_control_tokens_come_one_per_reply() -> None:
    vocabulary = fresh()
    for token in (END, control(0), control(2)):
        assert vocabulary.types[vocabulary.ids[token]] is gguf.TokenType.CONTROL
    assert control(3) not in vocabulary.ids


def test_long_lines_of_the_corpus_are_tokens_and_short_or_special_ones_are_not() -> None:
    corpus = ["    return self.value\n\nx = 1\n<|im_start|>system and more\n", "return self.value\n"]
    assert lines_of(corpus) == ["return self.value"]


@settings(max_examples=60)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="<|\0"), min_size=12), max_size=4))
def test_whatever_the_texts_are_they_are_said_or_refused(texts: list[str]) -> None:
    try:
        cuts = cut_all(texts, fresh("a few words of the prompt"), "script")
    except UserError as error:
        assert "say them differently" in str(error)
    else:
        check(texts, cuts)
