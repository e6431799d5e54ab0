"""What the commands that play make of their options."""

from pathlib import Path

from agent_ab.config import Profile, nearest
from agent_ab.errors import UserError
from agent_ab.model import SandboxKind


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
