"""Several candidates against one baseline: their order of play, and how they share the risk of a wrong word."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_ab.config import Profile, load_profile
from agent_ab.errors import UserError
from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, Event, RunStatus, ServerLife, Step
from agent_ab.paths import RunPaths
from agent_ab.progress import describe
from agent_ab.schedule import PlannedPair, Standing
from agent_ab.suite import blocks
from agent_ab.suite.plan import Asked, asked_of
from agent_ab.suite.suite import Show
from tests import stored, verdicts
from tests.command import ROOT
from tests.conftest import ignore

THREE = load_profile("scripted-three-arms", ROOT / "profiles")


def planned(block: int, first: Arm) -> PlannedPair:
    return PlannedPair("t", 1, 0, first, block)


def test_the_baseline_is_first_or_last_as_the_seed_says_and_candidates_rotate() -> None:
    arms = ["a", "b", "c"]
    assert blocks.order(arms, planned(0, Arm.BASELINE)) == ("", "a", "b", "c")
    assert blocks.order(arms, planned(0, Arm.CANDIDATE)) == ("c", "b", "a", "")
    assert blocks.order(arms, planned(1, Arm.BASELINE)) == ("", "b", "c", "a")
    places = Counter(
        (name, blocks.order(arms, planned(n, Arm.BASELINE)).index(name)) for n in range(3) for name in arms
    )
    assert set(places.values()) == {1}


def test_alpha_is_shared_out_and_nothing_else_of_the_policy_changes() -> None:
    policy = Policy()
    shared = blocks.shared(policy, 4)
    assert shared.alpha == policy.alpha / 4
    assert shared.model_copy(update={"alpha": policy.alpha}) == policy


def refusal(profile: Profile, tmp_path: Path) -> str:
    def ask(*_: object) -> Asked:
        raise AssertionError("nothing is planned")

    with pytest.raises(UserError) as caught:
        blocks.play(profile, ask, (tmp_path, tmp_path), None, Show(ignore))  # type: ignore[arg-type]
    return str(caught.value)


def test_one_candidate_is_a_pair_and_a_long_lived_server_is_refused(tmp_path: Path) -> None:
    assert "at least two" in refusal(load_profile("cpu-demo", ROOT / "profiles"), tmp_path)
    assert "server_life" in refusal(THREE.model_copy(update={"server_life": ServerLife.PER_TASK}), tmp_path)


def test_a_profile_of_several_candidates_is_refused_as_a_pair() -> None:
    with pytest.raises(UserError, match=r"2 candidates \(mtp, accepts-all\); `agent-ab blocks` plays them"):
        THREE.arm(Arm.CANDIDATE)
    only = THREE.only("mtp")
    assert only.arm(Arm.CANDIDATE).server.speculation.n_max == 3
    assert only.name == "scripted-three-arms.mtp"


def sitting(tmp_path: Path, bad_pairs: int, told: list[Event]) -> tuple[Standing, dict[str, tuple[str, str]]]:
    """Return how a sitting stands that finds a good and a bad candidate, 12 and `bad_pairs` of 20 pairs played; and its runs."""
    with closing(stored.database(tmp_path)) as store:
        candidates = []
        for name, passed, count in (("good", 10, 12), ("bad", 1, bad_pairs)):
            pairs = [stored.pair(name, number, candidate=passed) for number in range(count)]
            stored.save(
                store, name, pairs, blocks=5, plan=stored.plan(seeds=5, name="demo"), policy=blocks.shared(Policy(), 2)
            )
            ready = SimpleNamespace(asked=asked_of(store.run(name)))
            candidates.append(blocks.Candidate(name, ready, RunPaths(tmp_path / name)))  # type: ignore[arg-type]
        made = blocks.Sitting(tuple(candidates), store, Show(told.append))
        made.end("interrupted")
        return made.all(), {run.id: (run.status, store.run(run.id).note) for run in store.runs()}


def test_a_rejection_is_told_and_stored_at_once_and_an_interruption_does_not_hide_it(tmp_path: Path) -> None:
    told: list[Event] = []
    _, runs = sitting(tmp_path, 12, told)
    assert [event.message for event in told if event.lasting] == [
        "good: run good, 12 of 20 pairs done",
        "bad: run bad, 12 of 20 pairs done",
        "bad: REJECT after 12 pairs, not played further (run bad)",
    ]
    assert runs["good"] == (RunStatus.STOPPED, "interrupted")
    assert runs["bad"][0] == RunStatus.STOPPED and runs["bad"][1].startswith(
        "rejected: The candidate solves fewer tasks"
    )


def test_a_candidate_rejected_by_its_last_block_is_not_called_stopped(tmp_path: Path) -> None:
    told: list[Event] = []
    _, runs = sitting(tmp_path, 20, told)
    assert told[-1].message == "bad: REJECT after 20 pairs (run bad)"
    assert runs["bad"][0] == RunStatus.FINISHED


def test_what_is_left_is_one_estimate_with_the_shared_baseline_once_and_nothing_of_the_rejected(tmp_path: Path) -> None:
    told: list[Event] = []
    both, one = sitting(tmp_path / "both", 4, told)[0], sitting(tmp_path / "one", 12, told)[0]
    arm_s = 12.0
    assert (both.pairs, both.done, both.left_s) == (40, 16, (8 + 16 + 16) * arm_s)
    assert (one.pairs, one.done, one.left_s) == (32, 24, (8 + 8) * arm_s)


def test_the_steps_of_a_candidate_bear_its_name_and_the_baselines_do_not() -> None:
    told: list[Event] = []
    observer = blocks.naming(told.append, "mtp")
    for arm in Arm:
        observer(Event(arm, Step.AGENT, "ends", elapsed_s=2))
    assert [describe(event).split()[0] for event in told] == ["baseline", "mtp"]


def test_the_page_says_how_many_pairs_reject_one_of_several_candidates() -> None:
    page = (ROOT / "docs" / "bench.md").read_text()
    heads, cells = (line for line in page.splitlines() if line.startswith(("| candidates |", "| pairs |")))
    said = dict(zip(heads.split("|")[2:-1], map(int, cells.split("|")[2:-1]), strict=True))
    counts = {"1 (`run`)": (1,), "2, 3": (2, 3), "4 to 6": (4, 6), "7 to 10": (7, 10)}
    assert list(counts) == [name.strip() for name in said]
    for name, fewest in said.items():
        for candidates in counts[name.strip()]:
            policy = blocks.shared(Policy(), candidates)
            words = []
            for number in (fewest - 1, fewest):
                seen = verdicts.pairs(number, candidate=1)
                words.append(judge(verdicts.run(seen), seen, Rules(policy, policy)).decision.value)
            assert words == ["INCONCLUSIVE", "REJECT"], candidates
