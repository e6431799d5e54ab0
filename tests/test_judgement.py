from agent_ab.judge.case import Score, TokenScore
from agent_ab.judge.classes import Threshold, classify
from agent_ab.judge.judgement import SCHEMA, Judgement, fault, from_json, to_json
from agent_ab.judge.symptoms import count
from agent_ab.model import Arm
from tests.builders import exchange

LIMIT = Threshold(0.3, 200, 2)
SYMPTOMS = {arm: count([exchange(0)]) for arm in Arm}


def judgement(margin: float = 0.0) -> Judgement:
    sides = TokenScore(1, " a", -1.0, 0, 0.0), TokenScore(2, " b", -2.0, 1, margin)
    score = Score("x", index=4, baseline=sides[0], candidate=sides[1], gap=0.1)
    return Judgement(SCHEMA, classify(score, LIMIT), LIMIT, SYMPTOMS)


def test_a_judgement_survives_json() -> None:
    for found in (judgement(), judgement(9.0), Judgement(SCHEMA, None, None, SYMPTOMS)):
        assert from_json(to_json(found)) == found


def test_only_a_token_outside_the_support_is_a_fault() -> None:
    assert not fault(None) and not fault(judgement()) and not fault(Judgement(SCHEMA, None, None, SYMPTOMS))
    assert fault(judgement(9.0))


def test_its_sentence_is_empty_when_there_was_nothing_to_judge() -> None:
    assert judgement().sentence.startswith("near tie: token 4")
    assert Judgement(SCHEMA, None, None, SYMPTOMS).sentence == ""
