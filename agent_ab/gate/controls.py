"""The profiles that test the apparatus: the baseline against itself, and the two control arms of llama-server. Pure.

llama-server can be told which share of its drafts to accept (`--spec-synth-rates`): none, and the candidate works like
the baseline and is slower (the placebo); all, and its text is wrong (the known-bad). What is stored of a control run is
found again by the shares that it forced.
"""

from collections.abc import Iterable

from agent_ab.config import ArmSettings, Profile
from agent_ab.model import Arm
from agent_ab.stats import power
from agent_ab.stats.eprocess import Side
from agent_ab.wording import counted

FLAG = "--spec-synth-rates"
DRAFTED = 3
"""Drafted tokens where the candidate does not say."""
VARIABLE = "server.speculation"
RATES = {"placebo": 0.0, "known-bad": 1.0}


def against_itself(profile: Profile) -> Profile:
    """Return the profile that plays the baseline in both arms."""
    return profile.model_copy(
        update={"name": f"{profile.name}.aa", "candidate": profile.baseline, "candidates": {}, "methods": {}}
    )


def control(profile: Profile, name: str) -> Profile:
    """Return the profile that plays the control `name` in the candidate's place."""
    candidate = profile.arm(Arm.CANDIDATE)
    speculation = candidate.server.speculation
    drafted = speculation.n_max or DRAFTED
    forced = speculation.model_copy(
        update={"n_max": drafted, "n_min": speculation.n_min or 0, "synth_rates": (RATES[name],) * drafted}
    )
    overrides = {**profile.baseline, "server": {**profile.baseline.get("server", {})}}
    overrides["server"]["speculation"] = forced.model_dump(mode="json")
    return profile.model_copy(
        update={
            "name": f"{profile.name}.{name}",
            "variable": VARIABLE,
            "candidate": overrides,
            "candidates": {},
            "methods": {},
        }
    )


def unavailable(profile: Profile, flags: Iterable[str]) -> str:
    """Return why there is no control to play with these `flags` of the candidate's llama-server; empty: there is."""
    candidate: ArmSettings = profile.arm(Arm.CANDIDATE)
    if candidate.server.engine != "llama-server":
        return f"the controls are llama-server's own, and the engine is {candidate.server.engine}"
    if FLAG not in frozenset(flags):
        return f"this llama-server has no {FLAG}"
    if not any(kind.startswith("draft") for kind in candidate.server.speculation.type.split(",")):
        return (
            f"the candidate drafts with no model ({candidate.server.speculation.type}), so that nothing can be forced"
        )
    return ""


def too_few(pairs: int, alpha: float) -> str:
    """Return why so many pairs reject nothing, not even a candidate that fails whatever the baseline solves; else empty."""
    fewest = power.fewest(-1.0, 0.0, Side.HARM, alpha)
    if fewest is not None and pairs >= fewest:
        return ""
    enough = "no number is enough" if fewest is None else f"{fewest} are the fewest"
    return f"{counted(pairs, 'pair')} cannot reject anything (alpha {alpha:g}): {enough}"
