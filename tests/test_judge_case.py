from agent_ab.judge.case import CASES, SCORE, Case, Guess, Outlier, Said, Score, TokenScore


def test_cases_and_scores_survive_json() -> None:
    guessed = Said(None, False, (Guess("héllo", ((0, 6),)),))
    cases = (Case("x", "<go>", None, {"grammar": "root ::= x"}, Said((1, 2)), guessed),)
    assert CASES.validate_json(CASES.dump_json(cases)) == cases
    token = TokenScore(3, " a", None, 4, None)
    score = Score("x", index=2, baseline=token, candidate=token, gap=None, outliers=(Outlier(5, "candidate", token),))
    assert SCORE.validate_json(SCORE.dump_json(score)) == score


def test_a_token_whose_margin_is_unbounded_is_a_forbidden_one() -> None:
    assert (
        SCORE.validate_json(SCORE.dump_json(Score("x", candidate=TokenScore(1, "", -9.5, 2, None)))).candidate
        is not None
    )
