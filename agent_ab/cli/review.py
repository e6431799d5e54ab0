"""`review`, `regrade`: flips looked at one by one, and snapshots judged again."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from agent_ab import run as runs
from agent_ab.cli.app import ROOT, AsJson, Db, RunsDir, TasksDir, app, err, open_store, out, print_json
from agent_ab.cli.export import run_of
from agent_ab.divergence import view
from agent_ab.errors import UserError
from agent_ab.model import Arm
from agent_ab.progress import Progress
from agent_ab.review import regrade as regrading
from agent_ab.review import review as reviewing
from agent_ab.review.marks import Mark, MarkKind
from agent_ab.review.review import Flipped
from agent_ab.store.store import Store
from agent_ab.wording import counted, plain_line, visible

RunName = Annotated[str | None, typer.Argument(help="A run, as `agent-ab runs` names it; else the newest.")]
KEYS = {"r": MarkKind.REAL, "f": MarkKind.FLAKY_CHECK, "e": MarkKind.ENVIRONMENT}
MENU = "r real, f flaky check, e environment, d diff, s skip, b back, q quit"
EVIDENCE_LINES = 12


@app.command()
def review(
    run: RunName = None,
    pair: Annotated[str | None, typer.Option(help="With --check and --mark: the pair's name within the run.")] = None,
    check: Annotated[str | None, typer.Option(help="The check that flipped in it.")] = None,
    mark: Annotated[str | None, typer.Option(help="What the flip is: real, flaky (check) or environment.")] = None,
    note: Annotated[str, typer.Option(help="Why.")] = "",
    list_only: Annotated[
        bool, typer.Option("--list", help="Print the flips and their marks, and ask nothing.")
    ] = False,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
) -> None:
    """Step through the flips of a run and mark each: real, flaky check, environment, with a note.

    Marks are kept and shown in the report. None of them changes a verdict by itself: a check marked as flaky is run
    three times again on both frozen snapshots, and left out of both arms only if it disagrees with itself.

    Example: agent-ab review --pair transfer-repair-4242-0 --check atomicity --mark real --note "loses the rollback"
    """
    with closing(open_store(db, to_write=True)) as store:
        run_id = run_of(store, run)
        if pair or check or mark:
            if not (pair and check and mark):
                raise UserError("--pair, --check and --mark go together")
            kind = _kind(mark)
            found = reviewing.find(store, run_id, pair, check, runs_dir)
            made = _marked(store, found, kind, note, runs_dir, tasks_dir)
            print_json(_mark_data(made)) if as_json else out.print(_mark_line(made))
            return
        flips = list(reviewing.flips(store, run_id, runs_dir))
        if list_only or as_json:
            print_json([reviewing.data(flip) for flip in flips]) if as_json else out.print(_table(flips))
            return
        if not flips:
            out.print(f"{run_id}: no check flipped")
            return
        if not sys.stdin.isatty():
            raise UserError(
                "review asks questions, and there is no terminal; use --list, or --pair, --check and --mark"
            )
        _step_through(store, flips, runs_dir, tasks_dir)


@app.command()
def regrade(
    run: RunName = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
) -> None:
    """Run the checks as they are today on the stored snapshots, and print what changed. The first results stay.

    Exit status 0 whatever changed; 4 when the evidence is damaged or the sandbox cannot be started.

    Example: agent-ab regrade 20260101-120000
    """
    with closing(open_store(db, to_write=True)) as store:
        run_id = run_of(store, run)
        with Progress(err) as progress:
            done = list(regrading.regrade(store, run_id, runs_dir, tasks_dir, progress))
    if as_json:
        print_json([_regraded_data(found) for found in done])
        return
    for found in done:
        _print_regraded(found)
    changed = sum(len(found.changed) for found in done)
    out.print(
        f"{counted(len(done), 'pair')} judged again, {counted(changed, 'verdict')} changed; the first results stay",
    )


def _step_through(store: Store, flips: Sequence[Flipped], runs_dir: Path, tasks_dir: Path) -> None:
    at = 0
    while 0 <= at < len(flips):
        # Read again: marks of this session show when one goes back.
        flip = reviewing.find(store, flips[at].pair.run, flips[at].pair.id, flips[at].check_id, runs_dir)
        _print_flip(flip, f"{at + 1} of {len(flips)}")
        key = typer.prompt(MENU, default="s", show_default=False).strip().lower()[:1]
        if key in KEYS:
            note = typer.prompt("note", default="", show_default=False)
            out.print(_mark_line(_marked(store, flip, KEYS[key], note, runs_dir, tasks_dir)))
            at += 1
        elif key == "d":
            out.print(view.view(runs.diff_of(flip.pair, runs_dir)))
        elif key == "q":
            return
        elif key in ("s", "b"):
            at = max(0, at - 1) if key == "b" else at + 1
    out.print("no more flips")


def _marked(store: Store, flip: Flipped, kind: MarkKind, note: str, runs_dir: Path, tasks_dir: Path) -> Mark:
    if kind is not MarkKind.FLAKY_CHECK:
        return reviewing.mark(store, flip, kind, note)
    with Progress(err) as progress:
        return reviewing.rerun(store, flip, note, runs_dir, tasks_dir, progress)


def _print_flip(flip: Flipped, place: str) -> None:
    direction = ("broken", "bold red") if flip.broken else ("fixed", "bold green")
    out.print()
    out.print(Text.assemble((flip.check_id, "bold"), f"  {flip.pair.id}  ", direction, f"  {place}"))
    out.print(Text(f"  rule       {plain_line(flip.verdicts[Arm.CANDIDATE].rule)}"))
    for arm, verdict in flip.verdicts.items():
        out.print(Text(f"  {arm.value:<10} {verdict.status.value}: {plain_line(verdict.reason)}"))
    if flip.parted:
        out.print(Text(f"  parted     {plain_line(flip.parted)}"))
    for arm, verdict in flip.verdicts.items():
        if verdict.evidence:
            text = json.dumps(verdict.evidence, indent=1, ensure_ascii=False)
            out.print(Text(f"  {arm.value}'s evidence", style="dim"))
            for line in view.cut(text, EVIDENCE_LINES).splitlines():
                out.print(Text(f"    {visible(line)}", style="dim"), overflow="ellipsis", no_wrap=True)
    if flip.mark:
        out.print(Text("  marked     ") + _mark_line(flip.mark))


def _mark_line(mark: Mark) -> Text:
    line = Text.assemble((mark.kind.value, "bold"), f"  {plain_line(mark.note)}" if mark.note else "")
    if mark.reruns is not None:
        said = "; ".join(f"{arm} {', '.join(verdicts)}" for arm, verdicts in mark.reruns.items())
        line.append(f"  (again: {said})")
        line.append(
            "  quarantined in both arms: it disagrees with itself"
            if mark.quarantined
            else "  not quarantined: it agrees with itself"
        )
    return line


def _mark_data(mark: Mark) -> dict[str, object]:
    return {
        "pair": mark.pair_id,
        "check": mark.check_id,
        "kind": mark.kind.value,
        "note": mark.note,
        "made_at": mark.made_at,
        "reruns": mark.reruns,
        "quarantined": mark.quarantined,
    }


def _table(flips: Sequence[Flipped]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("pair", "check", "baseline", "candidate", "mark"):
        table.add_column(name, overflow="fold")
    for flip in flips:
        verdicts = (flip.verdicts[arm].status.value for arm in Arm)
        names = (plain_line(flip.pair.id), plain_line(flip.check_id))
        table.add_row(*names, *verdicts, _mark_line(flip.mark) if flip.mark else Text("-"))
    return table


def _regraded_data(found: regrading.Regraded) -> dict[str, object]:
    return {
        "pair": found.pair.name,
        "outcome": found.pair.outcome.value,
        "outcome_today": found.outcome.value,
        "task_changed": found.task_changed,
        "changed": [
            {
                "arm": change.arm.value,
                "check": change.check_id,
                "scored": change.scored,
                "before": change.before,
                "after": change.after,
                "reason": change.reason,
            }
            for change in found.changed
        ],
    }


def _print_regraded(found: regrading.Regraded) -> None:
    said = found.pair.outcome.value
    if found.outcome is not found.pair.outcome:
        said += f" -> {found.outcome.value}"
    task = "  (the task is not the one that was played)" if found.task_changed else ""
    out.print(Text.assemble((found.pair.id, "bold"), f"  {said}{task}"))
    for change in found.changed:
        name = change.check_id if change.scored else f"{change.check_id} (probe)"
        out.print(
            Text(f"  {change.arm.value:<10} {name}: {change.before} -> {change.after}: {plain_line(change.reason)}")
        )


def _kind(text: str) -> MarkKind:
    known = {kind.value: kind for kind in MarkKind} | {"flaky": MarkKind.FLAKY_CHECK}
    if text not in known:
        raise UserError(f"--mark {text!r}: no such mark; there are: {', '.join(kind.value for kind in MarkKind)}")
    return known[text]
