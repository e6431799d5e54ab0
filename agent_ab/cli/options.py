"""What the commands that play make of their options."""

import math
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from agent_ab import tasks
from agent_ab.config import Profile, SeedOrder, load_seeds, nearest
from agent_ab.errors import UserError
from agent_ab.model import SandboxKind

MOST_REPEATS = 1000
"""A suite of four tasks with one seed would play for a month."""

MOST_MINUTES, MOST_HOURS = 1e5, 1e5
"""Beyond them nobody waits; products with them stay finite."""

TaskNames = Annotated[str | None, typer.Option("--tasks", help="Only these tasks, as in a,b; by default all.")]
SeedNumbers = Annotated[str | None, typer.Option(help="Only these seeds, as in 1,2; by default all of seeds.toml.")]
Repeats = Annotated[int, typer.Option(min=1, max=MOST_REPEATS, help="Play each task with each seed so often.")]
SeedsFile = Annotated[Path, typer.Option(help="The seeds and their arm order.")]


def bounded(text: str, *, least: float = 0, most: float) -> OptionInfo:
    """Return an option that takes a number from `least` to `most`, and no NaN, which lies between any two."""
    made: OptionInfo = typer.Option(min=least, max=most, callback=_number, help=text)
    return made


def _number(given: float | list[float] | None) -> float | list[float] | None:
    for value in given if isinstance(given, list) else [given]:
        if value is not None and math.isnan(value):
            raise typer.BadParameter(f"{value} is not a number.")
    return given


def require_parents(db: Path, runs_dir: Path) -> None:
    """Refuse a place for the database or the evidence that cannot be. Raises UserError."""
    if runs_dir.exists() and not runs_dir.is_dir():
        raise UserError(f"--runs-dir {runs_dir}: is a file, not a directory")
    for option, path in (("--runs-dir", runs_dir), ("--db", db)):
        if not path.absolute().parent.is_dir():
            raise UserError(f"{option} {path}: its parent directory does not exist")


def with_flags(profile: Profile, agent: str, sandbox: SandboxKind | None) -> Profile:
    """Return the profile with another agent or sandbox in both arms. Raises UserError."""
    kinds = ("builtin", "oracle", "nop")
    if agent in ("opencode", "command"):
        raise UserError(f'--agent {agent}: it needs settings of its own; give a profile with agent.kind = "{agent}"')
    if agent and agent not in kinds:
        raise UserError(f"--agent {agent!r}: no such agent{nearest(agent, list(kinds))}")
    changes: dict[str, object] = {}
    if agent:
        changes["agent"] = profile.agent.model_copy(update={"kind": agent})
    if sandbox:
        changes["sandbox"] = profile.sandbox.model_copy(update={"kind": sandbox})
    return profile.model_copy(update=changes)


def seed_number(text: str, option: str) -> int:
    """Return a seed that was given with `option`. Raises UserError."""
    try:
        number = int(text)
    except ValueError:
        raise UserError(f"{option} {text!r}: not an integer") from None
    if not 0 <= number < 2**32 - 1:
        raise UserError(f"{option} {text}: a seed lies between 0 and {2**32 - 2}")
    return number


def task_asked(name: str | None, tasks_dir: Path) -> str:
    """Return the task of --task, by default the only one there is. Raises UserError that says the names."""
    if name is not None:
        return name
    known = tasks.names(tasks_dir)
    if len(known) != 1:
        names = ", ".join(known) or "it holds none"
        raise UserError(f"--task: name the task to run; {tasks_dir}: {names}")
    return known[0]


def tasks_asked(text: str | None, tasks_dir: Path) -> tuple[str, ...]:
    """Return the tasks of --tasks, by default all. Raises UserError."""
    known = tasks.names(tasks_dir)
    wanted = known if text is None else _listed(text, "--tasks")
    for name in wanted:
        if name not in known:
            raise UserError(f"--tasks: no task {name!r} in {tasks_dir}{nearest(name, known)}")
    if len(set(wanted)) < len(wanted):
        raise UserError(f"--tasks {text}: names a task twice; --repeats plays it more often")
    return tuple(wanted)


def seeds_asked(text: str | None, seeds_file: Path) -> tuple[SeedOrder, ...]:
    """Return the seeds of --seeds with their arm order, by default all of the file. Raises UserError."""
    listed = load_seeds(seeds_file)
    if text is None:
        return listed.seeds
    numbers = [seed_number(part, "--seeds") for part in _listed(text, "--seeds")]
    if len(set(numbers)) < len(numbers):
        raise UserError(f"--seeds {text}: names a seed twice; --repeats plays it more often")
    return tuple(SeedOrder(seed=number, first=listed.first_arm(number)) for number in numbers)


def _listed(text: str, option: str) -> list[str]:
    """Return the parts between commas; none at all is a shell's empty variable, and does not mean everything."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UserError(f"{option} {text!r}: names none; leave the option out for all")
    return parts
