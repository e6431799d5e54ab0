"""All that the page shows of one pair, as JSON-able data: checks, where the arms part, conversations, patches. Pure."""

import base64
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from agent_ab import wording
from agent_ab.divergence import aftermath, parting
from agent_ab.divergence.aftermath import ToolCall
from agent_ab.divergence.transcript import Turn, turns
from agent_ab.judge.view import judgement_data
from agent_ab.model import Arm, Attempt, CheckResult, CheckStatus, ExchangeLog, Json, Pair
from agent_ab.pair.metrics import Metrics, measure
from agent_ab.report.page.contents import Dossier
from agent_ab.report.page.lines import Mark, Numbered, check_of, label_of, mark_words

MESSAGE_CHARS = 20_000
"""Most characters of one message that the page holds; the whole is in the evidence."""
EVIDENCE_CHARS = 12_000
"""Most characters of one check's evidence in one arm."""
PATCH_CHARS = 200_000
"""Most characters of one arm's patch."""
TURNS = 400
"""Most exchanges of one arm."""


def pack(number: int, data: Json, evidence: str) -> Dossier:
    """Return a pair's data packed for the page: the same bytes for the same data."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    # A lone surrogate is what a patch that is not UTF-8 holds; it has no place in UTF-8.
    packed = gzip.compress(text.encode("utf-8", "replace"), compresslevel=9, mtime=0)
    return Dossier(number, base64.b64encode(packed).decode("ascii"), evidence)


def unpack(dossier: Dossier) -> Json:
    """Return the data that `pack` packed."""
    return json.loads(gzip.decompress(base64.b64decode(dossier.packed)))


def recorded(n: Numbered, marks: Sequence[Mark], href: str) -> Json:
    """Return what the database alone knows of a pair; `href` leads to its evidence."""
    pair = n.pair
    return {
        "number": n.number,
        "name": pair.name,
        "label": label_of(pair),
        "outcome": pair.outcome.value.replace("_", " "),
        "first": pair.first_arm.value,
        "started": {arm.value: pair.attempt(arm).started_at for arm in Arm},
        "proven": pair.proven,
        "checks": _checks(pair, marks),
        "parting": _parting(pair),
        "judge": _judge(pair),
        "symptoms": _symptoms(pair),
        "aftermath": _aftermath(pair),
        "arms": _arms(pair),
        "proof": [[line.name, line.ok, line.detail] for line in pair.proof],
        "findings": list(pair.findings),
        "invalid": {arm.value: pair.attempt(arm).invalid_reason for arm in Arm},
        "patches": {arm.value: _patch(pair.attempt(arm)) for arm in Arm},
        "href": href,
        "files": {arm.value: [file.path for file in pair.attempt(arm).evidence] for arm in Arm},
    }


def with_evidence(data: Json, pair: Pair) -> Json:
    """Return `data` with what only the evidence knows: conversations, and the checks' inputs and replies.

    `pair` must have come with bodies (`evidence.load_pair`).
    """
    checks = [_with_details(check, pair) for check in data["checks"]]
    return data | {"checks": checks, "turns": _conversation(pair)}


# ---- checks


def _checks(pair: Pair, marks: Sequence[Mark]) -> list[Json]:
    flips = {flip.check_id: flip.candidate for flip in pair.flips}
    said = {mark.check_id: mark for mark in marks if mark.pair_id == pair.id}
    keys = list(dict.fromkeys((c.id, c.scored) for c in (*pair.baseline.checks, *pair.candidate.checks)))
    found = []
    for check_id, scored in keys:
        sides = [check_of(pair.attempt(arm), check_id, scored) for arm in Arm]
        flip = flips.get(check_id) if scored else None
        mark = said.get(check_id) if scored else None
        found.append(
            {
                "id": check_id,
                "scored": scored,
                "rule": next((side.rule for side in sides if side), ""),
                "flip": "" if flip is None else ("broken" if flip is CheckStatus.FAIL else "fixed"),
                "mark": "" if mark is None else mark_words(mark),
                **{arm.value: _side(side) for arm, side in zip(Arm, sides, strict=True)},
            }
        )
    return found


def _side(check: CheckResult | None) -> Json:
    return None if check is None else {"status": check.status.value, "reason": check.reason}


def _with_details(check: Json, pair: Pair) -> Json:
    """Return a check with its inputs and replies, if it failed in an arm; those of the others stay in checks.json."""
    if all(check[arm.value] and check[arm.value]["status"] == CheckStatus.PASS for arm in Arm):
        return check
    sides = {}
    for arm in Arm:
        found = check_of(pair.attempt(arm), check["id"], check["scored"])
        if check[arm.value] and found and found.evidence is not None:
            # Without an indent: the page's script lays it out, and this is ten times as quick.
            text = json.dumps(found.evidence, ensure_ascii=False)
            sides[arm.value] = check[arm.value] | {"evidence": shortened(text, EVIDENCE_CHARS, "checks.json")}
    return check | sides


# ---- where they part


def _parting(pair: Pair) -> Json:
    if pair.divergence is None:
        return None
    found = parting.from_json(pair.divergence)
    raw = found.raw
    return {
        "kind": raw.kind.value,
        "sentence": parting.sentence(raw),
        "normalised": parting.sentence(found.normalised) if found.normalised != raw else "",
        "rules": list(parting.rules_used(found)),
        "common": raw.common,
        "exchange": raw.exchange,
        "where": raw.where.value,
        "path": raw.path,
        **{arm.value: _told(side) for arm, side in zip(Arm, (raw.baseline, raw.candidate), strict=True)},
    }


def _told(side: parting.Side) -> Json:
    token = None if side.token is None else {"id": side.token.id, "piece": side.token.piece}
    return {"value": side.value, "token": token, "end": side.end}


def _judge(pair: Pair) -> list[str]:
    found = judgement_data(pair)
    return [line for line in (found["sentence"], found["threshold"]) if line] if found else []


def _symptoms(pair: Pair) -> list[Json]:
    found = judgement_data(pair)
    if found is None:
        return []
    left, right = (found["symptoms"][arm.value] for arm in Arm)
    return [[label, left[label], right[label]] for label in left]


def _aftermath(pair: Pair) -> list[Json]:
    if pair.aftermath is None:
        return []
    found = aftermath.from_json(pair.aftermath)
    rows: dict[str, Callable[[aftermath.Course], str]] = {
        "turns after it (in all)": lambda c: f"{c.turns} ({c.turns_in_all})",
        "tools": lambda c: wording.named(c.tools, most=100),
        "files written by tools": lambda c: wording.named(c.touched),
        "files changed in the end": lambda c: wording.named(c.changed),
        "test runs": lambda c: str(c.test_runs),
        "malformed tool calls": lambda c: str(c.malformed_calls),
        "longest run of equal turns": lambda c: str(c.repeated_turns),
        "looping replies": lambda c: str(c.looping_replies),
        "ended": lambda c: c.ended,
    }
    return [[label, cell(found.baseline), cell(found.candidate)] for label, cell in rows.items()]


def _conversation(pair: Pair) -> list[Json]:
    """Return both conversations turn by turn; what both have in common is kept once."""
    common = parting.from_json(pair.divergence).raw.common if pair.divergence is not None else 0
    logs = [pair.baseline.log, pair.candidate.log]
    sides = [turns(log)[:TURNS] if isinstance(log, ExchangeLog) else () for log in logs]
    found = []
    for exchange, (left, right) in enumerate(zip_longest(*sides)):
        same = exchange < common and left is not None
        found.append(
            {
                "exchange": exchange,
                "common": same,
                "baseline": _turn(left),
                "candidate": None if same else _turn(right),
            }
        )
    return found


def _turn(turn: Turn | None) -> Json:
    if turn is None:
        return None
    return {
        "asked": [[said.role, shortened(said.text, MESSAGE_CHARS)] for said in turn.asked],
        "reasoning": shortened(turn.reasoning, MESSAGE_CHARS),
        "content": shortened(turn.content, MESSAGE_CHARS),
        "calls": [[call.name, shortened(_arguments(call), MESSAGE_CHARS)] for call in turn.calls],
        "end": turn.end,
    }


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return call.text
    return "\n".join(f"{name}={value}" for name, value in call.arguments.items())


def _patch(attempt: Attempt) -> Json:
    if attempt.patch is None:
        return None
    text = shortened(attempt.patch.text, PATCH_CHARS, "patch.diff")
    return {"text": text, "files": wording.capped(list(attempt.patch.files)), "flags": list(attempt.patch.flags)}


def shortened(text: str, most: int, file: str = "exchanges.jsonl") -> str:
    """Return `text`, its middle left out and the gap named when it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    return f"{text[:head]}\n[... {len(text) - most} characters left out; {file} has them ...]\n{text[-tail:]}"


# ---- price

_ROWS: Mapping[str, Callable[[Attempt, Metrics], str]] = {
    "outcome": lambda a, m: a.outcome.value,
    "speculation": lambda a, m: a.server.spec_type if a.server else wording.NOTHING,
    "agent ended": lambda a, m: a.agent.end.value + (f": {a.agent.note}" if a.agent.note else "") if a.agent else "-",
    "wall time": lambda a, m: wording.seconds(m.wall.total_s) if a.agent else wording.NOTHING,
    "prefill": lambda a, m: f"{wording.seconds(m.wall.prefill_s)}, {wording.rate(m.prefill_tokens_per_s)}",
    "decode": lambda a, m: f"{wording.seconds(m.wall.decode_s)}, {wording.rate(m.tokens_per_s)}",
    "tools": lambda a, m: wording.seconds(m.wall.tools_s),
    "other": lambda a, m: wording.seconds(m.wall.other_s),
    "turns, tool calls": lambda a, m: f"{m.turns}, {m.tool_calls}",
    "tokens generated": lambda a, m: wording.thousands(m.generated_tokens),
    "draft acceptance": lambda a, m: f"{wording.percent(m.acceptance)} of {m.drafted}" if m.drafted else "-",
    "finish reasons": lambda a, m: wording.listed(dict(m.finish_reasons)),
    "budget stops": lambda a, m: str(m.budget_stops),
}


def _arms(pair: Pair) -> list[Json]:
    sides = [(pair.attempt(arm), measure(pair.attempt(arm))) for arm in Arm]
    return [[label, *(cell(*side) for side in sides)] for label, cell in _ROWS.items()]
