"""`agent-ab lossless` and `replay` on the real server and the judge."""

import json
from pathlib import Path

import pytest

from tests.command import agent_ab
from tests.played import once


def test_a_lossless_method_says_what_the_model_says(tmp_path: Path) -> None:
    words = ("--profile", "scripted-solve", "--classes", "tools", "--limit", 2, "--repeats", 3, "--json")
    done = agent_ab(tmp_path, "lossless", *words)
    assert done.status == 0, done.stderr
    data = done.data
    assert (data["lossy"], data["equal"], set(data["classes"].values())) == (False, 2, {0})
    assert data["symptoms"]["candidate"]["drafted"] > 0 and data["symptoms"]["baseline"]["drafted"] == 0
    # A scripted model has one thing to say, so that there is no distribution to test; it is said so.
    assert [place["p"] for place in data["distribution"]["positions"]] == [None] * 4
    assert Path(tmp_path, data["evidence"], "lossless.json").is_file()


def test_a_pair_whose_candidate_lets_wrong_tokens_through_is_caught_with_the_token(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    once_played = once(tmp_path_factory, "scripted-known-bad")
    tmp_path, played = once_played.copied(tmp_path), once_played.done.data
    name = played["name"]
    assert (
        played["judgement"]["class"] in ("outside support", "not judged") and "token" in played["judgement"]["sentence"]
    )
    assert played["judgement"]["symptoms"]["candidate"]["malformed tool calls"] != "0"
    kept = json.loads((tmp_path / "runs" / name / "baseline" / "prompts.json").read_text())
    assert len(kept["prompts"]) >= 8 and all(kept["prompts"]) and kept["settings"][0]["grammar_lazy"] is True
    replayed = agent_ab(tmp_path, "replay", name, "--arm", "baseline", "--limit", 3, "--json")
    assert (replayed.status, replayed.data["equal"]) == (0, 3)
    judged = agent_ab(tmp_path, "lossless", name, "--limit", 1, "--json")
    assert judged.status == 1
    (found,) = judged.data["comparisons"]
    assert (found["judged"]["kind"], found["judged"]["arm"]) == ("outside support", "candidate")
    score = found["judged"]["score"]
    assert score["candidate"]["piece"] and score["baseline"]["margin"] == 0.0 and score["grammar"] == "applied"
