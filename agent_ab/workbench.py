"""What a pair needs before its first attempt: the task, and each arm's engine, model and agent, found or made."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from agent_ab import agents, sandbox, tasks, workspace
from agent_ab.config import ArmSettings, Profile
from agent_ab.errors import UserError
from agent_ab.model import Arm, Observer, Task
from agent_ab.models import models
from agent_ab.server import serving

SCRATCH_BYTES = 70
"""Longest temporary directory: a socket of at most 107 bytes lies in a directory below it."""


@dataclass(frozen=True, slots=True)
class ArmParts:
    """One arm's settings with the engine and the model they came to."""

    settings: ArmSettings
    engine: serving.AnyEngine
    model: models.Model


@dataclass(frozen=True, slots=True)
class Bench:
    """What is ready before the first attempt starts."""

    profile: Profile
    task: Task
    arms: dict[Arm, ArmParts]


def prepare(profile: Profile, task_id: str, tasks_dir: Path, observer: Observer) -> Bench:
    """Find or make everything that a pair needs, and refuse here what cannot work. Raises UserError, ApparatusError."""
    task = tasks.private(tasks.load(task_id, tasks_dir))
    workspace.require_git()
    require_short_scratch()
    arms: dict[Arm, ArmParts] = {}
    for arm in Arm:
        settings = profile.arm(arm)
        sandbox.require(settings.sandbox.kind)
        model = serving.model(settings, task, observer)
        found = serving.find(settings.server, observer)
        serving.require(found, settings, model)
        agents.prepare(settings.agent, settings.sandbox.kind, observer)
        arms[arm] = ArmParts(settings, found, model)
    return Bench(profile, task, arms)


def require_short_scratch() -> None:
    """Raise UserError when a socket in a temporary directory would have too long a path."""
    root = tempfile.gettempdir()
    if len(root.encode()) > SCRATCH_BYTES:
        raise UserError(f"TMPDIR={root}: too long for the path of a unix socket; set a shorter one")
