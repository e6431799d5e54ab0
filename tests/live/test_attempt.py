"""One attempt on the real parts: its order, its evidence, and its ends."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab import snapshot, tasks
from agent_ab.attempt import AttemptPlan, not_played, run_attempt
from agent_ab.config import load_profile
from agent_ab.engine import engine as engines
from agent_ab.engine.engine import Engine
from agent_ab.model import AgentEnd, Arm, Attempt, Event, Outcome, Step, Task
from agent_ab.models import models
from agent_ab.models.models import Model
from agent_ab.paths import AttemptPaths
from tests.command import ROOT
from tests.conftest import ignore


@pytest.fixture
def plan(tmp_path: Path, engine: Engine, scripted: Model, transfer_repair: Task) -> Iterator[AttemptPlan]:
    settings = load_profile("scripted-solve", ROOT / "profiles").arm(Arm.CANDIDATE)
    paths = AttemptPaths(tmp_path / "candidate")
    paths.root.mkdir()
    with tempfile.TemporaryDirectory(prefix="aab-") as name:
        scratch = Path(name) / "scratch"
        scratch.mkdir(mode=0o711)
        Path(name).chmod(0o711)
        yield AttemptPlan(
            arm=Arm.CANDIDATE,
            settings=settings,
            task=transfer_repair,
            variable="server.speculation",
            seed=4242,
            repeat=0,
            position=0,
            engine=engine,
            model=scripted,
            paths=paths,
            scratch=scratch,
            observer=ignore,
        )
        snapshot.remove(scratch)


def with_agent(plan: AttemptPlan, **changes: object) -> AttemptPlan:
    agent = plan.settings.agent.model_copy(update=changes)
    return replace(plan, settings=plan.settings.model_copy(update={"agent": agent}))


def test_the_steps_are_taken_in_their_order_and_all_evidence_is_hashed(plan: AttemptPlan) -> None:
    events: list[Event] = []
    attempt = run_attempt(replace(with_agent(plan, kind="nop"), observer=events.append), None)
    begun = [event.step for event in events if event.message == "begins"]
    assert begun == list(Step)
    assert (attempt.outcome, attempt.passed) == (Outcome.FAIL, 1)
    assert attempt.server is not None and attempt.server.speculation_proven
    names = {file.path for file in attempt.evidence}
    assert {"server.log", "proxy.log", "exchanges.jsonl", "patch.diff", "snapshot.tar", "checks.json"} <= names
    for file in attempt.evidence:
        data = (plan.paths.root / file.path).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (file.sha256, file.size)


def test_the_patch_is_checked_as_it_stands_when_the_agent_runs_out_of_time(plan: AttemptPlan) -> None:
    attempt = run_attempt(with_agent(plan, time_limit_s=0.01), None)
    assert attempt.agent is not None and attempt.agent.end is AgentEnd.TIMEOUT
    assert attempt.outcome is Outcome.FAIL and len(attempt.scored) == 10


def test_the_server_never_sees_a_first_request_that_the_proxy_refuses(plan: AttemptPlan) -> None:
    attempt = run_attempt(plan, "0" * 64)
    assert attempt.outcome is Outcome.INVALID and "identity" in attempt.invalid_reason
    assert attempt.log is not None and attempt.log.exchanges == ()
    assert "chat/completions" not in plan.paths.server_log.read_text(errors="replace")


def test_an_attempt_that_was_not_played_says_nothing_about_its_arm(plan: AttemptPlan) -> None:
    attempt = not_played(plan)
    assert attempt.outcome is Outcome.INVALID and attempt.checks == () and attempt.duration_s == 0.0


def moved(plan: AttemptPlan, step: Step, change: Callable[[], object]) -> Attempt:
    """Play an attempt whose agent does nothing, and make `change` when `step` begins."""

    def observe(event: Event) -> None:
        if event.step is step and event.message == "begins":
            change()

    return run_attempt(replace(with_agent(plan, kind="nop"), observer=observe), None)


def owned(plan: AttemptPlan, folder: Path) -> AttemptPlan:
    """Return the plan with a model and an engine of its own, whose files may be changed."""
    path = Path(shutil.copy(plan.model.path, folder / "own.gguf"))
    assert isinstance(plan.engine, Engine)
    shutil.copytree(plan.engine.binary.parent, folder / "engine")
    return replace(plan, model=models.inspect(path), engine=engines.probe(folder / "engine" / plan.engine.binary.name))


def test_the_files_that_ran_are_recorded_by_device_inode_and_content(plan: AttemptPlan, tmp_path: Path) -> None:
    own = owned(plan, tmp_path)
    attempt = moved(own, Step.CHECKS, lambda: None)
    assert attempt.outcome is Outcome.FAIL and attempt.server is not None
    model = next(file for file in attempt.server.ran if file.what == "model")
    assert model.mapped and model.inode == own.model.path.stat().st_ino
    assert {file.what for file in attempt.server.ran} == {"model", "llama-server"}


@pytest.mark.parametrize("step", [Step.WORKSPACE, Step.AGENT])
@pytest.mark.parametrize("what", ["model", "llama-server"])
def test_a_file_that_is_swapped_under_the_server_makes_the_attempt_invalid(
    plan: AttemptPlan, tmp_path: Path, step: Step, what: str
) -> None:
    own = owned(plan, tmp_path)
    assert isinstance(own.engine, Engine)
    path = own.model.path if what == "model" else own.engine.binary

    def swap() -> None:
        other = path.with_name("other")
        other.write_bytes(path.read_bytes() + b"\0")
        other.chmod(0o755)
        other.rename(path)

    attempt = moved(own, step, swap)
    assert attempt.outcome is Outcome.INVALID
    assert "planned" in attempt.invalid_reason or "replaced" in attempt.invalid_reason


def test_checks_that_are_edited_while_the_agent_works_make_the_attempt_invalid(plan: AttemptPlan) -> None:
    copy = tasks.private(plan.task)
    edited = copy.root / "checks.py"
    attempt = moved(replace(plan, task=copy), Step.AGENT, lambda: edited.write_text(edited.read_text() + "\n"))
    assert attempt.outcome is Outcome.INVALID and "was changed while the run was played" in attempt.invalid_reason
