"""Verifications of tasks as renderables for a terminal and as data; prints nothing itself."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab.model import CheckStatus, Json
from agent_ab.verify.rules import Kind, VariantRun
from agent_ab.verify.verify import TaskVerification

SCHEMA = 1
"""Version of `data`'s shape: 1, the first."""


def data(verifications: Sequence[TaskVerification]) -> Json:
    """Return what `table` shows, as data."""
    return {
        "schema": SCHEMA,
        "ok": all(verification.ok for verification in verifications),
        "tasks": [_task_data(verification) for verification in verifications],
    }


def table(verifications: Sequence[TaskVerification]) -> RenderableType:
    """Return each check with its proof, task by task, and every fault, for a terminal of 100 columns."""
    parts: list[RenderableType] = []
    for verification in verifications:
        parts += [_headline(verification), _check_table(verification)]
        parts += [Text(f"  - {finding.sentence}", style="red") for finding in verification.findings]
        parts.append(Text())
    good = sum(verification.ok for verification in verifications)
    checks = sum(len(v.evidence.run(Kind.REFERENCE).checks) for v in verifications)
    seconds = sum(verification.duration_s for verification in verifications)
    style = "bold green" if good == len(verifications) else "bold red"
    parts.append(Text(f"{good} of {len(verifications)} tasks are sound, {checks} checks, {seconds:.0f} s", style=style))
    return Group(*parts)


def _headline(verification: TaskVerification) -> Text:
    runs = len(verification.evidence.runs)
    times = f", {verification.repeat} times each" if verification.repeat > 1 else ""
    return Text.assemble(
        (verification.task.id, "bold"),
        f"  {runs} variants{times}, {verification.duration_s:.1f} s   ",
        ("sound", "green") if verification.ok else (f"{len(verification.findings)} faults", "bold red"),
    )


def _check_table(verification: TaskVerification) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "starting code", "reference", "its mutant", "which also fails"):
        shown.add_column(name)
    evidence = verification.evidence
    start, reference = evidence.run(Kind.START), evidence.run(Kind.REFERENCE)
    mutants = {run.variant.mutant: run for run in evidence.mutants}
    for item in evidence.items:
        mutant = mutants.get(item.id) if item.scored else None
        others = [check_id for check_id in mutant.failed() if check_id != item.id] if mutant else []
        shown.add_row(
            item.id if item.scored else Text(f"{item.id} (probe)", style="dim"),
            _passed(start, item.id),
            _passed(reference, item.id),
            _fate(mutant, item.id) if item.scored else "",
            ", ".join(others),
        )
    return shown


def _passed(run: VariantRun, check_id: str) -> Text:
    passed = sum(c.id == check_id and c.status is CheckStatus.PASS for results in run.rounds for c in results)
    if len(run.rounds) == 1:
        return Text("pass", style="green") if passed else Text("fail", style="red")
    return Text(f"{passed}/{len(run.rounds)}", style="green" if passed == len(run.rounds) else "red")


def _fate(mutant: VariantRun | None, check_id: str) -> Text:
    if mutant is None:
        return Text("missing", style="bold red")
    if mutant.broken:
        return Text("does not apply", style="bold red")
    if mutant.passes(check_id, always=False):
        return Text("survives", style="bold red")
    if mutant.tests is not None and not mutant.tests.passed:
        return Text("fails public tests", style="bold red")
    return Text("killed", style="green")


def _task_data(verification: TaskVerification) -> Json:
    return {
        "id": verification.task.id,
        "ok": verification.ok,
        "repeat": verification.repeat,
        "duration_s": round(verification.duration_s, 3),
        "findings": [{**asdict(finding), "fault": finding.fault.value} for finding in verification.findings],
        "variants": [_run_data(run) for run in verification.evidence.runs],
    }


def _run_data(run: VariantRun) -> Json:
    return {
        "kind": run.variant.kind.value,
        "mutant": run.variant.mutant,
        "broken": run.broken,
        "duration_s": round(run.duration_s, 3),
        "public_tests": asdict(run.tests) if run.tests else None,
        "rounds": [
            [{"id": c.id, "scored": c.scored, "status": c.status.value, "reason": c.reason} for c in results]
            for results in run.rounds
        ],
    }
