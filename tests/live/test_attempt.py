"""One attempt on the real parts: its order, its evidence, and its ends."""

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab import snapshot
from agent_ab.attempt import AttemptPlan, not_played, run_attempt
from agent_ab.config import load_profile
from agent_ab.engine.engine import Engine
from agent_ab.model import AgentEnd, Arm, Event, Outcome, Step, Task
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
