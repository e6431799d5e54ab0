import io
from dataclasses import replace

from rich.console import Console, Group

from agent_ab.judge.case import Score
from agent_ab.judge.classes import Threshold, classify
from agent_ab.judge.judgement import SCHEMA, Judgement, to_json
from agent_ab.judge.symptoms import count
from agent_ab.judge.view import judgement_data, judgement_view, threshold_sentence
from agent_ab.model import Arm, Pair
from agent_ab.report.report import pair_view
from tests.builders import exchange, pair
from tests.test_judgement import LIMIT, SYMPTOMS, judgement


def kept(found: Judgement) -> Pair:
    return replace(pair(), judgement=to_json(found))


def shown(of: Pair) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(Group(*judgement_view(of)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_class_both_tokens_and_how_the_threshold_was_measured_are_shown() -> None:
    text = " ".join(shown(kept(judgement(9.0))).split())
    assert (
        "outside support (candidate): token 4: baseline ' a' (-1.000, rank 0), candidate ' b' (-2.000, rank 1" in text
    )
    assert "the largest change of a logit gap between batches of 1 and of 2, at 200 places" in text


def test_why_it_was_not_judged_is_shown_without_a_threshold() -> None:
    found = Judgement(SCHEMA, classify(Score("x", "no memory"), LIMIT), LIMIT, SYMPTOMS)
    assert "not judged: no memory" in shown(kept(found)) and "places" not in shown(kept(found))


def test_symptoms_stand_side_by_side_even_when_there_was_nothing_to_judge() -> None:
    counted = {Arm.BASELINE: count([exchange(0)]), Arm.CANDIDATE: count([exchange(0, content="")])}
    text = shown(kept(Judgement(SCHEMA, None, None, counted)))
    line = next(line for line in text.splitlines() if line.startswith("empty replies"))
    assert line.split() == ["empty", "replies", "0", "1", "of", "1"]


def test_a_pair_from_before_there_was_a_judge_shows_nothing() -> None:
    assert judgement_view(pair()) == [] and judgement_data(pair()) is None


def test_the_data_say_what_the_view_says() -> None:
    told = judgement_data(kept(judgement()))
    assert told["class"] == "near tie" and told["sentence"].startswith("near tie: token 4")
    assert told["symptoms"]["candidate"]["replies"] == "1"
    nothing = judgement_data(kept(Judgement(SCHEMA, None, None, SYMPTOMS)))
    assert (nothing["class"], nothing["sentence"], nothing["threshold"]) == (None, "", "")


def test_show_has_the_judges_words() -> None:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(pair_view(kept(judgement()), "runs/x"))
    assert isinstance(console.file, io.StringIO)
    assert "near tie: token 4" in console.file.getvalue()


def test_an_unmeasured_threshold_is_said_so() -> None:
    assert "was not measured" in threshold_sentence(Threshold(0.0, 0, 2))
