"""What blocks say of their candidates."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console

from agent_ab.gate import gate
from agent_ab.gate.gate import Rules
from agent_ab.gate.policy import Policy
from agent_ab.paths import RunPaths
from agent_ab.suite.blocks import Candidate, shared
from agent_ab.suite.blocks_view import data, view, words
from tests import verdicts


def candidate(name: str, passed: int, pairs: int, blocks: int = 5) -> Candidate:
    policy = shared(Policy(), 2)
    observations = verdicts.pairs(pairs, candidate=passed)
    verdict = gate.judge(verdicts.run(observations), observations, Rules(policy, policy))
    ready = SimpleNamespace(asked=SimpleNamespace(seeds=[None] * blocks))
    return Candidate(name, ready, RunPaths(Path(f"runs/{name}")), verdict)  # type: ignore[arg-type]


BAD, GOOD = candidate("accepts-all", 1, 12), candidate("mtp", 10, 20)


def test_a_rejected_candidate_says_after_how_many_blocks_it_was_stopped() -> None:
    lines = words([GOOD, BAD], 0.05)
    assert BAD.rejected and not GOOD.rejected
    assert lines[0].startswith("mtp: INCONCLUSIVE") or lines[0].startswith("mtp: ADOPT")
    assert lines[1].startswith("accepts-all: rejected, stopped after 3 of 5 blocks.")
    assert "alpha 0.05 / 2, so that evidence 40 decides" in lines[2]


def test_each_candidate_needs_the_evidence_that_its_share_of_alpha_asks_for() -> None:
    console = Console(width=140, file=StringIO(), record=True)
    console.print(view([GOOD, BAD], 0.05))
    text = console.export_text()
    assert "40 needed" in text and "REJECT" in text and "-0.90" in text


def test_seven_bad_pairs_are_enough_for_one_candidate_and_not_for_one_of_two() -> None:
    assert not candidate("bad", 1, 7).rejected
    alone = Policy()
    observations = verdicts.pairs(7, candidate=1)
    assert gate.judge(verdicts.run(observations), observations, Rules(alone, alone)).decision == "REJECT"


def test_the_data_hold_the_decision_and_its_run() -> None:
    found = data([GOOD, BAD], 0.05)["candidates"]
    assert [(c["name"], c["run"], c["blocks"], c["blocks_planned"]) for c in found] == [
        ("mtp", "mtp", 5, 5),
        ("accepts-all", "accepts-all", 3, 5),
    ]
    assert found[1]["decision"] == "REJECT"
    assert data([Candidate("new", GOOD.ready, GOOD.paths)], 0.05)["candidates"][0]["decision"] is None
