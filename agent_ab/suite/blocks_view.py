"""What blocks came to: a row a candidate. Pure."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from agent_ab.model import Json
from agent_ab.suite.blocks import Candidate
from agent_ab.verdict.verdict import Decision

STYLES = {Decision.REJECT: "bold red", Decision.ADOPT: "bold green", Decision.INVALID: "bold red"}


def view(candidates: Sequence[Candidate], alpha: float) -> Group:
    """Return the table, and what was decided about each candidate."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "candidate",
        "verdict",
        "pairs",
        "blocks",
        "checks, candidate - baseline",
        "evidence of harm",
        "run",
    ):
        table.add_column(column)
    for candidate in candidates:
        verdict = candidate.verdict
        if verdict is None:
            table.add_row(candidate.name, "not played", *[""] * 4, candidate.run)
            continue
        counts, correctness, e = verdict.counts, verdict.correctness, verdict.evidence
        planned = len(candidate.ready.asked.seeds)
        table.add_row(
            candidate.name,
            Text(verdict.decision.value, style=STYLES.get(verdict.decision, "")),
            f"{counts.counted + counts.repeated} of {counts.planned}",
            f"{counts.blocks} of {planned}",
            f"{correctness.mean:+.2f}" if correctness else "",
            f"{e.harm:.3g}, {e.needed:g} needed" if e else "",
            candidate.run,
        )
    return Group(table, Text(), *(Text(line) for line in words(candidates, alpha)))


def words(candidates: Sequence[Candidate], alpha: float) -> list[str]:
    """Return a sentence a candidate, and how they were corrected for their number."""
    lines = []
    for candidate in candidates:
        if candidate.rejected and candidate.verdict:
            blocks, planned = candidate.verdict.counts.blocks, len(candidate.ready.asked.seeds)
            saved = f"stopped after {blocks} of {planned} blocks" if blocks < planned else "played to the end"
            lines.append(f"{candidate.name}: rejected, {saved}. {candidate.verdict.reasons[0]}")
        elif candidate.verdict:
            lines.append(f"{candidate.name}: {candidate.verdict.decision}. {candidate.verdict.reasons[0]}")
    lines.append(
        f"Each of {len(candidates)} candidates is judged with alpha {alpha:g} / {len(candidates)}, so that evidence"
        f" {len(candidates) / alpha:g} decides: together they are wrong no more often than one would be with {alpha:g}."
    )
    return lines


def data(candidates: Sequence[Candidate], alpha: float) -> Json:
    """Return the same as JSON-able data."""
    return {
        "alpha": alpha,
        "candidates": [
            {
                "name": c.name,
                "run": c.run,
                "decision": c.verdict.decision.value if c.verdict else None,
                "reasons": list(c.verdict.reasons) if c.verdict else [],
                "blocks": c.verdict.counts.blocks if c.verdict else 0,
                "blocks_planned": len(c.ready.asked.seeds),
                "pairs": c.verdict.counts.counted + c.verdict.counts.repeated if c.verdict else 0,
                "harm": c.verdict.evidence.harm if c.verdict and c.verdict.evidence else None,
            }
            for c in candidates
        ],
        "words": words(candidates, alpha),
    }
