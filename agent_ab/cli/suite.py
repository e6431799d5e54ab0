"""`run`, `runs`, and `show` of a run: a whole suite, played unattended."""

import time
from pathlib import Path
from typing import Annotated

import typer

from agent_ab import schedule
from agent_ab.cli.app import ROOT, AsJson, Db, ProfilesDir, RunsDir, TasksDir, app, err, open_store, out, print_json
from agent_ab.cli.machine import examined
from agent_ab.cli.options import (
    MOST_HOURS,
    Repeats,
    SeedNumbers,
    SeedsFile,
    TaskNames,
    bounded,
    require_parents,
    seeds_asked,
    tasks_asked,
    with_flags,
)
from agent_ab.config import Profile, differing, load_profile, nearest
from agent_ab.errors import UserError
from agent_ab.gate.policy import load_policy
from agent_ab.model import Arm, Pair, SandboxKind
from agent_ab.progress import Progress
from agent_ab.schedule import Grid, PlannedPair, Standing
from agent_ab.session.session import playing
from agent_ab.store.store import Store
from agent_ab.suite import plan, suite, view
from agent_ab.suite.plan import Asked

OTHER_STEPS_S = 60.0
"""What an attempt needs at most, roughly, besides its agent: server, proxy, snapshot, checks."""


@app.command()
def run(
    profile: Annotated[str, typer.Option(help="A profile's name, or the path of a .toml file.")] = "cpu-demo",
    tasks_: TaskNames = None,
    seeds: SeedNumbers = None,
    repeats: Repeats = 1,
    max_hours: Annotated[
        float | None, bounded("Stop at the end of the block after which the next would take longer.", most=MOST_HOURS)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and its hours; play nothing.")] = False,
    new: Annotated[
        bool, typer.Option("--new/--resume", help="Start a new run, or go on with the one that has this plan.")
    ] = False,
    extend: Annotated[
        bool, typer.Option("--extend", help="Then add blocks of new seeds until the evidence decides, or max_pairs.")
    ] = False,
    policy: Annotated[Path | None, typer.Option(help="The gate's policy; it is hashed into the plan.")] = None,
    agent: Annotated[str, typer.Option(help="Another agent for both arms: builtin, oracle or nop.")] = "",
    sandbox: Annotated[SandboxKind | None, typer.Option(help="`none` runs model-written commands loose.")] = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    seeds_file: SeedsFile = ROOT / "seeds.toml",
) -> None:
    """Play every task with every seed in both arms, unattended; interrupted, the same command goes on where it was.

    The plan is stored first. Pairs are saved one by one; a pair that the apparatus broke (VOID) is played again, both
    arms, as often as the policy says. Ctrl-C once keeps all finished pairs; twice stops at once.

    Exit status: 0 all planned pairs are valid (or the time was up at the end of a block), 4 a pair stayed VOID.

    Example: agent-ab run --profile scripted-solve --tasks transfer-repair,csv-ledger --max-hours 8
    """
    asked = Asked(
        profile=with_flags(load_profile(profile, profiles_dir), agent, sandbox),
        tasks=tasks_asked(tasks_, tasks_dir),
        seeds=seeds_asked(seeds, seeds_file),
        repeats=repeats,
        policy=load_policy(policy),
    )
    if not differing(asked.profile.arm(Arm.BASELINE), asked.profile.arm(Arm.CANDIDATE)):
        raise UserError(f"{profile}: both arms are the same; `agent-ab aa` plays one setting against itself")
    require_parents(db, runs_dir)
    if dry_run:
        _print_plan(asked, db, as_json)
        return
    with Progress(err) as progress, playing(db, runs_dir, progress) as store:
        with examined(asked.profile, runs_dir):
            ready = plan.make_ready(asked, tasks_dir, progress)
        paths = plan.begin_or_resume(ready, store, runs_dir, new=new)
        progress.say(view.opening(paths.root.name, suite.standing(store.run(paths.root.name), store)))
        stop = _time_is_up(max_hours)
        if extend:
            # Brings scipy with it.
            from agent_ab.suite import extending

            extending.until_decided(ready, paths, store, show_on(progress), stop)
            end = suite.standing(store.run(paths.root.name), store)
        else:
            end = suite.play(ready, paths, store, show_on(progress), stop)
        _print_run(store, paths.root.name, as_json)
    if end.void:
        raise typer.Exit(4)


@app.command()
def runs(as_json: AsJson = False, db: Db = Path("runs.db")) -> None:
    """List the runs, newest first."""
    store = open_store(db)
    try:
        found = store.runs()
    finally:
        store.close()
    if as_json:
        print_json(view.runs_data(found))
    else:
        out.print(view.runs_view(found))


def show_run(name: str, db: Path, as_json: bool) -> None:
    """Print how the run `name` stands. Raises UserError."""
    store = open_store(db)
    try:
        names = [run.id for run in store.runs()]
        if name not in names:
            raise UserError(f"{db}: no run {name!r}{nearest(name, names)}")
        _print_run(store, name, as_json)
    finally:
        store.close()


def show_on(progress: Progress) -> suite.Show:
    """Return how `progress` is told of a suite: one line a pair, and the current step below what is done."""
    progress.every_step = False

    def begins(planned: PlannedPair, now: Standing) -> None:
        progress.headline = view.headline(planned, now)

    def ends(pair: Pair, now: Standing) -> None:
        progress.say(view.pair_line(pair, now))

    return suite.Show(progress, begins, ends)


def _time_is_up(max_hours: float | None) -> suite.Stop:
    if max_hours is None:
        return suite.never
    begin, limit_s = time.monotonic(), max_hours * 3600

    def stop(now: Standing) -> str:
        ready_s = time.monotonic() - begin + (now.next_block_s or 0.0)
        return f"the next block would end after --max-hours {max_hours:g}" if ready_s > limit_s else ""

    return stop


def _print_plan(asked: Asked, db: Path, as_json: bool) -> None:
    planned = Grid(asked.tasks, asked.seeds, asked.repeats)
    now = schedule.standing(planned, len(asked.seeds), (), 0, _measured(asked.profile, db))
    longest_s = sum(asked.profile.arm(arm).agent.time_limit_s + OTHER_STEPS_S for arm in Arm)
    if as_json:
        print_json(view.plan_data(planned, now, longest_s))
    else:
        out.print(view.plan_view(planned, now, longest_s))


def _measured(profile: Profile, db: Path) -> dict[str, list[float]]:
    if not db.is_file():
        return {}
    store = Store(db)
    try:
        return store.durations(profile.name)
    finally:
        store.close()


def _print_run(store: Store, run_id: str, as_json: bool) -> None:
    record = store.run(run_id)
    planned = record.plan.get("format") == plan.FORMAT
    facts = (record, suite.standing(record, store) if planned else None, store.pair_states(run_id), store.voids(run_id))
    if as_json:
        print_json(view.run_data(*facts))
    else:
        out.print(view.run_view(*facts))
