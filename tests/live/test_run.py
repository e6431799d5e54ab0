"""A run directory holds the plan before anything starts, and a pair when it ends."""

import json
from pathlib import Path

import pytest

from agent_ab import run, workspace
from agent_ab.config import Sandbox, load_profile
from agent_ab.errors import UserError
from agent_ab.model import Arm, Event, Task
from agent_ab.schedule import PlannedPair
from agent_ab.store.store import Store, pair_from_json
from tests.command import ROOT
from tests.conftest import ignore


def test_the_plan_is_written_first_and_the_pair_when_it_ends(tmp_path: Path) -> None:
    profile = load_profile("scripted-solve", ROOT / "profiles")
    profile = profile.model_copy(update={"agent": profile.agent.model_copy(update={"kind": "nop"})})
    bench = run.prepare(profile, "transfer-repair", ROOT / "tasks", ignore)
    plans: list[bool] = []

    def watch(event: Event) -> None:
        if event.arm is not None and not plans:
            plans.append(len(list((tmp_path / "runs").glob("*/run.json"))) == 1)

    store = Store(tmp_path / "runs.db")
    planned = PlannedPair("transfer-repair", 8675309, 0, Arm.CANDIDATE)
    played = run.play_pair(bench, planned, tmp_path / "runs", store, watch)
    assert plans == [True]
    assert (played.candidate.position, played.baseline.position) == (0, 1)
    assert store.load_pair(played.name).outcome is played.outcome
    store.close()
    written = tmp_path / "runs" / played.name / "pair.json"
    assert pair_from_json(json.loads(written.read_text())) == played


@pytest.mark.parametrize(("solved", "passed"), [(False, 1), (True, 10)], ids=["starting code", "reference"])
def test_any_directory_can_be_checked_and_is_left_as_it_is(
    tmp_path: Path, transfer_repair: Task, solved: bool, passed: int
) -> None:
    tree = tmp_path / "tree"
    workspace.lay(transfer_repair, tree, solved=solved)
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    results = run.check_workspace(transfer_repair, tree, Sandbox(), ignore)
    assert sum(r.scored and r.status == "pass" for r in results) == passed
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before


def test_a_workspace_that_is_not_there_is_named(tmp_path: Path, transfer_repair: Task) -> None:
    with pytest.raises(UserError, match="nowhere"):
        run.check_workspace(transfer_repair, tmp_path / "nowhere", Sandbox(), ignore)
