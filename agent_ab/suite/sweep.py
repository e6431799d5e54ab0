"""One setting that both arms share, at several values: the same pairs are played at each, block by block in turn."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent_ab.config import ArmSettings, Profile, nearest
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Json, Observer, Pair
from agent_ab.nested import flatten, merge
from agent_ab.pair.variable import named
from agent_ab.paths import RunPaths
from agent_ab.reading import explain, toml
from agent_ab.schedule import Standing
from agent_ab.store.store import Store
from agent_ab.suite import plan, suite
from agent_ab.suite.plan import Asked
from agent_ab.suite.suite import Show
from agent_ab.suite.sweep_table import At

TURN = "its turn is over, the next value's begins"


@dataclass(frozen=True, slots=True)
class Variant:
    """The profile with one value of the setting."""

    value: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Swept:
    """What was swept."""

    setting: str
    """Its dotted name."""
    variants: tuple[Variant, ...]


def parse(text: str, profile: Profile) -> Swept:
    """Return the profiles of `setting=value,value`. Raises UserError.

    The setting is named in full (`agent.response_budget`) or by its last part where that is clear.
    """
    name, equals, values = text.partition("=")
    wanted = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or len(wanted) < 2:
        raise UserError(f"sweep {text!r}: give a setting and at least two values, as in response_budget=8192,16384")
    if len(set(wanted)) < len(wanted):
        raise UserError(f"sweep {text!r}: a value is there twice")
    setting = _setting(name.strip())
    if named(profile.variable).covers(setting):
        raise UserError(
            f"sweep {setting}: is what the arms differ in ({profile.variable}); a sweep changes what both share"
        )
    return Swept(setting, tuple(_variant(profile, setting, value) for value in wanted))


def _setting(name: str) -> str:
    known = list(flatten(ArmSettings().model_dump(mode="json")))
    found = [dotted for dotted in known if dotted == name or dotted.endswith(f".{name}")]
    if name in found:
        return name
    if not found:
        short = {dotted.rpartition(".")[2] for dotted in known}
        raise UserError(f"sweep {name!r}: no such setting{nearest(name, sorted({*known, *short}))}")
    if len(found) > 1:
        raise UserError(f"sweep {name!r}: could be {' or '.join(found)}; name it in full")
    return found[0]


def _variant(profile: Profile, setting: str, value: str) -> Variant:
    nested: Any = _parsed(value, setting)
    for part in reversed(setting.split(".")):
        nested = {part: nested}
    try:
        changed = Profile.model_validate(merge(profile.model_dump(mode="json"), nested))
    except ValidationError as error:
        raise UserError(f"sweep {setting}={value}: {explain(error)}") from None
    short = setting.rpartition(".")[2]
    return Variant(value, changed.model_copy(update={"name": f"{profile.name}.{short}={value}"}))


def _parsed(value: str, setting: str) -> Json:
    try:
        return toml(f"value = {value}", setting)["value"]
    except UserError:
        return value


@dataclass(slots=True)
class _Turn:
    """One variant's run."""

    variant: Variant
    ready: plan.Suite
    paths: RunPaths
    end: Standing | None = None


def play(
    swept: Swept, ask: Callable[[Profile], Asked], places: tuple[Path, Path], store: Store, show: Show
) -> tuple[At, ...]:
    """Play the pairs at each value and return what they came to; interrupted, the same call goes on.

    `places`: the tasks, and where the runs go. Values take turns, a block each, so that what changes with the hours falls
    on all of them. Raises UserError, ApparatusError: a run stopped since its pairs stay VOID.
    """
    tasks_dir, runs_dir = places
    observer: Observer = show.step
    turns = []
    for variant in swept.variants:
        ready = plan.make_ready(ask(variant.profile), tasks_dir, observer)
        turns.append(_Turn(variant, ready, plan.begin_or_resume(ready, store, runs_dir)))
    blocks = max(store.run(turn.paths.root.name).blocks for turn in turns)
    for block in range(1, blocks + 1):
        for turn in turns:
            now = suite.standing(store.run(turn.paths.root.name), store)
            if now.blocks_done >= block:
                continue
            turn.end = suite.play(turn.ready, turn.paths, store, show, lambda _: TURN)
            if turn.end.stopped not in ("", TURN):
                raise ApparatusError("sweep", f"{swept.setting} = {turn.variant.value}: {turn.end.stopped}")
    return tuple(_at(store, turn.variant.value, turn.paths.root.name) for turn in turns)


def _at(store: Store, value: str, run: str) -> At:
    return At(value, run, pairs_of(store, run), suite.standing(store.run(run), store).void)


def pairs_of(store: Store, run: str) -> tuple[Pair, ...]:
    """Return a run's valid pairs, those left out that were played again at the end of a server's life."""
    loaded = (store.load_pair(f"{run}/{state.id}") for state in store.pair_states(run) if not state.again)
    return tuple(pair for pair in loaded if pair.valid)
