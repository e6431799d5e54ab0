"""A/A, controls, and a run that grows until it decides, all on the real server; one small task, so that it takes seconds."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_ab.gate.policy import Policy
from agent_ab.schedule import block_seed, digest
from tests.command import Done, agent_ab
from tests.small_suite import SmallSuite, small_suite

# A known-bad candidate writes until something ends it.
SHORT = {"response_budget = 8192": "response_budget = 256", "max_turns = 20": "max_turns = 4"}
LAX = "alpha = 0.45\nmax_pairs = 2\n"
"""With so little asked, four pairs are enough to reject."""
SEEDS = (4242, 8675309, 5, 6)


@pytest.fixture
def small(tmp_path: Path) -> SmallSuite:
    (tmp_path / "gate.toml").write_text(LAX, encoding="utf-8")
    return small_suite(tmp_path, tasks=1, changes=SHORT)


def played(small: SmallSuite, command: str, *more: object, seeds: tuple[int, ...] = SEEDS) -> Done:
    words = [command, "--profile", small.profile, "--tasks-dir", small.folder / "tasks"]
    words += ["--seeds", ",".join(map(str, seeds)), "--policy", "gate.toml", *more]
    return agent_ab(small.folder, *words, timeout_s=900)


def gate(small: SmallSuite, *more: object) -> Any:
    done = agent_ab(small.folder, "gate", "--json", *more)
    return json.loads(done.stdout) | {"status": done.status}


def test_the_known_bad_is_rejected_and_the_placebo_is_not(small: SmallSuite) -> None:
    done = played(small, "controls", "--json")
    assert done.status == 0, done.stdout + done.stderr
    states = {state["name"]: state for state in done.data["controls"]}
    assert {name: state["ok"] for name, state in states.items()} == {"placebo": True, "known-bad": True}
    bad, placebo = (gate(small, states[name]["run"]) for name in ("known-bad", "placebo"))
    assert (bad["verdict"], bad["status"], bad["counts"]["counted"]) == ("REJECT", 1, 4)
    assert placebo["verdict"] != "REJECT"
    assert placebo["correctness"]["mean"] == 0


@pytest.mark.long
def test_a_run_grows_by_blocks_of_settled_seeds_and_is_judged_with_its_aa_run(small: SmallSuite) -> None:
    done = played(small, "aa", "--json", seeds=SEEDS[:2])
    assert done.status == 0, done.stdout + done.stderr
    assert (done.data["pairs"], done.data["identical"], done.data["sd"], done.data["alarm"]) == (2, 2, 0.0, "")
    grown = played(small, "run", "--extend", "--json", seeds=SEEDS[:1])
    assert grown.status == 0, grown.stdout + grown.stderr
    verdict = gate(small)
    # A machine that repeats itself: however long it plays, it is one observation.
    assert (verdict["verdict"], verdict["counts"]["planned"]) == ("INCONCLUSIVE", 2)
    assert (verdict["counts"]["counted"], verdict["counts"]["repeated"], verdict["counts"]["blocks"]) == (1, 1, 2)
    assert [state["ok"] for state in verdict["controls"] if state["name"] == "A/A"] == [True]
    run = json.loads((small.folder / "runs" / verdict["run"] / "run.json").read_text(encoding="utf-8"))
    seeds = (SEEDS[0], block_seed(digest(run), 1))
    names = sorted(path.name for path in (small.folder / "runs" / verdict["run"]).iterdir() if path.is_dir())
    assert names == sorted(f"tiny-{seed}-0" for seed in seeds)
    again = gate(small, "--from-evidence", "--judge-again", "--tasks-dir", small.folder / "tasks", "--sandbox", "bwrap")
    assert (again["verdict"], again["counts"]) == (verdict["verdict"], verdict["counts"])
    assert Policy().sha256() != run["policy_sha256"]
