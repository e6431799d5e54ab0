import io
import json

from rich.console import Console

from agent_ab.lossless.distribution import Distribution, Position
from agent_ab.lossless.lossless import Lossless
from agent_ab.lossless.view import data, view
from tests.test_lossless import EQUAL, NOT_JUDGED, judged, outcome

TEST = Distribution(1, 50, (Position(0, 1, 0.0, None, 0.0, None), Position(1, 3, 9.0, 0.0001, 0.2, 0.1)), 0.01)


def shown(found: Lossless) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(view(found))
    assert isinstance(console.file, io.StringIO)
    assert max(map(len, console.file.getvalue().splitlines())) <= 100
    return " ".join(console.file.getvalue().split())


def test_every_difference_is_listed_with_its_class_and_equal_replies_are_counted() -> None:
    text = shown(outcome(judged(), judged(9.0), NOT_JUDGED, EQUAL))
    assert "3 of 4 replies differ: 1 near tie, 0 sampling, 1 outside support, 1 not judged" in text
    assert "1 others equal" in text and "candidate ' b'" in text and "no memory" in text
    assert "within 0.300 nat: the largest change of a logit gap" in text


def test_the_test_of_distributions_is_shown_with_its_power() -> None:
    text = shown(outcome(EQUAL, test=TEST))
    assert "token 2: differs: p = 0.0001" in text and "is found with 80 % power" in text
    assert "the distribution of token 2 differs" in text


def test_the_data_hold_everything_and_are_json() -> None:
    found = json.loads(json.dumps(data(outcome(judged(9.0), EQUAL, test=TEST))))
    assert (found["lossy"], found["undecided"], found["equal"]) == (True, False, 1)
    assert found["classes"]["outside support"] == 1
    assert found["comparisons"][0]["judged"]["score"]["candidate"]["piece"] == " b"
    assert found["symptoms"]["baseline"]["replies"] == 1
    assert list(found["sentences"]) == ["a @ 1"]
