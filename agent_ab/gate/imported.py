"""Results from elsewhere -> a run marked as imported, its pairs UNPROVEN (docs/verdict.md has the forms)."""

import csv
import hashlib
import io
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_ab import __version__
from agent_ab.config import explain
from agent_ab.errors import UserError
from agent_ab.model import (
    AgentEnd,
    AgentRun,
    Arm,
    Attempt,
    CheckCount,
    CheckResult,
    CheckStatus,
    Json,
    Outcome,
    Pair,
    RunKind,
    RunStatus,
)
from agent_ab.pair import pair
from agent_ab.store.store import Store

CHECKS = 10
"""Scored checks of an attempt in the TOML form, unless it says otherwise."""
CHECK_COLUMN = "check:"
COLUMNS = ("task", "seed", "arm")
TRUE, FALSE = ("1", "true", "yes", "pass"), ("0", "false", "no", "fail", "")


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Result(_Form):
    """One attempt: its checks by id, or their number."""

    checks: dict[str, bool] | None = None
    checks_passed: int | None = None
    checks_scored: int = CHECKS
    wall_s: float | None = None
    """Seconds of the agent's wall clock."""
    timed_out: bool = False
    edited_production_code: bool | None = None

    @property
    def passed(self) -> int:
        """Return how many checks passed."""
        return sum(self.checks.values()) if self.checks is not None else self.checks_passed or 0

    @property
    def scored(self) -> int:
        """Return how many checks were scored."""
        return len(self.checks) if self.checks is not None else self.checks_scored


class ResultPair(_Form):
    """Both arms' attempts on one task with one seed."""

    task: str = Field(min_length=1)
    seed: int = 0
    repeat: int = Field(0, ge=0)
    label: str = ""
    """What the source calls the pair; part of its id."""
    first_arm: Arm | None = None
    baseline: Result | None = None
    candidate: Result | None = None


class Results(_Form):
    """A file of results."""

    variable: str = "not stated"
    pairs: tuple[ResultPair, ...] = Field(min_length=1)


class _Toml(BaseModel):
    """What the TOML form must have; the rest is kept as it is."""

    setup: dict[str, Json] = {}
    pairs: list[dict[str, Json]]


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import."""

    run: str
    pairs: int
    faults: tuple[str, ...]
    """What the gate will call INVALID, of what cannot even be stored."""


def import_file(path: Path, store: Store) -> Imported:
    """Bring the results of a .toml, .json or .csv file into the database, as one block. Raises UserError."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not text in UTF-8") from None
    results, source = _read(path, text)
    pairs, faults = _storable(results)
    run_id = _run_id(path.stem, {summary.id for summary in store.runs()})
    plan = {
        "version": __version__,
        "imported_from": path.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "variable": results.variable,
        "pairs": len(pairs),
        "faults": list(faults),
        "source": source,
    }
    store.save_run(run_id, path.stem, __version__, plan, kind=RunKind.IMPORT)
    for found in pairs:
        store.save_pair(_pair(run_id, results.variable, found))
    store.end_run(run_id, RunStatus.FINISHED)
    return Imported(run_id, len(pairs), faults)


def _read(path: Path, text: str) -> tuple[Results, Json]:
    try:
        match path.suffix.lower():
            case ".toml":
                source = tomllib.loads(text)
                return _from_toml(source), source
            case ".json":
                return Results.model_validate(json.loads(text)), None
            case ".csv":
                return Results.model_validate({"pairs": _from_csv(text, path)}), None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be parsed: {error}") from None
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error)}") from None
    raise UserError(f"{path}: the form is known by the ending, which must be .toml, .json or .csv")


def _from_toml(source: Mapping[str, Json]) -> Results:
    """Read the form of published_experiment.toml; whatever else it tells is kept with the run."""
    form = _Toml.model_validate(source)
    limit = form.setup.get("task_time_limit_s", math.inf)
    seen: dict[str, int] = {}
    pairs = []
    for entry in form.pairs:
        found = {key: value for key, value in entry.items() if key != "pair"}
        for arm in Arm:
            if isinstance(found.get(arm), dict):
                timed_out = found[arm].get("wall_s", 0) >= limit
                found[arm] = {"timed_out": timed_out, **found[arm]}
        task = str(entry.get("task", ""))
        number = seen[task] = seen.get(task, -1) + 1
        pairs.append({"seed": number, "label": str(entry.get("pair", "")), **found})
    stated = [str(form.setup[arm]) for arm in Arm if arm in form.setup]
    return Results.model_validate({"variable": " against ".join(stated) or "not stated", "pairs": pairs})


def _from_csv(text: str, path: Path) -> list[Json]:
    """Read one line an attempt: task, seed, arm, and checks_passed with checks_scored, or a `check:<id>` column each."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise UserError(f"{path}: the first line must name the columns; missing: {', '.join(missing)}")
    pairs: dict[tuple[str, ...], Json] = {}
    for number, row in enumerate(reader, start=2):
        arm = (row.get("arm") or "").strip()
        if arm not in tuple(Arm):
            raise UserError(f"{path}: line {number}: arm {arm!r} is neither baseline nor candidate")
        if None in row or None in row.values():
            raise UserError(f"{path}: line {number}: has another number of fields than the first line")
        key: tuple[str, ...] = (row["task"], row["seed"], row.get("repeat") or "0")
        while arm in pairs.get(key, {}):
            # A second attempt of the same arm: kept apart, so that it is seen as the duplicate it is.
            key = (*key, "duplicate")
        found = pairs.setdefault(key, {"task": key[0], "seed": key[1], "repeat": key[2]})
        if row.get("first_arm"):
            found["first_arm"] = row["first_arm"]
        found[arm] = _csv_result(row, f"{path}: line {number}")
    return list(pairs.values())


def _csv_result(row: Mapping[str, str], where: str) -> Json:
    checks = {
        name.removeprefix(CHECK_COLUMN): _flag(value, f"{where}: {name}")
        for name, value in row.items()
        if name.startswith(CHECK_COLUMN) and value != ""
    }
    result: dict[str, Json] = {key: row[key] for key in ("checks_passed", "checks_scored", "wall_s") if row.get(key)}
    result["timed_out"] = _flag(row.get("timed_out", ""), f"{where}: timed_out")
    return {**result, "checks": checks} if checks else result


def _flag(text: str, where: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE + FALSE:
        raise UserError(f"{where}: {text!r} is neither of {', '.join(TRUE)} nor of {', '.join(w for w in FALSE if w)}")
    return word in TRUE


def _storable(results: Results) -> tuple[list[ResultPair], tuple[str, ...]]:
    """Return the pairs that the database can hold, and what is wrong with the others: the gate says INVALID."""
    kept: dict[tuple[str, int, int], ResultPair] = {}
    faults = []
    for found in results.pairs:
        name = _pair_id(found)
        key = (found.task, found.seed, found.repeat)
        results_of = {arm: getattr(found, arm.value) for arm in Arm}
        missing = [arm.value for arm, result in results_of.items() if result is None]
        odd = [arm.value for arm, result in results_of.items() if result and not math.isfinite(result.wall_s or 0)]
        bare = [arm.value for arm, r in results_of.items() if r and r.checks is None and r.checks_passed is None]
        if key in kept:
            faults.append(f"{name}: a duplicate attempt: task, seed and repeat occur twice")
        elif missing:
            faults.append(f"{name}: the {missing[0]} has no attempt; a pair needs both arms")
        elif odd:
            faults.append(f"{name}: the wall time of the {odd[0]} is not a number")
        elif bare:
            faults.append(f"{name}: the {bare[0]} has no result: neither checks nor checks_passed")
        else:
            kept[key] = found
    return list(kept.values()), tuple(faults)


def _run_id(stem: str, taken: set[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "imported"
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def _pair_id(found: ResultPair) -> str:
    return f"{found.task}-{found.label}" if found.label else f"{found.task}-{found.seed}-{found.repeat}"


def _pair(run_id: str, variable: str, found: ResultPair) -> Pair:
    assert found.baseline and found.candidate
    first = found.first_arm or Arm.BASELINE
    baseline = _attempt(Arm.BASELINE, found.baseline, first)
    candidate = _attempt(Arm.CANDIDATE, found.candidate, first)
    return Pair(
        run=run_id,
        id=_pair_id(found),
        task=found.task,
        seed=found.seed,
        repeat=found.repeat,
        first_arm=first,
        variable=variable,
        baseline=baseline,
        candidate=candidate,
        proof=(),
        outcome=pair.outcome(baseline, candidate, ()),
        flips=pair.flips(baseline, candidate),
        findings=tuple(_findings(found)),
        proven=False,
    )


def _findings(found: ResultPair) -> Iterable[str]:
    yield "imported: nobody proved here that only the declared variable differed"
    if found.first_arm is None:
        yield "which arm was played first is not known"
    for arm, result in ((Arm.BASELINE, found.baseline), (Arm.CANDIDATE, found.candidate)):
        if result and result.edited_production_code is not None:
            edited = "production code was edited" if result.edited_production_code else "no production code was edited"
            yield f"{arm}: {edited}"


def _attempt(arm: Arm, result: Result, first: Arm) -> Attempt:
    end = AgentEnd.TIMEOUT if result.timed_out else AgentEnd.COMPLETED
    agent = None if result.wall_s is None else AgentRun(end, None, result.wall_s, result.wall_s)
    return Attempt(
        arm=arm,
        outcome=Outcome.PASS if result.scored and result.passed == result.scored else Outcome.FAIL,
        position=0 if arm is first else 1,
        started_at="",
        duration_s=result.wall_s or 0.0,
        invalid_reason="",
        fixture_commit="",
        manifest_sha256="",
        server=None,
        agent=agent,
        log=None,
        patch=None,
        checks=tuple(
            CheckResult(name, CheckStatus.PASS if ok else CheckStatus.FAIL, "imported", "", True, 0.0, None)
            for name, ok in (result.checks or {}).items()
        ),
        world={},
        evidence=(),
        counted=CheckCount(result.passed, result.scored) if result.checks is None else None,
    )
