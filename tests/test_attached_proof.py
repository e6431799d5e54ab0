"""What an attached server's answers show, and what nobody proved."""

import re
from dataclasses import replace

import pytest

from agent_ab.model import Json
from agent_ab.server import attached_proof
from agent_ab.server.attached_proof import Answers
from agent_ab.server.counters import Counters

URL = "http://127.0.0.1:8001"


def llama(speculative: bool, draft_n: int | None) -> Answers:
    timings: Json = {"predicted_n": 17} | ({"draft_n": draft_n, "draft_n_accepted": 4} if draft_n else {})
    return Answers(
        models=("m",),
        props={"build_info": "b7-abc", "model_path": "/models/m.gguf", "chat_template": "{{ x }}", "total_slots": 1},
        slots=[{"speculative": speculative}],
        canary={"timings": timings},
    )


VLLM = Answers(
    models=("m",),
    version={"version": "0.32.0"},
    canary={"usage": {}},
    before=Counters(drafts=1, drafted=3, accepted=2, finished=1),
    after=Counters(drafts=3, drafted=9, accepted=5, finished=2),
)
OTHER = Answers(models=("m",), canary={"usage": {"completion_tokens": 5}})


def test_a_server_is_called_what_it_calls_itself() -> None:
    assert attached_proof.program(llama(False, None)) == "llama-server b7-abc"
    assert attached_proof.program(VLLM) == "vLLM 0.32.0" and attached_proof.program(OTHER) == ""


@pytest.mark.parametrize(
    ("declared", "answers", "held", "words"),
    [
        ("none", llama(False, None), True, "none: in the server's own word, the canary drafted nothing"),
        ("draft-mtp", llama(True, 6), True, r"in the server's own word, the canary drafted 6 \(4 accepted\)"),
        ("none", llama(True, 6), False, "contradicted, the canary drafted 6 .* says that it speculates"),
        ("draft-mtp", llama(False, None), False, "contradicted.* does not speculate; say in server.speculation.type"),
        ("ngram", VLLM, True, r"the canary drafted 6 \(3 accepted\)"),
        ("none", replace(VLLM, before=Counters(finished=1), after=Counters(finished=2)), True, "drafted nothing"),
        ("none", VLLM, False, "contradicted"),
        ("none", OTHER, True, "the server does not say whether it speculates"),
        ("eagle3", OTHER, True, "the server does not say whether it speculates"),
    ],
)
def test_the_profiles_word_is_held_against_the_servers(declared: str, answers: Answers, held: bool, words: str) -> None:
    facts = attached_proof.facts(declared, URL, "m", answers)
    assert facts.speculation_proven is held
    assert re.search(words, facts.proof)


def test_nothing_is_ever_proven_and_each_lack_has_the_servers_own_word() -> None:
    for answers, words in (
        (llama(True, 6), ("it calls itself llama-server b7-abc", "it names /models/m.gguf", "it says that it does")),
        (OTHER, ("it does not say", "it calls it m")),
    ):
        facts = attached_proof.facts("none", URL, "m", answers)
        told = "; ".join(facts.unproven)
        assert len(facts.unproven) == 6 and all(word in told for word in words)
        assert facts.binary_sha256 == facts.model_sha256 == "" and facts.argv == ()


def test_two_servers_differ_by_their_url_at_least() -> None:
    one, other = (attached_proof.facts("none", url, "m", OTHER) for url in (URL, "http://127.0.0.1:8002"))
    assert one.props != other.props and replace(one, props={}) == replace(other, props={})
