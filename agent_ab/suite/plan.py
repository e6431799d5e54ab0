"""The plan of a suite: what is asked, with all that it needs; stored before anything starts, compared before it goes on."""

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_ab import __version__, run
from agent_ab.config import Profile, SeedOrder
from agent_ab.errors import UserError
from agent_ab.gate.policy import Policy, stored_policy
from agent_ab.model import Json, Observer, RunKind, RunStatus
from agent_ab.paths import RunPaths
from agent_ab.schedule import Grid, changes, digest
from agent_ab.store.store import RunRecord, Store
from agent_ab.workbench import Bench, prepare

FORMAT = 1
"""Version of the plan; a change of its shape raises it."""
SHOWN_CHANGES = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants played."""

    profile: Profile
    tasks: tuple[str, ...]
    seeds: tuple[SeedOrder, ...]
    repeats: int
    policy: Policy
    kind: RunKind = RunKind.SUITE


@dataclass(frozen=True, slots=True)
class Suite:
    """What was asked, with all that it needs found or made."""

    asked: Asked
    benches: Mapping[str, Bench]
    """By task."""
    plan: Json
    """What is stored before anything starts; the same plan is the same run."""

    @property
    def grid(self) -> Grid:
        """Return the pairs of the plan, and of what it can be extended by."""
        return grid(self.asked, digest(self.plan))


def grid(asked: Asked, plan_sha256: str) -> Grid:
    """Return the pairs that were asked for, and those of the blocks that the plan can be extended by."""
    return Grid(asked.tasks, asked.seeds, asked.repeats, plan_sha256)


def make_ready(asked: Asked, tasks_dir: Path, observer: Observer) -> Suite:
    """Find or make all that the suite needs, and work out its plan. Raises UserError, ApparatusError."""
    benches = {task: prepare(asked.profile, task, tasks_dir, observer) for task in asked.tasks}
    plan = {
        "format": FORMAT,
        "kind": asked.kind.value,
        "versions": {
            "agent_ab": __version__,
            "mitmproxy": importlib.metadata.version("mitmproxy"),
            "python": platform.python_version(),
        },
        "profile": asked.profile.model_dump(mode="json", exclude={"description"}),
        "grid": {
            "tasks": list(asked.tasks),
            "seeds": [order.model_dump(mode="json") for order in asked.seeds],
            "repeats": asked.repeats,
        },
        "policy_sha256": asked.policy.sha256(),
        **run.described(benches.values()),
    }
    return Suite(asked, benches, plan)


def asked_of(record: RunRecord) -> Asked:
    """Return what was asked when a stored run was planned. Raises UserError for a run that is no suite."""
    plan = record.plan
    if plan.get("format") != FORMAT:
        raise UserError(f"{record.id}: is no suite of this version of agent-ab; start a new run with --new")
    grid = plan["grid"]
    return Asked(
        profile=Profile.model_validate(plan["profile"]),
        tasks=tuple(grid["tasks"]),
        seeds=tuple(SeedOrder.model_validate(order) for order in grid["seeds"]),
        repeats=grid["repeats"],
        policy=stored_policy(record.policy),
        kind=RunKind(record.kind),
    )


def reopen(record: RunRecord, tasks_dir: Path, observer: Observer) -> Suite:
    """Make a stored run ready to be gone on with. Raises UserError when its plan would be another one today."""
    suite = make_ready(asked_of(record), tasks_dir, observer)
    _require_same_plan(record, suite.plan)
    return suite


def begin_or_resume(suite: Suite, store: Store, runs_dir: Path, *, new: bool = False) -> RunPaths:
    """Return the run that has this plan, or a new one. Raises UserError for an unfinished run of another plan."""
    kind, profile = suite.asked.kind, suite.asked.profile.name
    if not new:
        same = store.latest_run(kind, profile, digest(suite.plan))
        if same is not None:
            if not (runs_dir / same.id).is_dir():
                raise UserError(
                    f"{runs_dir / same.id}: the evidence of run {same.id} is not there; --runs-dir, or --new"
                )
            return RunPaths(runs_dir / same.id)
        latest = store.latest_run(kind, profile)
        if latest is not None and latest.status != RunStatus.FINISHED:
            _require_same_plan(latest, suite.plan)
    return run.begin(
        runs_dir,
        store,
        profile,
        suite.plan,
        kind,
        blocks=len(suite.asked.seeds),
        policy=suite.asked.policy.to_json(),
    )


def _require_same_plan(record: RunRecord, plan: Json) -> None:
    found = changes(record.plan, plan)
    if found:
        more = f" and {len(found) - SHOWN_CHANGES} more" if len(found) > SHOWN_CHANGES else ""
        raise UserError(
            f"run {record.id} is not finished, and its plan was another ({'; '.join(found[:SHOWN_CHANGES])}{more});"
            " put that back to go on with it, or start a new run with --new"
        )
