"""Decoding methods by name."""

from pathlib import Path

import pytest

from agent_ab.bench.methods import parse
from agent_ab.config import Profile, load_profile
from agent_ab.errors import UserError
from agent_ab.pair.speculation import DRAFTING, MOST

PROFILES = Path(__file__).parent.parent / "profiles"
REAL = load_profile("cpu-demo", PROFILES)
SCRIPTED = load_profile("scripted-bench", PROFILES)
FILE = load_profile("rtx3090-qwen3.8-27b-mtp", PROFILES)


def refusal(names: str, profile: Profile = REAL) -> str:
    with pytest.raises(UserError) as caught:
        parse(names, profile)
    return str(caught.value)


def test_each_published_method_has_a_name() -> None:
    found = {m.name: m.speculation for m in parse("mtp-2,none,ngram-mod,ngram-simple,simple,draft-mtp-4", REAL)}
    assert next(iter(found)) == "none"
    assert {name: (s.type, s.n_max) for name, s in found.items()} == {
        "none": ("none", None),
        "mtp-2": ("draft-mtp", 2),
        "ngram-mod": ("ngram-mod", None),
        "ngram-simple": ("ngram-simple", None),
        "simple": ("draft-simple", 3),
        "draft-mtp-4": ("draft-mtp", 4),
    }
    assert found["simple"].draft is not None and found["simple"].draft.source == "smollm2"


def test_a_profiles_own_method_comes_first_and_takes_a_number() -> None:
    eagle3, wider = (m.speculation for m in parse("none,eagle3,eagle3-5", SCRIPTED)[1:])
    assert (eagle3.n_max, wider.n_max) == (3, 5)
    assert eagle3.draft == wider.draft and eagle3.draft is not None and eagle3.draft.acceptance == 0.7


def test_a_scripted_model_gets_generated_drafts() -> None:
    (_, simple) = parse("none,simple-2", SCRIPTED)
    assert simple.speculation.draft is not None and simple.speculation.draft.source == "generated"


def test_a_drafting_method_without_a_draft_says_where_to_name_it() -> None:
    message = refusal("none,eagle3", FILE)
    assert "[methods.eagle3]" in message and "DRAFT.gguf" in message


def test_names_that_nothing_is_known_of_are_refused_with_their_neighbours() -> None:
    assert "ngram-mod" in refusal("none,ngram-mud")
    for name in ("mtp-0", "mtp-99", "mtp-999", "draft-mtp-65", f"mtp-{'9' * 5000}"):
        assert "between 1 and 64" in refusal(f"none,{name}")
    assert "between 1 and 64" in refusal("none,eagle3-100", SCRIPTED)
    assert "no method 'foo-999'" in refusal("none,foo-999")
    assert "twice" in refusal("none,mtp-2,mtp-2")
    assert "baseline" in refusal("mtp-2,mtp-3")


def test_the_baseline_alone_is_refused_before_it_is_played() -> None:
    for names in ("none", " none, "):
        assert "alone" in refusal(names)


def test_the_page_says_how_many_tokens_each_name_drafts_without_a_number() -> None:
    page = (PROFILES.parent / "docs" / "bench.md").read_text()
    assert "the limit is 64" in page and MOST == 64
    for name, tokens in DRAFTING.items():
        (row,) = [line for line in page.splitlines() if line.startswith("|") and f"`{name}-N`" in line]
        assert row.split("|")[2].strip().split()[-1] == str(tokens), name
