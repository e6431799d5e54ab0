"""What is asked of both arms and what is made of it; tests/live/test_lossless.py asks them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_ab.config import ArmSettings, Profile, Sampling, Speculation
from agent_ab.engine.engine import Engine
from agent_ab.errors import UserError
from agent_ab.judge.case import Score, TokenScore
from agent_ab.judge.classes import Class, Judged, Threshold, classify
from agent_ab.judge.judge import Bench
from agent_ab.judge.symptoms import count
from agent_ab.lossless import lossless, replay
from agent_ab.lossless.distribution import Distribution, Position
from agent_ab.lossless.lossless import (
    Comparison,
    Lossless,
    Question,
    asked_of,
    compare_replies,
    longest_draft,
    repeated_of,
)
from agent_ab.lossless.replay import Raw, Replayed
from agent_ab.model import Arm, Event
from agent_ab.models.models import inspect
from agent_ab.requests import Recorded
from tests.builders import exchange
from tests.gguf_files import tiny
from tests.table_model import settings

LIMIT = Threshold(0.3, 200, 2)


def ignore(_event: Event) -> None:
    """Observe nothing."""


def request(name: str, **body: Any) -> Recorded:
    return Recorded(name, "code", {"messages": [], "max_tokens": 100, **body})


def question(**changes: Any) -> Question:
    return replace(Question((request("a"), request("b", temperature=0.3))), **changes)


def test_a_profile_whose_variable_is_no_speculation_cannot_be_asked() -> None:
    profile = Profile(name="x", variable="model.path")
    with pytest.raises(UserError, match="its variable is model"):
        lossless.prepare(profile, None, ignore)


def test_requests_keep_their_temperature_unless_others_are_asked_for() -> None:
    assert [one.name for one in asked_of(question(), Sampling(temperature=0.8))] == ["a@0.8", "b@0.3"]
    warm = asked_of(question(temperatures=(0.0, 1.0)), Sampling())
    assert [(one.name, one.body["temperature"]) for one in warm] == [
        ("a@0", 0.0),
        ("a@1", 1.0),
        ("b@0", 0.0),
        ("b@1", 1.0),
    ]
    assert {one.body["seed"] for one in warm} == {4242}


def test_a_cap_only_shortens_replies() -> None:
    assert [one.body["max_tokens"] for one in asked_of(question(max_tokens=7), Sampling())] == [7, 7]
    assert [one.body["max_tokens"] for one in asked_of(question(max_tokens=700), Sampling())] == [100, 100]


def test_repeated_replies_have_seeds_of_their_own_in_each_arm() -> None:
    asked = question(repeats=5, temperatures=(0.0,))
    arms = [repeated_of(asked, asked_of(asked, Sampling()), arm) for arm in Arm]
    seeds = [body["seed"] for arm in arms for requests in arm.values() for _, body in requests]
    assert len(seeds) == len(set(seeds)) == 20
    bodies = [body for arm in arms for requests in arm.values() for _, body in requests]
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(1.0, lossless.POSITIONS)}
    assert repeated_of(question(), asked_of(question(), Sampling()), Arm.BASELINE) == {}


@pytest.mark.parametrize(
    ("speculation", "longest"),
    [
        ({"type": "none"}, 0),
        ({"type": "draft-mtp"}, 3),
        ({"type": "draft-mtp", "n_max": 7}, 7),
        ({"type": "ngram-mod"}, 64),
        ({"type": "ngram-simple,draft-mtp", "ngram_draft": 9, "n_max": 2}, 9),
        ({"type": "ngram-cache"}, 3),
    ],
)
def test_the_longest_draft_is_that_of_any_type_in_the_list(speculation: dict[str, Any], longest: int) -> None:
    assert longest_draft(Speculation(**speculation)) == longest


def replayed(content: str, raw: Raw | None = None, **changes: Any) -> Replayed:
    return Replayed("a@1", exchange(0, content=content, **changes), raw)


def bench(tmp_path: Path) -> Bench:
    engine = Engine(tmp_path / "llama-server", "", "b1", frozenset(), (), "PATH")
    return Bench(engine, ArmSettings(), inspect(tiny(tmp_path / "m.gguf"), ignore), 3)


def compared(tmp_path: Path, left: Replayed, right: Replayed) -> Comparison:
    asked = asked_of(Question((request("a"),)), Sampling())
    (found,), _ = compare_replies(asked, (left,), (right,), bench(tmp_path), ignore)
    return found


def test_replies_whose_tokens_the_server_does_not_tell_are_compared_and_not_judged(tmp_path: Path) -> None:
    equal = compared(tmp_path, replayed("one"), replayed("one"))
    assert (equal.judged.kind, equal.path) == (None, "")
    found = compared(tmp_path, replayed("one"), replayed("", error="too long", status=400))
    assert found.judged.kind is Class.NOT_JUDGED
    assert "baseline: no tokens; candidate: too long" in found.judged.reason


def test_a_request_that_forces_tokens_is_not_judged(tmp_path: Path) -> None:
    raw = Raw("<go>", 1, "one", (1, 2), settings(), True)
    asked = {"messages": [], "reasoning_budget_tokens": 9}
    sides = [
        replayed(text, replace(raw, tokens=tokens), request=asked)
        for text, tokens in (("one", (1, 2)), ("two", (1, 3)))
    ]
    assert "forces tokens" in compared(tmp_path, *sides).judged.reason


def comparison(judged: Judged) -> Comparison:
    return Comparison("a", "code", 1.0, judged, "content")


def outcome(*judged: Judged, test: Distribution | None = None) -> Lossless:
    return Lossless(
        methods={Arm.BASELINE: "none", Arm.CANDIDATE: "draft-mtp"},
        model="m.gguf",
        build="b1",
        libraries="",
        threshold=LIMIT,
        comparisons=tuple(comparison(one) for one in judged),
        symptoms={arm: count([exchange(0)]) for arm in Arm},
        distribution=test,
    )


def judged(margin: float = 0.0) -> Judged:
    sides = TokenScore(1, " a", -1.0, 0, 0.0), TokenScore(2, " b", -2.0, 1, margin)
    return classify(Score("a@1", index=4, baseline=sides[0], candidate=sides[1], gap=0.1), LIMIT)


EQUAL, NOT_JUDGED = classify(Score("a@1"), LIMIT), classify(Score("a@1", "no memory"), LIMIT)


def test_a_fault_makes_a_method_lossy_and_near_ties_do_not() -> None:
    assert not outcome(judged(), EQUAL).lossy
    found = outcome(judged(), judged(9.0), EQUAL)
    assert found.lossy and len(found.faults) == 1 and len(found.differences) == 2


def test_differences_of_which_none_could_be_judged_leave_it_open() -> None:
    assert outcome(NOT_JUDGED, EQUAL).undecided and not outcome(NOT_JUDGED, EQUAL).lossy
    assert not outcome(NOT_JUDGED, judged()).undecided and not outcome(EQUAL).undecided


def test_another_distribution_is_a_fault_too() -> None:
    places = tuple(Position(i, 3, 9.0, p, 0.2, 0.1) for i, p in enumerate((0.5, 0.0001)))
    assert outcome(EQUAL, test=Distribution(1, 50, places, 0.01)).lossy
    assert not outcome(EQUAL, test=Distribution(1, 50, places[:1], 0.01)).lossy


def test_a_reply_is_what_the_judge_gets_of_it() -> None:
    assert replay.Raw("<go>", 1, "one", (1, 2), {}, True).said.tokens == (1, 2)
