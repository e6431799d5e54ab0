from typing import Any

import numpy as np
import pytest

from agent_ab.judge.rules import KEPT_ROWS, Place, Reading
from agent_ab.judge.sampler_support import from_settings
from tests.table_model import TableGrammar, TableModel, settings

WORDS = ["<go>", "a", "b", "c"]
AFTER = {"<go>": {"a": 3.0, "b": 2.0}, "a": {"b": 3.0}, "b": {"a": 3.0}}


def reading(target: TableModel, **changes: Any) -> Reading:
    chosen = settings(**changes)
    return Reading(target, [0], from_settings(chosen), chosen)


def place(*logits: float, allowed: set[int] | None = None, **changes: Any) -> Place:
    target = TableModel(WORDS, AFTER)
    grammar = None if allowed is None else TableGrammar(target.size, lambda _path, token: token in allowed)
    return Place(target, np.array(logits, np.float64), from_settings(settings(**changes)), grammar)


def test_a_token_is_possible_when_either_drawing_can_give_it() -> None:
    # Top-k leaves 0 and 1, and 0 and 2 within the grammar, which forbids 1.
    here = place(9.0, 8.9, 8.8, -9.0, -9.0, allowed={0, 2}, top_k=2)
    assert [here.possible(token) for token in range(3)] == [True, False, True]
    assert here.margin(1) == float("inf") and here.margin(2) == 0.0
    assert here.score(1).margin is None
    assert here.choices(0.0) == [0, 2]


def test_the_rivals_are_the_support_and_what_was_said_and_never_less_than_two() -> None:
    greedy = place(5.0, 4.0, 3.0, 2.0, 1.0, temperature=0.0)
    assert greedy.rivals([3]) == [0, 1, 3]
    assert place(5.0, 4.9, 4.8, -9.0, -9.0).rivals([]) == [0, 1, 2]


def test_a_score_tells_everything_of_a_token() -> None:
    score = place(2.0, 1.0, -np.inf, -np.inf, -np.inf).score(1)
    assert (score.token, score.piece, score.rank, score.margin) == (1, "a", 1, 0.0)
    assert score.logp == pytest.approx(np.log(1 / (1 + np.e)))
    assert place(2.0, 1.0, -np.inf, 0.0, 0.0).score(2).logp is None


@pytest.mark.parametrize("rewinds", [True, False])
def test_a_path_is_read_on_or_back_or_anew_and_the_rows_are_the_same(rewinds: bool) -> None:
    read, target = reading(TableModel(WORDS, AFTER, rewinds=rewinds)), TableModel(WORDS, AFTER)
    long = [1, 2] * KEPT_ROWS
    for path in ([], [1], [1, 2], long, [1], long[:-1], [2], []):
        here = read.place(path)
        last = path[-1] if path else 0
        assert here is not None and here.row.tolist() == target.begin([last]).tolist()


def test_going_on_reads_each_token_once() -> None:
    target = TableModel(WORDS, AFTER)
    read = reading(target)
    for length in range(6):
        read.place([1, 2, 1, 2, 1][:length])
    assert target.batches == [1] * 5


def test_a_grammar_goes_along_with_the_path_and_says_where_it_ends() -> None:
    target = TableModel(WORDS, AFTER, allowed=lambda path, token: token == (1 if len(path) % 2 == 0 else 2))
    read = reading(target, grammar="root ::= ...")
    here = read.place([1])
    assert here is not None and here.possible(2) and not here.possible(1)
    assert read.place([2]) is None
    again = read.place([1, 2])
    assert again is not None and again.possible(1)
    assert read.grammar_fits([1, 2, 1]) and not read.grammar_fits([1, 1])
    read.close()


def test_penalties_count_the_prompt_and_the_reply() -> None:
    target = TableModel(WORDS, AFTER)
    here = reading(target, presence_penalty=1.0).place([1])
    assert here is not None
    assert here.row[target.id("a")] == target.begin([1])[target.id("a")] - 1.0
    assert here.row[target.id("<go>")] == target.begin([1])[target.id("<go>")] - 1.0
