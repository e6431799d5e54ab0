"""gate.toml: by which rules the gate decides, settled before the run and hashed into it."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from agent_ab.config import Strict, nearest
from agent_ab.errors import UserError
from agent_ab.files import text_of
from agent_ab.model import Json
from agent_ab.reading import TOML_BYTES, explain, toml
from agent_ab.schedule import digest

ADDED: Mapping[str, Json] = {"solved_margin": 0.10}
"""Keys that came after the first release, with the values that policies without them stand for."""


class Policy(Strict):
    """The rules; the shipped gate.toml explains each key."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    margin: float = Field(0.10, gt=0, lt=1)
    """Share of checks per pair that a candidate may not lose."""
    solved_margin: float = Field(0.10, gt=0, lt=1)
    """Share of solved tasks that a candidate may not lose."""
    alpha: float = Field(0.05, gt=0, lt=0.5)
    """Greatest probability of a false REJECT, and of a false ADOPT."""
    max_solved_loss: float = Field(0.05, ge=0, le=1)
    """Greatest observed loss of solved share (BROKEN minus FIXED, over pairs) at which ADOPT is possible."""
    min_baseline_solved: float = Field(0.25, ge=0, le=1)
    """Least solved share of the baseline at which the tasks can show harm."""
    max_time_ratio: float = Field(1.0, gt=0)
    """Candidate's over baseline's wall time must be shown to be below."""
    inside_margin: Literal["reject", "adopt"] = "reject"
    """The word when the candidate is worse for sure, and by less than the margin for sure."""
    max_pairs: int = Field(120, ge=1)
    """Where `run --extend` stops."""
    quarantine_after: int = Field(1, ge=0)
    """Differing verdicts on equal snapshots in the A/A run after which a check counts in neither arm; 0: never."""
    void_retries: int = Field(2, ge=0)
    """How often a VOID pair is played again."""

    def to_json(self) -> Json:
        """Return the policy as it is stored with a run."""
        return self.model_dump(mode="json")

    def sha256(self) -> str:
        """Return the hash that a run is planned with."""
        return digest(self.to_json())

    def has_hash(self, sha256: str) -> bool:
        """Return whether a run was planned with this policy, also when a key that came later was not in it yet."""
        before = {key: value for key, value in self.to_json().items() if key not in ADDED or value != ADDED[key]}
        return sha256 in (self.sha256(), digest(before))


def shipped_policy() -> Policy:
    """Return the policy that the package ships, gate.toml of `agent_ab/data`."""
    return _parse((files("agent_ab") / "data" / "gate.toml").read_text(encoding="utf-8"), "gate.toml")


def load_policy(path: Path | None) -> Policy:
    """Read a policy file; without a path, the shipped one. Raises UserError."""
    if path is None:
        return shipped_policy()
    try:
        text = text_of(path, TOML_BYTES)
    except OSError as error:
        raise UserError(f"--policy {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--policy {path}: is not text in UTF-8") from None
    return _parse(text, str(path))


def stored_policy(data: Json) -> Policy:
    """Return the policy that a run was planned with. Raises UserError when it is none of ours."""
    try:
        return Policy.model_validate(data)
    except ValidationError as error:
        raise UserError(f"the policy stored with the run: {explain(error)}; name a file with --policy") from None


def changes(planned: Policy, used: Policy) -> tuple[str, ...]:
    """Return what differs between two policies, key by key, as `margin 0.1 -> 0.2`."""
    before, after = planned.to_json(), used.to_json()
    return tuple(f"{key} {before[key]} -> {after[key]}" for key in before if before[key] != after[key])


def _parse(text: str, name: str) -> Policy:
    data = toml(text, name)
    for key in data:
        if key not in Policy.model_fields:
            raise UserError(f"{name}: unknown key {key!r}{nearest(key, sorted(Policy.model_fields))}")
    try:
        return Policy.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{name}: {explain(error)}") from None
