"""`pair`, `pairs`, `show`, `diff`: one pair, played and looked at."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agent_ab import run, tasks
from agent_ab.cli.app import ROOT, AsJson, Db, ProfilesDir, RunsDir, TasksDir, app, err, open_store, out, print_json
from agent_ab.cli.machine import examined, explain_void
from agent_ab.cli.options import require_parents, seed_number, task_asked, with_flags
from agent_ab.cli.suite import show_run
from agent_ab.config import load_profile, load_seeds, nearest
from agent_ab.divergence import view
from agent_ab.errors import UserError
from agent_ab.model import Pair, SandboxKind
from agent_ab.progress import Progress
from agent_ab.report import report
from agent_ab.schedule import plan_pair
from agent_ab.session.session import playing
from agent_ab.wording import NOTHING, plain_line


@app.command()
def pair(
    task: Annotated[str | None, typer.Option(help="The task's id; by default the only one in --tasks-dir.")] = None,
    seed: Annotated[str, typer.Option(help="The sampling seed; seeds.toml says which arm it plays first.")] = "4242",
    profile: Annotated[str, typer.Option(help="A profile's name, or the path of a .toml file.")] = "cpu-demo",
    repeat: Annotated[int, typer.Option(min=0, help="Number of this repetition; enters the per-turn seeds.")] = 0,
    agent: Annotated[str, typer.Option(help="Another agent for both arms: builtin, oracle or nop.")] = "",
    sandbox: Annotated[SandboxKind | None, typer.Option(help="`none` runs model-written commands loose.")] = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    seeds_file: Annotated[Path, typer.Option(help="The seeds and their arm order.")] = ROOT / "seeds.toml",
) -> None:
    """Play one task with both arms, prove that only the declared variable differed, and show what changed.

    Example: agent-ab pair --task transfer-repair --seed 4242 --profile scripted-known-bad
    """
    chosen = with_flags(load_profile(profile, profiles_dir), agent, sandbox)
    seeds = load_seeds(seeds_file)
    number = seed_number(seed, "--seed")
    task = task_asked(task, tasks_dir)
    require_parents(db, runs_dir)
    with Progress(err) as progress, playing(db, runs_dir, progress) as store:
        tasks.load(task, tasks_dir)
        with examined(chosen, runs_dir):
            bench = run.prepare(chosen, task, tasks_dir, progress)
        played = run.play_pair(bench, plan_pair(task, number, seeds, repeat), runs_dir, store, progress)
    _print_pair(played, runs_dir, as_json)
    if not played.valid:
        explain_void(played, chosen, runs_dir)
        raise typer.Exit(4)


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(help="A pair or a run, as listed; else the newest pair.")] = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Show one finished pair again: its checks, its price, its proof; of a run: its pairs, and what is left.

    `agent-ab pairs` and `agent-ab runs` list the names.
    """
    if name and "/" not in name:
        show_run(name, db, as_json)
        return
    _print_pair(_stored(name, db), runs_dir, as_json)


@app.command()
def diff(
    name: Annotated[str | None, typer.Argument(help="A pair, as `agent-ab pairs` names it; else the newest.")] = None,
    full: Annotated[bool, typer.Option(help="Show long messages and patches whole.")] = False,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Show where and why the two arms parted, and both conversations side by side from there.

    `model`: equal requests, different replies. `environment`: equal replies, different requests.
    """
    found = run.diff_of(_stored(name, db), runs_dir)
    if as_json:
        print_json(view.data(found))
    else:
        out.print(view.view(found, full=full))


@app.command()
def pairs(as_json: AsJson = False, db: Db = Path("runs.db")) -> None:
    """List the finished pairs, oldest first."""
    store = open_store(db)
    try:
        loaded = [store.load_pair(name) for name in store.pair_names()]
    finally:
        store.close()
    if as_json:
        rows = [{"name": p.name, "outcome": p.outcome, "flips": _flips(p), "valid": p.valid} for p in loaded]
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("pair", "outcome", "baseline", "candidate", "flips"):
        table.add_column(column)
    for p in loaded:
        counts = [f"{a.passed}/{a.total}" for a in (p.baseline, p.candidate)]
        flips = _flips(p)
        table.add_row(plain_line(p.name), p.outcome.value, *counts, NOTHING if flips is None else str(flips))
    out.print(table)


def _flips(pair: Pair) -> int | None:
    """Return how many checks flipped; None where only their number is known."""
    return len(pair.flips) if pair.checks_known else None


def _stored(name: str | None, db: Path) -> Pair:
    if name == "":
        raise UserError("the pair's name is empty; leave it out for the newest pair")
    store = open_store(db)
    try:
        names = store.pair_names()
        if not names:
            raise UserError(f"{db}: holds no pair yet; `agent-ab pair --task transfer-repair` plays one")
        if name and name not in names:
            raise UserError(f"{db}: no pair {name!r}{nearest(name, list(names))}")
        return store.load_pair(name or names[-1])
    finally:
        store.close()


def _print_pair(played: Pair, runs_dir: Path, as_json: bool) -> None:
    evidence = str(runs_dir / played.name)
    if as_json:
        print_json(report.pair_data(played, evidence))
    else:
        out.print(report.pair_view(played, evidence))
