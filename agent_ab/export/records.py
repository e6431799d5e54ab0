"""What an export holds, table by table: the documented, versioned shape of docs/data.md."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from agent_ab.divergence import parting
from agent_ab.model import AgentEnd, Arm, Attempt, CheckResult, CheckStatus, Exchange, Json, Outcome, Pair, PairOutcome
from agent_ab.pair.metrics import measure
from agent_ab.review.marks import Mark, MarkKind
from agent_ab.store.store import RunRecord as StoredRun

SCHEMA = 1
"""Version of the tables' shape: 1, the first. Columns are added without raising it; a changed or dropped one raises it."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RunRecord(_Record):
    """The run that everything belongs to."""

    id: str
    created_at: str
    """UTC, ISO 8601."""
    kind: str
    """`pair`, `suite`, `aa`, `controls` or `import`."""
    status: str
    """`running`, `finished` or `stopped`."""
    profile: str
    version: str
    """Of agent_ab."""
    blocks: int
    """Planned blocks; a block is one seed over all tasks."""
    plan_sha256: str
    """Of the plan, as it was stored before anything started."""
    policy_sha256: str | None
    """Of the policy that was settled with the plan."""


class PairRecord(_Record):
    """One pair: two attempts with the same task, seed and repeat. The unit of all statistics."""

    run: str
    pair: str
    """Unique within the run; a VOID pair that was played again has a successor whose name ends in `.2`."""
    task: str
    seed: int
    repeat: int
    block: int
    attempted: int
    """Which try of the planned pair this is."""
    again: bool
    """The first pair of a server's life, played once more at its end; no observation of its own."""
    proven: bool
    """False: nobody proved that only the declared variable differed (imported data)."""
    first_arm: Arm
    variable: str
    """The declared variable."""
    outcome: PairOutcome
    fixed: int | None
    """Checks that failed in the baseline and passed in the candidate; null: only the number of checks is known."""
    broken: int | None
    """Checks that passed in the baseline and failed in the candidate."""
    divergence: str | None
    """What made the arms part: `identical`, `model`, `declared`, `environment`, `infrastructure`; null when nothing was compared."""
    divergence_exchange: int | None
    """The exchange in which they part."""
    divergence_token: int | None
    """Tokens of that exchange's reply that are still equal."""
    unproven_lines: list[str]
    """Names of the proof's lines that say NO."""
    findings: list[str]
    """What a reader must see, though it does not void the pair."""


class AttemptRecord(_Record):
    """One arm's execution of one pair."""

    run: str
    pair: str
    arm: Arm
    outcome: Outcome
    """INVALID: the apparatus broke, which says nothing about the arm."""
    invalid_reason: str
    position: int
    """0 when this arm was played first in its pair, 1 when second."""
    life_position: int
    """How many attempts its server had served before."""
    started_at: str
    duration_s: float
    """Of the whole attempt, seconds."""
    agent_s: float | None
    """Wall clock of the agent's process: the wait that a person has. Null when it did not run."""
    agent_end: AgentEnd | None
    agent_note: str
    passed: int
    """Scored checks that passed."""
    scored: int
    edited_production: bool | None
    files_changed: int | None
    turns: int
    """Exchanges with the model."""
    tool_calls: int
    prompt_tokens: int
    generated_tokens: int
    prefill_s: float
    """By the server's own clock."""
    decode_s: float
    """By the server's own clock."""
    tools_s: float
    """Between the exchanges: the agent and its tools."""
    other_s: float
    tokens_per_s: float | None
    """Generated tokens over decode time; null when nothing was generated."""
    prefill_tokens_per_s: float | None
    drafted: int
    """Drafted tokens."""
    accepted: int
    """Accepted drafted tokens."""
    acceptance: float | None
    """Accepted over drafted; null when nothing was drafted."""
    budget_stops: int
    """Generations that ended at the response budget."""
    http_errors: int
    broken_streams: int
    spec_type: str | None
    """The arm's speculation, as the server was told."""
    server_build: str | None
    server_sha256: str | None
    model_sha256: str | None


class CheckRecord(_Record):
    """One check's or probe's verdict on what one attempt left behind."""

    run: str
    pair: str
    arm: Arm
    check: str
    scored: bool
    """True for a check, false for a probe."""
    status: CheckStatus
    reason: str
    """One sentence. Written by judge code that quotes what untrusted code said."""
    rule: str
    """The sentence of the instruction that it enforces."""
    duration_s: float


class ExchangeRecord(_Record):
    """One request with its response, without the bodies, which lie in the attempt's exchanges.jsonl."""

    run: str
    pair: str
    arm: Arm
    exchange: int
    path: str
    agent_sha256: str
    """Of the body that left the agent."""
    server_sha256: str
    """Of the body that reached the server."""
    status: int | None
    """HTTP status; null when the server closed without answering."""
    finish_reason: str | None
    error: str | None
    prompt_n: int | None
    prompt_ms: float | None
    predicted_n: int | None
    predicted_ms: float | None
    cache_n: int | None
    draft_n: int | None
    """Drafted tokens; null, not 0, when nothing was drafted."""
    draft_n_accepted: int | None
    started_s: float
    """Seconds since the proxy started."""
    first_byte_s: float | None
    last_byte_s: float | None
    tool_calls: int
    concurrent: bool
    streamed: bool


class MarkRecord(_Record):
    """What a person said of a flip; the last mark of each flip."""

    run: str
    pair: str
    check: str
    kind: MarkKind
    note: str
    made_at: str
    quarantined: bool
    """The check disagreed with itself on the same snapshot: it counts in neither arm."""


class RunExport(_Record):
    """A whole run, as `agent-ab export RUN --json` prints it."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    """Version of this shape."""
    run: RunRecord
    verdict: dict[str, Json] | None = None
    """What the gate says, as `agent-ab gate --json` prints it; null when it was not asked."""
    pairs: list[PairRecord]
    attempts: list[AttemptRecord]
    checks: list[CheckRecord]
    exchanges: list[ExchangeRecord]
    marks: list[MarkRecord]

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)


TABLES: dict[str, type[_Record]] = {
    "pairs": PairRecord,
    "attempts": AttemptRecord,
    "checks": CheckRecord,
    "exchanges": ExchangeRecord,
    "marks": MarkRecord,
}
"""The tables by their names, which are the files' names too."""


def json_schema() -> Json:
    """Return the JSON Schema of `RunExport`."""
    return RunExport.model_json_schema(mode="serialization")


def plain_type(annotation: Any) -> tuple[type, bool]:
    """Return the type that a column of `annotation` stores (str, int, float, bool, list), and whether it may be null."""
    if get_origin(annotation) is UnionType:
        (inner,) = (part for part in get_args(annotation) if part is not NoneType)
        return plain_type(inner)[0], True
    if get_origin(annotation) is list:
        return list, False
    return next(kind for kind in (bool, int, float, str) if issubclass(annotation, kind)), False


def run_record(stored: StoredRun) -> RunRecord:
    """Return a run's record."""
    return RunRecord(**{name: getattr(stored, name) for name in RunRecord.model_fields})


def of_pair(pair: Pair) -> Iterator[tuple[str, _Record]]:
    """Give the records of one pair, each with the name of its table."""
    yield "pairs", _pair(pair)
    for arm in Arm:
        attempt = pair.attempt(arm)
        key: dict[str, Any] = {"run": pair.run, "pair": pair.id, "arm": arm}
        yield "attempts", _attempt(key, attempt)
        for check in attempt.checks:
            yield "checks", _check(key, check)
        for exchange in attempt.log.exchanges if attempt.log else ():
            yield "exchanges", _exchange(key, exchange)


def of_mark(run_id: str, mark: Mark) -> MarkRecord:
    """Return a mark's record."""
    return MarkRecord(
        run=run_id,
        pair=mark.pair_id,
        check=mark.check_id,
        kind=mark.kind,
        note=mark.note,
        made_at=mark.made_at,
        quarantined=mark.quarantined,
    )


def _pair(pair: Pair) -> PairRecord:
    parted = parting.from_json(pair.divergence).raw if pair.divergence is not None else None
    own = ("run", "task", "seed", "repeat", "block", "attempted", "again", "proven", "first_arm", "variable", "outcome")
    return PairRecord(
        **{name: getattr(pair, name) for name in own},
        pair=pair.id,
        fixed=_flips(pair, CheckStatus.PASS),
        broken=_flips(pair, CheckStatus.FAIL),
        divergence=parted.kind.value if parted else None,
        divergence_exchange=parted.exchange if parted else None,
        divergence_token=parted.token if parted else None,
        unproven_lines=[line.name for line in pair.proof if not line.ok],
        findings=list(pair.findings),
    )


def _flips(pair: Pair, now: CheckStatus) -> int | None:
    return sum(flip.candidate is now for flip in pair.flips) if pair.checks_known else None


def _attempt(key: dict[str, Any], attempt: Attempt) -> AttemptRecord:
    metrics = measure(attempt)
    agent, server, patch = attempt.agent, attempt.server, attempt.patch
    measured = ("turns", "tool_calls", "prompt_tokens", "generated_tokens", "tokens_per_s", "prefill_tokens_per_s")
    counted = ("drafted", "accepted", "acceptance", "budget_stops", "http_errors", "broken_streams")
    own = ("outcome", "invalid_reason", "position", "life_position", "started_at", "duration_s", "passed")
    return AttemptRecord(
        **key,
        **{name: getattr(attempt, name) for name in own},
        **{name: getattr(metrics, name) for name in (*measured, *counted)},
        **{name: getattr(metrics.wall, name) for name in ("prefill_s", "decode_s", "tools_s", "other_s")},
        scored=attempt.total,
        agent_s=agent.duration_s if agent else None,
        agent_end=agent.end if agent else None,
        agent_note=agent.note if agent else "",
        edited_production=patch.edited_production if patch else None,
        files_changed=len(patch.files) if patch else None,
        spec_type=server.spec_type if server else None,
        server_build=server.build if server else None,
        server_sha256=server.binary_sha256 if server else None,
        model_sha256=server.model_sha256 if server else None,
    )


def _check(key: dict[str, Any], check: CheckResult) -> CheckRecord:
    own = ("scored", "status", "reason", "rule", "duration_s")
    return CheckRecord(**key, check=check.id, **{name: getattr(check, name) for name in own})


def _exchange(key: dict[str, Any], exchange: Exchange) -> ExchangeRecord:
    timed = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n", "draft_n", "draft_n_accepted")
    same = {*ExchangeRecord.model_fields} - {*timed, *key, "exchange", "tool_calls"}
    return ExchangeRecord(
        **key,
        exchange=exchange.index,
        tool_calls=len(exchange.tool_calls),
        **{name: getattr(exchange.timings, name, None) for name in timed},
        **{name: getattr(exchange, name) for name in same},
    )
