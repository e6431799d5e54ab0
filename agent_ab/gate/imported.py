"""Results from elsewhere -> a run marked as imported, its pairs UNPROVEN (docs/verdict.md has the forms)."""

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent_ab import __version__
from agent_ab.errors import UserError
from agent_ab.files import contents
from agent_ab.gate import import_forms, observations
from agent_ab.gate.import_forms import Result, ResultPair, Results
from agent_ab.gate.observations import Side
from agent_ab.gate.observed import observed
from agent_ab.model import (
    AgentEnd,
    AgentRun,
    Arm,
    Attempt,
    CheckCount,
    CheckResult,
    CheckStatus,
    Outcome,
    Pair,
    RunKind,
)
from agent_ab.pair import pair
from agent_ab.store.store import Store
from agent_ab.wording import visible

FILE_BYTES = 64_000_000
"""200,000 attempts with ten checks each; TOML, whose parser is a hundred times slower, has its own limit."""
TOML_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import."""

    run: str
    pairs: int
    """Those that the database can hold."""
    of: int
    """Those of the file."""
    faults: tuple[str, ...]
    """All for which the gate will say INVALID."""


def import_file(path: Path, store: Store) -> Imported:
    """Bring the results of a .toml, .json or .csv file into the database, as one block. Raises UserError."""
    try:
        data = contents(path, TOML_BYTES if path.suffix.lower() == ".toml" else FILE_BYTES)
        text = data.decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not text in UTF-8") from None
    found = import_forms.read(path, text)
    pairs, faults = _storable(found.results)
    run_id = _run_id(path.stem, {summary.id for summary in store.runs()})
    plan = {
        "version": __version__,
        "imported_from": visible(path.name),
        "sha256": hashlib.sha256(data).hexdigest(),
        "variable": found.results.variable,
        "pairs": len(pairs),
        "faults": [*found.faults, *faults],
        "source": found.source,
    }
    made = (_pair(run_id, found.results.variable, entry) for entry in pairs)
    store.save_finished(run_id, visible(path.stem), __version__, plan, made, kind=RunKind.IMPORT)
    # What the gate will read, judged by what the gate will ask: the two cannot disagree.
    seen = observed(store, store.run(run_id))
    ordered = sorted(seen.observations, key=observations.sort_key)
    return Imported(run_id, len(pairs), len(found.results.pairs), observations.faults(seen.run, ordered))


def _storable(results: Results) -> tuple[list[ResultPair], tuple[str, ...]]:
    """Return the pairs that the database can hold, and what is wrong with the others: the gate says INVALID."""
    kept: list[ResultPair] = []
    seen: set[tuple[str, int, int]] = set()
    names: set[str] = set()
    faults: list[str] = []
    for found in results.pairs:
        name = _pair_id(found)
        key = (found.task, found.seed, found.repeat)
        wrong = _without_result(found)
        if key in seen:
            wrong.insert(0, "a duplicate attempt: task, seed and repeat occur twice")
        elif name in names:
            wrong.insert(0, "a duplicate attempt: two pairs have this name; another label tells them apart")
        seen.add(key)
        names.add(name)
        if wrong:
            # The gate cannot look at what is not in the database.
            faults += [f"{name}: {line}" for line in (*wrong, *_side_faults(found))]
        else:
            kept.append(found)
    return kept, tuple(faults)


def _without_result(found: ResultPair) -> list[str]:
    """Return in which arms a result is not there, or no number that the database can hold."""
    wrong = []
    for arm, result in _results(found):
        if result is None:
            wrong.append(f"the {arm} has no attempt; a pair needs both arms")
            continue
        if not math.isfinite(result.wall_s or 0):
            wrong.append(f"the wall time of the {arm} is not a number")
        if _bare(result):
            wrong.append(f"the {arm} has no result: neither checks nor checks_passed")
    return wrong


def _side_faults(found: ResultPair) -> Iterable[str]:
    for arm, result in _results(found):
        if result is None:
            continue
        seconds = result.wall_s if math.isfinite(result.wall_s or 0) else None
        yield from observations.side_faults(arm, Side(result.passed, result.scored, {}, seconds))


def _results(found: ResultPair) -> tuple[tuple[Arm, Result | None], ...]:
    return (Arm.BASELINE, found.baseline), (Arm.CANDIDATE, found.candidate)


def _bare(result: Result) -> bool:
    return result.checks is None and result.checks_passed is None


def _run_id(stem: str, taken: set[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "imported"
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def _pair_id(found: ResultPair) -> str:
    """Return a name that is one part of a path, as a pair's evidence has it as a directory."""
    name = f"{found.task}-{found.label or f'{found.seed}-{found.repeat}'}"
    safe = re.sub(r"[/\\]", "_", name)
    return name if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


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
