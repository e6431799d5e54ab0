"""A pair as renderables for a terminal and as data; prints nothing itself."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab.divergence import parting
from agent_ab.judge.view import judgement_data, judgement_view
from agent_ab.model import Arm, Attempt, CheckResult, CheckStatus, Json, Pair, PairOutcome, ProofLine
from agent_ab.pair.metrics import Metrics, measure
from agent_ab.store.store import pair_to_json
from agent_ab.wording import capped, counted, plain_line, visible

SCHEMA = 1
"""Version of `pair_data`'s shape: 1, the first."""

_STYLE = {
    PairOutcome.BOTH_PASS: "green",
    PairOutcome.FIXED: "green",
    PairOutcome.BOTH_FAIL: "yellow",
    PairOutcome.BROKEN: "red",
    PairOutcome.VOID: "magenta",
}


def pair_data(pair: Pair, evidence: str) -> Json:
    """Return what `pair_view` shows, as data: the pair, each arm's metrics, where the evidence is.

    Long lists of names and long texts are cut, with their sizes; the evidence has them whole.
    """
    return {
        "schema": SCHEMA,
        "name": pair.name,
        "valid": pair.valid,
        "pair": capped(pair_to_json(pair)),
        "metrics": {arm.value: asdict(measure(pair.attempt(arm))) for arm in Arm},
        "judgement": judgement_data(pair),
        "evidence": evidence,
    }


def pair_view(pair: Pair, evidence: str) -> RenderableType:
    """Return the whole result of a pair for a terminal of 100 columns."""
    parts: list[RenderableType] = [_headline(pair)]
    if any(arm.checks or arm.total for arm in (pair.baseline, pair.candidate)):
        parts += [Text(), _check_table(pair)]
    parts += [Text(), _arm_table(pair), Text(), _proof_table(pair)]
    if pair.divergence is not None:
        parts += [Text(), *_divergence(pair)]
    if pair.judgement is not None:
        parts += [Text(), *judgement_view(pair)]
    if pair.findings:
        parts += [
            Text(),
            Text("findings", style="bold"),
            *(Text(f"  - {visible(finding)}") for finding in pair.findings),
        ]
    parts += [
        Text(),
        Text(f"evidence   {plain_line(evidence)}"),
        Text(f"again      agent-ab show {plain_line(pair.name)}"),
    ]
    return Group(*parts)


_RESULTS: TypeAdapter[tuple[CheckResult, ...]] = TypeAdapter(tuple[CheckResult, ...])


def checks_data(results: tuple[CheckResult, ...]) -> Json:
    """Return one snapshot's checks and probes as data, evidence included."""
    return _RESULTS.dump_python(results, mode="json")


def checks_view(results: tuple[CheckResult, ...]) -> RenderableType:
    """Return one snapshot's checks and probes with their reasons."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "verdict", "reason"):
        table.add_column(name, overflow="fold")
    for result in results:
        name = plain_line(result.id) + ("" if result.scored else " (probe)")
        table.add_row(name, _mark(result), Text(visible(result.reason)))
    scored = [r for r in results if r.scored]
    table.add_row(
        Text("passed", style="bold"), f"{sum(r.status is CheckStatus.PASS for r in scored)}/{len(scored)}", ""
    )
    return table


def _headline(pair: Pair) -> Text:
    text = Text.assemble(
        (plain_line(pair.task), "bold"),
        f"  seed {pair.seed}  repeat {pair.repeat}  {pair.first_arm} first   ",
        (pair.outcome.value, f"bold {_STYLE[pair.outcome]}"),
    )
    if pair.valid:
        text.append(f"   {_flipped(pair)}")
        if not pair.proven:
            text.append("   UNPROVEN", style="bold yellow")
    else:
        faults = [f"{line.name}: {line.detail}" for line in pair.proof if not line.ok]
        text.append("   " + (plain_line(faults[0]) if faults else ""))
    return text


def _flipped(pair: Pair) -> str:
    if not pair.checks_known:
        return "which checks flipped is not known, only their number"
    return f"{counted(len(pair.flips), 'check')} flipped" if pair.flips else "no check flipped"


def _check_table(pair: Pair) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "baseline", "candidate", "flip"):
        table.add_column(name)
    flipped = {flip.check_id: flip for flip in pair.flips}
    theirs = {(c.id, c.scored): c for c in pair.candidate.checks}
    mine = {(c.id, c.scored): c for c in pair.baseline.checks}
    for key in mine | theirs:
        if key[1]:
            flip = flipped.get(key[0])
            note = "" if flip is None else ("broken" if flip.candidate is CheckStatus.FAIL else "fixed")
            table.add_row(plain_line(key[0]), _mark(mine.get(key)), _mark(theirs.get(key)), Text(note, style="bold"))
    for key in mine | theirs:
        if not key[1]:
            table.add_row(
                Text(f"{plain_line(key[0])} (probe)", style="dim"), _mark(mine.get(key)), _mark(theirs.get(key)), ""
            )
    table.add_row(
        Text("passed", style="bold"),
        f"{pair.baseline.passed}/{pair.baseline.total}",
        f"{pair.candidate.passed}/{pair.candidate.total}",
        "",
    )
    return table


def _mark(check: CheckResult | None) -> Text:
    if check is None:
        return Text("-", style="dim")
    return Text(check.status.value, style="green" if check.status is CheckStatus.PASS else "red")


def _arm_table(pair: Pair) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "baseline", "candidate"):
        table.add_column(name)
    arms = [(pair.attempt(arm), measure(pair.attempt(arm))) for arm in Arm]
    for label, cell in _ROWS.items():
        table.add_row(label, *(Text(visible(cell(attempt, metrics))) for attempt, metrics in arms))
    return table


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} tok/s"


def _speculation(attempt: Attempt, _: Metrics) -> str:
    return attempt.server.spec_type if attempt.server else "-"


def _ended(attempt: Attempt, _: Metrics) -> str:
    if attempt.agent is None:
        return "-"
    end, note = attempt.agent.end.value, attempt.agent.note
    return (note if note.startswith(end) else f"{end}: {note}") if note else end


def _edited(attempt: Attempt, _: Metrics) -> str:
    if attempt.patch is None:
        return "-"
    return ("yes" if attempt.patch.edited_production else "no") + f" ({len(attempt.patch.files)} files changed)"


_ROWS: Mapping[str, Callable[[Attempt, Metrics], str]] = {
    "outcome": lambda a, m: a.outcome.value,
    "speculation": _speculation,
    "agent ended": _ended,
    "production code edited": _edited,
    "wall time": lambda a, m: f"{m.wall.total_s:.1f} s",
    "  prefill": lambda a, m: f"{m.wall.prefill_s:.1f} s  ({_rate(m.prefill_tokens_per_s)})",
    "  decode": lambda a, m: f"{m.wall.decode_s:.1f} s  ({_rate(m.tokens_per_s)})",
    "  tools": lambda a, m: f"{m.wall.tools_s:.1f} s",
    "  other": lambda a, m: f"{m.wall.other_s:.1f} s",
    "turns, tool calls": lambda a, m: f"{m.turns}, {m.tool_calls}",
    "tokens generated": lambda a, m: f"{m.generated_tokens}",
    "draft acceptance": lambda a, m: f"{_percent(m.acceptance)} ({m.accepted} of {m.drafted})" if m.drafted else "-",
    "finish reasons": lambda a, m: ", ".join(f"{name} {count}" for name, count in m.finish_reasons.items()) or "-",
    "budget stops": lambda a, m: f"{m.budget_stops}",
}


def _divergence(pair: Pair) -> list[RenderableType]:
    found = parting.from_json(pair.divergence)
    lines = [Text("divergence", style="bold"), Text(f"  {parting.sentence(found.raw)}")]
    if found.normalised != found.raw:
        lines.append(Text(f"  but for {', '.join(parting.rules_used(found))}: {parting.sentence(found.normalised)}"))
    if found.declared and found.raw.kind is not parting.Kind.DECLARED:
        lines.append(
            Text(
                f"  {plain_line(pair.variable)} changes in requests: {plain_line(parting.declared_words(found.declared))}"
            )
        )
    return [*lines, Text(f"  both conversations side by side: agent-ab diff {plain_line(pair.name)}")]


def _proof_table(pair: Pair) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("proof")
    table.add_column("")
    table.add_column("", overflow="fold")
    for line in pair.proof:
        table.add_row(line.name, _standing(line), Text(visible(line.detail)))
    return table


def _standing(line: ProofLine) -> Text:
    if not line.ok:
        return Text("NO", style="bold red")
    return Text("not proven", style="yellow") if line.unproven else Text("ok", style="green")
