"""A parting as one line and as JSON."""

import json

import pytest

from agent_ab.divergence.divergence import Story, walk
from agent_ab.divergence.parting import Divergence, from_json, rules_used, sentence, to_json
from agent_ab.model import ExchangeLog
from tests.conversations import changed, conversation, golden_stories, golden_tokens, words


def real(name: str) -> tuple[Divergence, Divergence]:
    tokenize = words if name == "placebo" else golden_tokens(name)
    found = walk(*golden_stories(name), tokenize)
    return found.raw, found.normalised


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "cpu-demo",
            "model: exchange 0, token 1 of the reply (content): equal requests, different replies: "
            r"baseline '\n   ', candidate '\n '",
        ),
        (
            "known-bad",
            "model: exchange 1, token 9 of the reply (tool_calls[0].function.arguments): equal requests, different "
            "replies: baseline '{\"', candidate '{', then "
            "'The model produced output that does not match the expected peg-native format'",
        ),
        (
            "placebo",
            "environment: exchange 2, $.messages[15].content: a duration, in the result of bash "
            "'python3 -m unittest discover -s tests -t . 2>&1 | tail -n 3': "
            "baseline 'Ran 18 tests in 0.114s', candidate 'Ran 18 tests in 0.215s'",
        ),
    ],
)
def test_a_real_pairs_divergence_is_one_line(name: str, line: str) -> None:
    assert sentence(real(name)[0]) == line


def test_a_normalised_view_says_what_it_passed_over() -> None:
    assert sentence(real("placebo")[1]) == "identical: all 3 exchanges are equal, but for a duration since exchange 2"


def test_every_kind_has_a_line() -> None:
    log = conversation()
    shorter = walk(Story(log), Story(ExchangeLog(log.exchanges[:1], ()), "the agent gave up")).raw
    assert sentence(shorter) == (
        "environment: after 1 equal exchanges: candidate: the agent gave up, and the baseline's agent asked on"
    )
    stopped = walk(Story(log), Story(changed(log, 0, finish_reason="length")), words).raw
    assert sentence(stopped).endswith("baseline ends (tool_calls), candidate ends (length)")
    dead = walk(Story(log), Story(changed(log, 0, content="", tool_calls=(), error="refused", status=None))).raw
    assert sentence(dead).startswith("infrastructure: exchange 0, character 0 of the reply (content)")


@pytest.mark.parametrize("name", ["cpu-demo", "known-bad", "placebo"])
def test_a_parting_survives_json(name: str) -> None:
    found = walk(*golden_stories(name), golden_tokens(name) if name != "placebo" else None)
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


def test_the_rules_that_a_view_rests_on_are_named_once() -> None:
    assert rules_used(walk(*golden_stories("placebo"))) == ("durations",)
    assert rules_used(walk(Story(conversation()), Story(conversation()))) == ("call-ids",)
