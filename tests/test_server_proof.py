"""Judging whether the declared speculation was shown."""

from dataclasses import replace

import pytest

from agent_ab.server.proof import Seen, judge

PLAIN = Seen(13, None, None, False, (), "", {}, "")
MTP = Seen(13, 9, 4, True, ("draft-mtp",), "adding speculative implementation 'draft-mtp'", {}, "")
NGRAM = replace(PLAIN, slots_speculative=True, log_types=("ngram-mod",))


@pytest.mark.parametrize(
    ("declared", "seen"),
    [
        ("none", PLAIN),
        ("draft-mtp", MTP),
        ("draft-mtp", replace(MTP, draft_n_accepted=0)),
        ("draft-mtp", replace(MTP, log_types=())),
        ("ngram-mod", NGRAM),
        ("ngram-mod", replace(NGRAM, draft_n=16, draft_n_accepted=7)),
        ("ngram-mod, draft-mtp", replace(MTP, log_types=("ngram-mod", "draft-mtp"))),
    ],
)
def test_what_was_declared_and_shown_is_proven(declared: str, seen: Seen) -> None:
    assert judge(declared, seen).proven


@pytest.mark.parametrize(
    ("declared", "seen", "missing"),
    [
        ("none", MTP, "no speculation"),
        ("none", NGRAM, "no speculation"),
        ("draft-mtp", PLAIN, "drafts by draft-mtp"),
        ("draft-mtp", replace(MTP, draft_n=None), "drafts by draft-mtp"),
        ("draft-simple", replace(PLAIN, slots_speculative=True), "drafts by draft-simple"),
        ("draft-mtp", replace(MTP, predicted_n=2), "an answer of more than 2 tokens"),
        ("ngram-mod", replace(NGRAM, log_types=()), "ngram-mod in the log and /slots"),
        ("ngram-mod", replace(NGRAM, slots_speculative=False), "ngram-mod in the log and /slots"),
        ("ngram-mod,draft-mtp", MTP, "ngram-mod in the log and /slots"),
        ("none", replace(PLAIN, error="HTTP 500: no"), "the canary request failed: HTTP 500: no"),
    ],
)
def test_what_was_not_shown_is_named(declared: str, seen: Seen, missing: str) -> None:
    judgement = judge(declared, seen)
    assert not judgement.proven and missing in judgement.sentence


def test_the_proof_is_a_sentence_with_its_figures() -> None:
    assert judge("draft-mtp", MTP).sentence == (
        "draft-mtp: the canary drafted 9 (4 accepted) in 13 tokens, /slots says speculative true,"
        " the log says adding speculative implementation 'draft-mtp'"
    )
