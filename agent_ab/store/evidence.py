"""A finished pair read back from its run directory alone, and judged again: what it came to, whatever was claimed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

from pydantic import TypeAdapter, ValidationError

from agent_ab.config import SeedOrder
from agent_ab.errors import ApparatusError, UserError
from agent_ab.exchanges import read_log
from agent_ab.files import contents
from agent_ab.model import Arm, Attempt, CheckResult, CheckStatus, ExchangeLog, FileDigest, Json, Outcome, Pair, Patch
from agent_ab.nested import flatten, merge
from agent_ab.pair.pair import judge
from agent_ab.paths import AttemptPaths, RunPaths
from agent_ab.reading import MOST_VALUES, crowded
from agent_ab.schedule import Grid, digest

STEP = "evidence"
READ_BYTES = 1 << 20
MOST_BYTES = 256_000_000
"""Longest file of evidence that is read whole."""

_RESULTS: TypeAdapter[tuple[CheckResult, ...]] = TypeAdapter(tuple[CheckResult, ...])
_PAIR: TypeAdapter[Pair] = TypeAdapter(Pair)


def pair_ids(run: RunPaths) -> tuple[str, ...]:
    """Return the ids of the pairs that `run` has finished, VOID ones included, sorted."""
    if not run.root.is_dir():
        _broken("no such run directory", run.root)
    return tuple(sorted(path.name for path in run.root.iterdir() if run.pair_json(path.name).is_file()))


def load_pairs(run: RunPaths) -> Iterator[Pair]:
    """Give every finished pair of `run`, one at a time, since each holds all that was said. Raises ApparatusError."""
    for pair_id in pair_ids(run):
        yield load_pair(run, pair_id)


def load_pair(run: RunPaths, pair_id: str) -> Pair:
    """Return a pair rebuilt from its evidence and judged again. Raises ApparatusError when the evidence is damaged.

    Exchanges, checks, settings and patch come from their own files, each of which must have the sha256 that pair.json
    records; what a server or an agent was comes from pair.json. Outcomes, proof, flips and findings are worked out anew.
    """
    recorded = recorded_pair(run, pair_id)
    if (recorded.run, recorded.id) != (run.root.name, pair_id):
        _broken(f"says that it is {recorded.name}", run.pair_json(pair_id))
    arms = {arm: _attempt(recorded.attempt(arm), arm, run.attempt(pair_id, arm)) for arm in Arm}
    return judge(replace(recorded, baseline=arms[Arm.BASELINE], candidate=arms[Arm.CANDIDATE]))


def recorded_pair(run: RunPaths, pair_id: str) -> Pair:
    """Return a pair as pair.json claims it, unchecked. Raises ApparatusError."""
    path = run.pair_json(pair_id)
    try:
        return _PAIR.validate_json(read(path))
    except ValidationError as error:
        _broken(f"cannot be read as a finished pair: {_one_line(error)}", path)


def read(path: Path) -> bytes:
    """Return a file of JSON of a run directory, which may come from anywhere. Raises ApparatusError for what is no such file."""
    try:
        data = contents(path, MOST_BYTES)
    except OSError as error:
        _broken(f"cannot be read: {error.strerror}", path)
    if crowded(data):
        _broken(f"holds more than {MOST_VALUES:,} values", path)
    return data


def parsed(path: Path) -> Json:
    """Return the JSON of a file of a run directory. Raises ApparatusError."""
    try:
        return json.loads(read(path))
    except (ValueError, RecursionError) as error:
        _broken(f"cannot be read: {_one_line(error)}", path)


def disagreements(recorded: Pair, derived: Pair) -> tuple[str, ...]:
    """Return, a sentence each, where a recorded pair claims something else than its evidence comes to."""
    found = []
    if recorded.outcome is not derived.outcome:
        found.append(f"{derived.name}: recorded as {recorded.outcome}, the evidence comes to {derived.outcome}")
    for arm in Arm:
        mine, theirs = recorded.attempt(arm), derived.attempt(arm)
        if mine.outcome is not theirs.outcome:
            found.append(f"{derived.name} {arm}: recorded as {mine.outcome}, the evidence comes to {theirs.outcome}")
        statuses, real = _statuses(mine), _statuses(theirs)
        for key in statuses | real:
            if statuses.get(key) != real.get(key):
                claim, fact = (found_in.get(key, "not run") for found_in in (statuses, real))
                found.append(f"{derived.name} {arm}: {key} is recorded as {claim}, the evidence says {fact}")
    claimed, shown = ({line.name: line.ok for line in pair.proof} for pair in (recorded, derived))
    for name in claimed | shown:
        if claimed.get(name) is not shown.get(name):
            words = {True: "ok", False: "NO", None: "absent"}
            claim, fact = words[claimed.get(name)], words[shown.get(name)]
            found.append(f"{derived.name}: the proof's line {name!r} is recorded as {claim}, the evidence says {fact}")
    if {flip.check_id for flip in recorded.flips} != {flip.check_id for flip in derived.flips}:
        found.append(f"{derived.name}: other flips are recorded than the evidence shows")
    return tuple(found)


def against_plan(plan: Json, pair: Pair) -> tuple[str, ...]:
    """Return, a sentence each, where a pair is not what its run's plan (run.json) says."""
    found = []
    profile = plan.get("profile", {})
    if profile.get("variable") != pair.variable:
        found.append(f"{pair.name}: its variable is {pair.variable!r}, planned is {profile.get('variable')!r}")
    if not _planned(plan, pair):
        found.append(f"{pair.name}: task, seed, repeat and order are not among the planned pairs")
    for arm in Arm:
        found += [f"{pair.name} {arm}: {fault}" for fault in _against_profile(profile, pair.attempt(arm))]
        server = pair.attempt(arm).server
        for what, table, value in (
            ("llama-server", "engines", server and server.binary_sha256),
            ("model", "models", server and server.model_sha256),
        ):
            expected = plan.get(table, {}).get(arm.value)
            if isinstance(expected, dict):
                expected = expected.get(pair.task)
            if value and expected and value != expected:
                found.append(f"{pair.name} {arm}: another {what} than planned was used (sha256 {value[:12]})")
    return tuple(found)


def _planned(plan: Json, pair: Pair) -> bool:
    """Return whether a plan has the pair: by its list, or by its grid of blocks with the blocks that extend it."""
    key = (pair.task, pair.seed, pair.repeat, pair.first_arm)
    if "grid" not in plan:
        names = ("task", "seed", "repeat", "first_arm")
        return key in [tuple(entry.get(name) for name in names) for entry in plan.get("pairs", ())]
    try:
        seeds = tuple(SeedOrder.model_validate(order) for order in plan["grid"]["seeds"])
        grid = Grid(tuple(plan["grid"]["tasks"]), seeds, int(plan["grid"]["repeats"]), digest(plan))
        return key in [(p.task, p.seed, p.repeat, p.first_arm) for p in grid.block(pair.block)]
    except (LookupError, TypeError, ValueError):
        return False


def _against_profile(profile: Mapping[str, Json], attempt: Attempt) -> Iterator[str]:
    """Compare by the plan's own keys, so that a later version's new settings are no difference."""
    planned = flatten(merge(profile, profile.get(attempt.arm.value, {})))
    for key, value in attempt.settings.items():
        if key in planned and planned[key] != value:
            yield f"setting {key} is {value!r}, planned is {planned[key]!r}"


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file of any size. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def changed_files(paths: AttemptPaths, recorded: tuple[FileDigest, ...]) -> tuple[str, ...]:
    """Return, a sentence each, which files of an attempt are not as they were recorded."""
    found = []
    for file in recorded:
        path = paths.root / file.path
        # A name from outside must not lead out of the attempt's directory.
        if path.parent != paths.root or path.is_symlink() or not path.is_file():
            found.append(f"{file.path} is missing")
        elif path.stat().st_size != file.size:
            found.append(f"{file.path} was changed: {path.stat().st_size} bytes, recorded are {file.size}")
        elif sha256_of(path) != file.sha256:
            found.append(f"{file.path} was changed: its sha256 is not the recorded {file.sha256[:12]}...")
    return tuple(found)


def recorded_file(attempt: Attempt, file: Path) -> Path:
    """Return a file of an attempt, known to be the recorded one. Raises UserError when it is gone, ApparatusError."""
    if not file.is_file():
        raise UserError(f"{file}: the evidence is not there; --runs-dir names where it is")
    recorded = tuple(digest for digest in attempt.evidence if digest.path == file.name)
    changed = changed_files(AttemptPaths(file.parent), recorded)
    if changed or not recorded:
        _broken(changed[0] if changed else f"{file.name} is not among the recorded evidence", file.parent)
    return file


def recorded_log(pair: Pair, arm: Arm, runs_dir: Path) -> ExchangeLog:
    """Return what an arm of a stored pair said, from the recorded log. Raises UserError, ApparatusError."""
    return read_log(recorded_file(pair.attempt(arm), RunPaths(runs_dir / pair.run).attempt(pair.id, arm).exchanges))


def _attempt(recorded: Attempt, arm: Arm, paths: AttemptPaths) -> Attempt:
    if recorded.arm is not arm:
        _broken(f"its {arm} says that it is {recorded.arm}", paths.root)
    changed = changed_files(paths, recorded.evidence)
    if changed:
        _broken(changed[0], paths.root)
    if not paths.checks.is_file():
        return replace(recorded, outcome=Outcome.INVALID, checks=(), log=_salvaged(paths), settings=_settings(paths))
    listed = {file.path for file in recorded.evidence}
    for path in sorted(paths.root.iterdir()):
        if path.name not in listed:
            _broken("is not among the recorded evidence", path)
    if recorded.server is None or recorded.agent is None or recorded.patch is None:
        _broken("has checks, and no record of its server, its agent or its patch", paths.root)
    checks = _checks(paths)
    passed = all(check.status is CheckStatus.PASS for check in checks if check.scored)
    return replace(
        recorded,
        outcome=Outcome.PASS if passed else Outcome.FAIL,
        invalid_reason="",
        checks=checks,
        log=read_log(paths.exchanges),
        settings=_settings(paths),
        patch=_patch(paths, recorded.patch),
    )


def _checks(paths: AttemptPaths) -> tuple[CheckResult, ...]:
    try:
        checks = _RESULTS.validate_json(read(paths.checks))
    except ValidationError as error:
        _broken(f"cannot be read as check results: {_one_line(error)}", paths.checks)
    if not any(check.scored for check in checks):
        _broken("holds no scored check", paths.checks)
    return checks


def _salvaged(paths: AttemptPaths) -> ExchangeLog | None:
    """Return what the proxy recorded before the apparatus broke, if it can still be read."""
    try:
        return read_log(paths.exchanges)
    except ApparatusError:
        return None


def _settings(paths: AttemptPaths) -> dict[str, Any]:
    return flatten(parsed(paths.settings))


def _patch(paths: AttemptPaths, recorded: Patch) -> Patch:
    try:
        return replace(recorded, text=contents(paths.patch, MOST_BYTES).decode("utf-8", "surrogateescape"))
    except OSError as error:
        _broken(f"cannot be read: {error.strerror}", paths.patch)


def _statuses(attempt: Attempt) -> dict[str, str]:
    return {c.id if c.scored else f"{c.id} (probe)": c.status.value for c in attempt.checks}


def _one_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
    return " ".join(str(error).split())


def _broken(fault: str, path: Path) -> Never:
    raise ApparatusError(STEP, f"{path}: {fault}")
