"""Database -> observations, in one pass of few statements: a hundred thousand pairs in seconds."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from agent_ab.gate.observations import (
    ATTACHED,
    CONTROL_KINDS,
    SNAPSHOT,
    Observation,
    RunFacts,
    Side,
    settings_digest,
    who_broke,
)
from agent_ab.gate.uncollected import uncollected
from agent_ab.model import AgentEnd, Arm, Json, Outcome, PairOutcome, RunKind, RunStatus
from agent_ab.nested import flatten, merge
from agent_ab.schedule import digest
from agent_ab.store.store import RunRecord, Store

FIELD, RECORD = "\x1f", "\x1e"
"""Separate a check from its verdict, and the checks from each other, in what SQLite puts together."""

PAIRS = """
SELECT id, task, seed, repeat, block, first_arm, outcome, proven, CASE WHEN outcome = 'VOID' OR NOT proven THEN proof END
FROM pair WHERE run_id = ? AND again = 0 ORDER BY id
"""
OF_ATTEMPT = "run_id = attempt.run_id AND pair_id = attempt.pair_id AND arm = attempt.arm"
ATTEMPTS = f"""
SELECT pair_id, arm, outcome, passed, scored, agent_s, agent_end, invalid_reason, conversation_sha256, duration_s,
       json_extract(body, '$.settings'),
       (SELECT group_concat(check_id || '{FIELD}' || status, '{RECORD}') FROM check_result WHERE {OF_ATTEMPT} AND scored = 1),
       (SELECT sha256 FROM evidence WHERE {OF_ATTEMPT} AND path = '{SNAPSHOT}')
FROM attempt WHERE run_id = ?
"""
MARKS = """
SELECT DISTINCT pair.task, mark.check_id
FROM mark JOIN pair ON pair.run_id = mark.run_id AND pair.id = mark.pair_id
WHERE mark.run_id = ? AND mark.quarantined
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """A run as the verdict sees it."""

    run: RunFacts
    observations: tuple[Observation, ...]


@uncollected()
def observed(store: Store, record: RunRecord) -> Observed:
    """Return a run's facts and its pairs, VOID ones included."""
    arms, outcomes = {arm.value: arm for arm in Arm}, {outcome.value: outcome for outcome in PairOutcome}
    with store.reading() as connection:
        sides, broken, seconds = _attempts(connection, record.id)
        set_aside = {task: frozenset(names) for task, names in _set_aside(connection, record.id).items()}
        found = []
        for pair, task, seed, repeat, block, first, outcome, proven, proof in _rows(connection, PAIRS, record.id):
            lines = json.loads(proof) if proof else ()
            reasons = [f"{line['name']}: {line['detail']}" for line in lines if not line["ok"]]
            found.append(
                Observation(
                    pair=pair,
                    task=task,
                    seed=seed,
                    repeat=repeat,
                    block=block,
                    first_arm=arms[first],
                    outcome=outcomes[outcome],
                    baseline=sides[Arm.BASELINE].get(pair),
                    candidate=sides[Arm.CANDIDATE].get(pair),
                    # Whatever the database says: nobody here has played them.
                    proven=bool(proven) and record.kind != RunKind.IMPORT,
                    unproven=tuple(line["detail"] for line in lines if line["name"] == ATTACHED),
                    broke=who_broke(broken[pair]) if pair in broken else None,
                    reason=reasons[0] if reasons else "",
                    set_aside=set_aside.get(task, frozenset()),
                )
            )
    return Observed(facts(record, found, seconds), tuple(found))


def facts(
    record: RunRecord, found: Sequence[Observation], seconds: Mapping[str, float], faults: Iterable[str] = ()
) -> RunFacts:
    """Return what the verdict must know of a run besides its pairs; `seconds` by pair, `faults` found elsewhere."""
    valid = [seconds[o.pair] for o in found if o.valid and seconds.get(o.pair)]
    planned_blocks = len(_grid(record).get("seeds", ())) or record.blocks
    return RunFacts(
        id=record.id,
        kind=record.kind,
        profile=record.profile,
        variable=variable(record),
        planned=_planned(record, found),
        extended=record.blocks > planned_blocks,
        running=record.status == RunStatus.RUNNING,
        control=record.kind in CONTROL_KINDS or forced_rates(record.plan) is not None,
        pair_s=sum(valid) / len(valid) if valid else None,
        faults=(*faults, *_faults(record, found)),
    )


def variable(record: RunRecord) -> str:
    """Return the declared variable of a run."""
    return str(record.plan.get("profile", {}).get("variable") or record.plan.get("variable", ""))


def subject(plan: Json) -> str:
    """Return what a run shares with the A/A and control runs that speak for it: baseline, tasks, engine, model, agent."""
    arm = Arm.BASELINE.value
    profile = plan.get("profile", {})
    shared = {key: value for key, value in profile.items() if isinstance(value, dict) or key == "seed_mode"}
    for key in (*(arm.value for arm in Arm), "candidates", "methods"):
        shared.pop(key, None)
    settings = flatten(merge(shared, profile.get(arm, {})))
    parts = {key: plan.get(key, {}).get(arm) for key in ("engines", "models", "agents")}
    return digest({"settings": settings, "tasks": plan.get("tasks", {}), **parts})


def _planned(record: RunRecord, found: Sequence[Observation]) -> dict[int, int]:
    size = len(_grid(record).get("tasks", ())) * int(_grid(record).get("repeats", 1))
    if size:
        return dict.fromkeys(range(record.blocks), size)
    return dict(Counter(block for block, _ in {(o.block, o.slot) for o in found}))


def _grid(record: RunRecord) -> Mapping[str, Json]:
    grid: Mapping[str, Json] = record.plan.get("grid", {})
    return grid


def forced_rates(plan: Json) -> tuple[float, ...] | None:
    """Return the acceptance that is forced on the candidate, a control whose text nobody would adopt; None: it is not."""
    profile = plan.get("profile", {})
    rates = flatten(merge(profile, profile.get(Arm.CANDIDATE.value, {}))).get("server.speculation.synth_rates")
    return None if rates is None else tuple(rates)


def _faults(record: RunRecord, found: Sequence[Observation]) -> tuple[str, ...]:
    said = list(record.plan.get("faults", ()))
    if record.plan_sha256 and digest(record.plan) != record.plan_sha256:
        said.append("the plan stored with the run is not the one that was hashed when it was made")
    if record.policy is not None and digest(record.policy) != record.policy_sha256:
        said.append("the policy stored with the run is not the one that was hashed when the run was planned")
    if record.kind == RunKind.IMPORT and record.plan.get("pairs") != len(found):
        said.append(f"to be imported: {record.plan.get('pairs')} pairs; in the database: {len(found)}")
    return tuple(said)


def _rows(connection: Connection, statement: str, run_id: str) -> Any:
    # Past SQLAlchemy's rows, which cost more than all the rest for a hundred thousand pairs.
    cursor = connection.connection.cursor()
    cursor.execute(statement, (run_id,))
    return cursor


def _attempts(
    connection: Connection, run_id: str
) -> tuple[dict[Arm, dict[str, Side]], dict[str, list[tuple[Arm, str]]], dict[str, float]]:
    """Return the sides by arm and pair, the INVALID attempts' reasons by pair, and each pair's seconds."""
    arms = {arm.value: arm for arm in Arm}
    known_checks: dict[str | None, dict[str, bool]] = {None: {}}
    known_settings: dict[str | None, str] = {None: ""}
    sides: dict[Arm, dict[str, Side]] = {arm: {} for arm in Arm}
    broken: dict[str, list[tuple[Arm, str]]] = defaultdict(list)
    seconds: dict[str, float] = defaultdict(float)
    for row in _rows(connection, ATTEMPTS, run_id):
        (
            pair,
            arm,
            outcome,
            passed,
            scored,
            agent_s,
            end,
            reason,
            conversation,
            duration_s,
            settings,
            checks,
            snapshot,
        ) = row
        seconds[pair] += duration_s
        if outcome == Outcome.INVALID:
            broken[pair].append((arms[arm], reason))
            continue
        if checks not in known_checks:
            known_checks[checks] = _parsed(checks)
        if settings not in known_settings:
            known_settings[settings] = settings_digest(json.loads(settings))
        sides[arms[arm]][pair] = Side(
            passed=passed,
            scored=scored,
            checks=known_checks[checks],
            seconds=agent_s,
            censored=end == AgentEnd.TIMEOUT,
            settings=known_settings[settings],
            conversation=conversation,
            snapshot=snapshot or "",
        )
    return sides, broken, seconds


def _parsed(text: str) -> dict[str, bool]:
    pairs = (entry.split(FIELD) for entry in text.split(RECORD))
    return {name: status == "pass" for name, status in pairs}


def _set_aside(connection: Connection, run_id: str) -> dict[str, set[str]]:
    """Return the checks that a review has measured to disagree with themselves, by task.

    They count in no pair of the run: which flips people look at must not decide which ones count.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for task, check in _rows(connection, MARKS, run_id):
        found[task].add(check)
    return found
