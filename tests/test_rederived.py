"""A run judged from its directory alone."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.gate import judged, rederived
from agent_ab.gate.rederived import JudgeAgain
from agent_ab.model import Arm, Outcome, SandboxKind
from agent_ab.tasks import digest, load
from agent_ab.verdict.verdict import Decision, Verdict
from tests.command import here
from tests.conftest import ignore
from tests.judged_again import double_pair, result
from tests.run_files import RUN, pair_of, played
from tests.small_task import small_task


@pytest.fixture
def runs_dir(tmp_path: Path) -> Iterator[Path]:
    store, folder = played(tmp_path, *(pair_of(seed) for seed in range(7)))
    store.close()
    yield folder


def judge(runs_dir: Path, again: JudgeAgain | None = None) -> Verdict:
    (record,) = rederived.records(runs_dir)
    return judged.verdict_on(record, (), lambda run: rederived.rederived(run, runs_dir, again))


def edit(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(data | changes), encoding="utf-8")


def test_the_evidence_alone_gives_the_verdict_of_the_database(runs_dir: Path) -> None:
    verdict = judge(runs_dir)
    # All pairs hold the same conversation: the seven count once.
    assert (verdict.counts.counted, verdict.counts.repeated, verdict.decision) == (1, 6, Decision.INCONCLUSIVE)
    done = here(runs_dir.parent, "gate", "--from-evidence", "--json")
    assert (done.status, done.data["counts"]["counted"], done.data["run"]) == (3, 1, RUN)


def test_an_outcome_that_was_claimed_and_is_not_there_is_invalid(runs_dir: Path) -> None:
    edit(runs_dir / RUN / "transfer-repair-3-0" / "pair.json", outcome="BOTH_PASS", flips=[])
    verdict = judge(runs_dir)
    assert verdict.decision is Decision.INVALID
    assert "recorded as BOTH_PASS, the evidence comes to BROKEN" in verdict.reasons[0]


def test_a_pair_that_was_never_planned_is_invalid(runs_dir: Path) -> None:
    plan = json.loads((runs_dir / RUN / "run.json").read_text(encoding="utf-8"))
    edit(runs_dir / RUN / "run.json", pairs=plan["pairs"][:-1])
    verdict = judge(runs_dir)
    assert verdict.decision is Decision.INVALID
    assert "are not among the planned pairs" in verdict.reasons[0]


def test_a_changed_file_breaks_the_evidence(runs_dir: Path) -> None:
    (runs_dir / RUN / "transfer-repair-3-0" / "candidate" / "checks.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ApparatusError, match=r"checks\.json was changed"):
        judge(runs_dir)


def test_another_policy_than_was_planned_is_known_by_its_hash(runs_dir: Path) -> None:
    edit(runs_dir / RUN / "run.json", policy_sha256="0" * 64)
    assert "The policy was changed after the run was planned: its hash is another one." in judge(runs_dir).warnings


def test_an_ageing_pair_is_no_observation(tmp_path: Path) -> None:
    store, runs_dir = played(tmp_path, pair_of(1), replace(pair_of(1), id="transfer-repair-1-0-again", again=True))
    store.close()
    assert judge(runs_dir).counts.counted == 1


def doubled(tmp_path: Path, claimed: bool) -> tuple[Path, JudgeAgain]:
    """Write a run of the task `double`, its candidate claimed to pass `number` or not."""
    tasks_dir = tmp_path / "tasks"
    task = small_task(tasks_dir)
    pair = double_pair()
    pair = replace(
        pair,
        baseline=replace(pair.baseline, checks=(result("zero", passed=True), result("number", passed=True))),
        candidate=replace(
            pair.candidate,
            outcome=Outcome.PASS if claimed else Outcome.FAIL,
            checks=(result("zero", passed=True), result("number", passed=claimed)),
        ),
    )
    broken = {"app.py": "def double(x):\n    return 0\n"}
    working = {"app.py": "def double(x):\n    return 2 * x\n"}
    store, runs_dir = played(tmp_path, pair, snapshots={Arm.BASELINE: working, Arm.CANDIDATE: broken})
    store.close()
    edit(runs_dir / RUN / "run.json", tasks={"double": digest(task)})
    return runs_dir, JudgeAgain(tasks_dir, Sandbox(kind=SandboxKind.NONE), ignore)


def test_checks_that_are_run_again_agree_with_an_honest_record(tmp_path: Path) -> None:
    runs_dir, again = doubled(tmp_path, claimed=False)
    verdict = judge(runs_dir, again)
    assert verdict.decision is Decision.INCONCLUSIVE
    assert verdict.correctness and verdict.correctness.broken == 1


def test_checks_that_are_run_again_find_a_pass_that_was_none(tmp_path: Path) -> None:
    runs_dir, again = doubled(tmp_path, claimed=True)
    assert judge(runs_dir).decision is Decision.INCONCLUSIVE
    verdict = judge(runs_dir, again)
    assert verdict.decision is Decision.INVALID
    assert "candidate: number is recorded as pass, judged again it is fail" in verdict.reasons[0]


def test_another_task_than_was_played_cannot_judge_again(tmp_path: Path) -> None:
    runs_dir, again = doubled(tmp_path, claimed=False)
    (again.tasks_dir / "double" / "instruction.md").write_text("other words", encoding="utf-8")
    assert load("double", again.tasks_dir)
    assert "is another one than was played" in judge(runs_dir, again).reasons[0]


def test_a_place_without_runs_or_with_a_broken_plan_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        rederived.records(tmp_path / "runs")
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "run.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="is no plan of a run"):
        rederived.records(tmp_path / "runs")
    (tmp_path / "runs" / "r" / "run.json").unlink()
    assert "holds no run to judge" in here(tmp_path, "gate", "--from-evidence").error
