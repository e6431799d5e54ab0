"""Byte-pair merges: the textbook result, and equal bytes for equal corpora."""

from agent_ab.models.merges import ALPHABET, learn_merges, symbols


def test_the_alphabet_spells_every_byte_differently() -> None:
    assert len(set(ALPHABET)) == 256
    assert symbols("a b\n") == "aĠbĊ"
    assert symbols("é") == "Ã©"


def test_the_most_frequent_pair_is_merged_first_and_grows() -> None:
    assert learn_merges(["low low low lower lower"], 3) == [("l", "o"), ("lo", "w"), ("Ġ", "low")]


def test_a_pair_that_occurs_once_is_not_merged() -> None:
    assert learn_merges(["abc"], 10) == []


def test_an_empty_corpus_has_no_merges() -> None:
    assert learn_merges([], 10) == []
    assert learn_merges([""], 10) == []


def test_no_more_than_the_limit_are_learnt() -> None:
    assert len(learn_merges(["the cat and the hat and the rat"] * 2, 4)) == 4


def test_a_merge_never_crosses_a_word() -> None:
    merged = {a + b for a, b in learn_merges(["one two\none two\none two\n"], 50)}
    assert "Ġtwo" in merged and not any("Ċ" in word and len(word) > 1 for word in merged)


def test_a_run_of_one_symbol_is_counted_as_it_merges() -> None:
    merges = learn_merges(["aaaa aaaa"], 5)
    assert merges[:2] == [("a", "a"), ("aa", "aa")]


def test_each_pair_is_learnt_once_and_from_known_symbols() -> None:
    text = "def find(self, value):\n    return self.find(value) or self.value\n" * 3
    known = set(ALPHABET)
    for left, right in learn_merges([text], 200):
        assert left in known and right in known and left + right not in known
        known.add(left + right)
