"""Pairs and attempts <-> their rows: which fact has a column, and which lies in an attempt's body. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from sqlmodel import SQLModel

from agent_ab.gate.observations import conversation_digest
from agent_ab.model import (
    Arm,
    Attempt,
    CheckResult,
    CheckStatus,
    Exchange,
    ExchangeLog,
    FileDigest,
    Json,
    Pair,
    RefusedRequest,
    Timings,
)
from agent_ab.store.tables import AttemptRow, CheckRow, EvidenceRow, ExchangeRow, PairRow

_ATTEMPT: TypeAdapter[Attempt] = TypeAdapter(Attempt)
_PAIR: TypeAdapter[Pair] = TypeAdapter(Pair)
_REFUSED: TypeAdapter[RefusedRequest] = TypeAdapter(RefusedRequest)
_TIMING_COLUMNS = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n", "draft_n", "draft_n_accepted")
_OWN_TABLES = {"checks", "log", "evidence"}


def pair_to_json(pair: Pair) -> Json:
    """Return `pair` as JSON-able data; `pair_from_json` is its inverse."""
    return _PAIR.dump_python(pair, mode="json")


def pair_from_json(data: Json) -> Pair:
    """Return the pair that `pair_to_json` wrote. Raises pydantic.ValidationError."""
    return _PAIR.validate_python(data)


def pair_row(pair: Pair, saved_at: str) -> PairRow:
    """Return the row of a finished pair."""
    data = _PAIR.dump_python(pair, mode="json", exclude={"baseline", "candidate"})
    return PairRow(
        run_id=pair.run,
        id=pair.id,
        task=pair.task,
        seed=pair.seed,
        repeat=pair.repeat,
        block=pair.block,
        attempted=pair.attempted,
        proven=pair.proven,
        again=pair.again,
        first_arm=pair.first_arm,
        variable=pair.variable,
        outcome=pair.outcome,
        proof=data["proof"],
        flips=data["flips"],
        findings=data["findings"],
        divergence=data["divergence"],
        aftermath=data["aftermath"],
        judgement=data["judgement"],
        saved_at=saved_at,
    )


def attempt_rows(pair: Pair, attempt: Attempt) -> Iterable[SQLModel]:
    """Yield the row of an attempt, then those of its checks, exchanges and evidence."""
    key: dict[str, Any] = {"run_id": pair.run, "pair_id": pair.id, "arm": attempt.arm.value}
    body = _ATTEMPT.dump_python(attempt, mode="json", exclude=_OWN_TABLES)
    if attempt.log:
        body["refused"] = [_REFUSED.dump_python(r, mode="json") for r in attempt.log.refused]
    yield AttemptRow(
        **key,
        outcome=attempt.outcome,
        position=attempt.position,
        life_position=attempt.life_position,
        started_at=attempt.started_at,
        duration_s=attempt.duration_s,
        agent_s=attempt.agent.duration_s if attempt.agent else None,
        agent_end=attempt.agent.end if attempt.agent else None,
        passed=attempt.passed,
        scored=attempt.total,
        conversation_sha256=conversation_digest(attempt.log),
        edited_production=attempt.patch.edited_production if attempt.patch else None,
        invalid_reason=attempt.invalid_reason,
        body=body,
    )
    for ordinal, check in enumerate(attempt.checks):
        yield CheckRow(
            **key,
            check_id=check.id,
            scored=check.scored,
            ordinal=ordinal,
            status=check.status,
            reason=check.reason,
            rule=check.rule,
            duration_s=check.duration_s,
        )
    for exchange in attempt.log.exchanges if attempt.log else ():
        yield _exchange_row(key, exchange)
    for file in attempt.evidence:
        yield EvidenceRow(**key, path=file.path, sha256=file.sha256, size=file.size, mode=file.mode)


def _exchange_row(key: dict[str, Any], exchange: Exchange) -> ExchangeRow:
    timings: dict[str, Any] = {name: getattr(exchange.timings, name, None) for name in _TIMING_COLUMNS}
    return ExchangeRow(
        **key,
        ordinal=exchange.index,
        path=exchange.path,
        agent_sha256=exchange.agent_sha256,
        server_sha256=exchange.server_sha256,
        status=exchange.status,
        finish_reason=exchange.finish_reason,
        error=exchange.error,
        **timings,
        started_s=exchange.started_s,
        first_byte_s=exchange.first_byte_s,
        last_byte_s=exchange.last_byte_s,
        tool_calls=len(exchange.tool_calls),
        concurrent=exchange.concurrent,
        streamed=exchange.streamed,
        pinned=dict(exchange.pinned),
    )


def pair_data(row: PairRow, attempts: Mapping[Arm, Json]) -> Json:
    """Return what `pair_from_json` makes a pair of."""
    own = row.model_dump(exclude={"run_id", "saved_at"})
    return own | {"run": row.run_id, "baseline": attempts[Arm.BASELINE], "candidate": attempts[Arm.CANDIDATE]}


def attempt_data(
    row: AttemptRow,
    checks: Iterable[CheckRow],
    exchanges: Iterable[ExchangeRow],
    evidence: Iterable[EvidenceRow],
) -> Json:
    """Return an attempt as `pair_from_json` takes it, its own tables' rows in any order."""
    body = dict(row.body)
    refused = body.pop("refused", None)
    log = None
    if refused is not None:
        calls = tuple(_load_exchange(e) for e in sorted(exchanges, key=lambda e: e.ordinal))
        log = ExchangeLog(calls, tuple(_REFUSED.validate_python(r) for r in refused))
    return body | {
        "checks": [
            CheckResult(c.check_id, CheckStatus(c.status), c.reason, c.rule, c.scored, c.duration_s, None)
            for c in sorted(checks, key=lambda c: c.ordinal)
        ],
        "log": log,
        "evidence": [FileDigest(e.path, e.sha256, e.size, e.mode) for e in sorted(evidence, key=lambda e: e.path)],
    }


def _load_exchange(row: ExchangeRow) -> Exchange:
    timings = None
    if row.prompt_n is not None:
        timings = Timings(**{name: getattr(row, name) for name in _TIMING_COLUMNS})
    return Exchange(
        index=row.ordinal,
        path=row.path,
        agent_sha256=row.agent_sha256,
        server_sha256=row.server_sha256,
        request=None,
        pinned=row.pinned,
        status=row.status,
        content="",
        reasoning="",
        tool_calls=tuple(None for _ in range(row.tool_calls)),
        finish_reason=row.finish_reason,
        usage=None,
        timings=timings,
        error=row.error,
        started_s=row.started_s,
        first_byte_s=row.first_byte_s,
        last_byte_s=row.last_byte_s,
        concurrent=row.concurrent,
        streamed=row.streamed,
    )
