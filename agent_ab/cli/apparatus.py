"""`aa`, `controls`: what the apparatus does when nothing differs, and when everything is wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from agent_ab import run as single
from agent_ab.cli.app import ROOT, AsJson, Db, ProfilesDir, RunsDir, TasksDir, app, err, out, print_json
from agent_ab.cli.options import (
    Repeats,
    SeedNumbers,
    SeedsFile,
    TaskNames,
    require_parents,
    seeds_asked,
    tasks_asked,
    with_flags,
)
from agent_ab.cli.suite import show_on
from agent_ab.config import load_profile
from agent_ab.engine import engine
from agent_ab.errors import UserError
from agent_ab.gate.policy import load_policy
from agent_ab.model import Arm, RunKind, RunStatus, SandboxKind
from agent_ab.paths import RunPaths
from agent_ab.progress import Progress
from agent_ab.session.session import playing
from agent_ab.store.store import Store
from agent_ab.suite import plan as suite_plan
from agent_ab.suite import suite
from agent_ab.suite.plan import Asked
from agent_ab.wording import counted, percent, plain_line

if TYPE_CHECKING:
    from agent_ab.gate.noise import Noise
    from agent_ab.verdict.verdict import ControlState

ProfileName = Annotated[str, typer.Option(help="A profile's name, or the path of a .toml file.")]
New = Annotated[bool, typer.Option("--new/--resume", help="Start a new run, or go on with the one that has this plan.")]
PolicyFile = Annotated[Path | None, typer.Option(help="The gate's policy; it is hashed into the plan.")]
SandboxChoice = Annotated[SandboxKind | None, typer.Option(help="`none` runs model-written commands loose.")]


@app.command()
def aa(
    profile: ProfileName = "cpu-demo",
    tasks_: TaskNames = None,
    seeds: SeedNumbers = None,
    repeats: Repeats = 1,
    new: New = False,
    policy: PolicyFile = None,
    sandbox: SandboxChoice = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    seeds_file: SeedsFile = ROOT / "seeds.toml",
) -> None:
    """Play the baseline against itself, through everything that a comparison goes through, a server each.

    Prints how much pairs vary when nothing differs (what `plan` plans with), which checks flip, how often two
    conversations are the same, and how often the gate would err on attempts paired anew. `gate` reads the newest A/A
    run of the same baseline, and refuses to judge (INVALID) when that one comes out as a difference.

    Exit status: 0 no difference, 4 a difference, or a pair stayed VOID.

    Example: agent-ab aa --profile cpu-demo --repeats 4
    """
    from agent_ab.gate import controls, judged, noise
    from agent_ab.gate.observed import observed

    asked = Asked(
        profile=controls.against_itself(with_flags(load_profile(profile, profiles_dir), "", sandbox)),
        tasks=tasks_asked(tasks_, tasks_dir),
        seeds=seeds_asked(seeds, seeds_file),
        repeats=repeats,
        policy=load_policy(policy),
        kind=RunKind.AA,
    )
    require_parents(db, runs_dir)
    with Progress(err) as progress, playing(db, runs_dir, progress) as store:
        run = _played(asked, store, runs_dir, tasks_dir, progress, new=new)
        found = observed(store, store.run(run))
    state = judged.aa_state(found, asked.policy)
    pairs = [o for o in found.observations if o.valid and o.baseline and o.candidate]
    figures = noise.noise(pairs, asked.policy) if pairs else None
    if as_json:
        alarm = state.detail if state.ok is False else ""
        print_json(
            noise.to_json(figures, run, alarm) if figures else {"schema": 1, "run": run, "alarm": alarm, "pairs": 0}
        )
    else:
        _print_aa(state, figures)
    if state.ok is not True:
        raise typer.Exit(4)


@app.command()
def controls(
    profile: ProfileName = "cpu-demo",
    tasks_: TaskNames = None,
    seeds: SeedNumbers = None,
    repeats: Repeats = 1,
    new: New = False,
    policy: PolicyFile = None,
    sandbox: SandboxChoice = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    seeds_file: SeedsFile = ROOT / "seeds.toml",
) -> None:
    """Play two candidates whose verdict is known: a placebo that changes nothing, and a known-bad whose text is wrong.

    A known-bad that is not rejected, or a placebo that is, says that the apparatus cannot be believed; `gate` then says
    INVALID. Six pairs that the baseline solves are the fewest that can reject. Both controls are llama-server's own
    (--spec-synth-rates); a binary without it has no controls, of which the verdict warns.

    Exit status: 0 both came out as they must, or there are none; 4 otherwise.

    Example: agent-ab controls --profile scripted-solve
    """
    from agent_ab.gate import controls as arms
    from agent_ab.gate import judged
    from agent_ab.gate.observed import observed

    chosen = with_flags(load_profile(profile, profiles_dir), "", sandbox)
    names, order, rules = tasks_asked(tasks_, tasks_dir), seeds_asked(seeds, seeds_file), load_policy(policy)
    require_parents(db, runs_dir)
    if few := arms.too_few(len(names) * len(order) * repeats, rules.alpha):
        raise UserError(f"{few}; give more --tasks, --seeds or --repeats")
    states: list[ControlState] = []
    with Progress(err) as progress, playing(db, runs_dir, progress) as store:
        server = chosen.arm(Arm.CANDIDATE).server
        flags = engine.find(server.binary, progress).flags if server.engine == "llama-server" else frozenset()
        why = arms.unavailable(chosen, flags)
        if why:
            asked = Asked(chosen, names, order, repeats, rules, RunKind.CONTROLS)
            _note_unavailable(asked, why, store, runs_dir, tasks_dir, progress)
        for name in () if why else judged.CONTROLS:
            asked = Asked(arms.control(chosen, name), names, order, repeats, rules, RunKind.CONTROLS)
            record = store.run(_played(asked, store, runs_dir, tasks_dir, progress, new=new))
            states.append(judged.control_state(name, observed(store, record), record, rules))
    if as_json:
        print_json({"schema": 1, "unavailable": why, "controls": [_state_data(state) for state in states]})
    else:
        if why:
            out.print(f"controls not available: {why}")
        for state in states:
            out.print(_state_line(state), soft_wrap=True)
    if any(state.ok is not True for state in states):
        raise typer.Exit(4)


def _played(asked: Asked, store: Store, runs_dir: Path, tasks_dir: Path, progress: Progress, *, new: bool) -> str:
    """Play what is asked, or what is left of it, and return the run's name."""
    ready = suite_plan.make_ready(asked, tasks_dir, progress)
    paths: RunPaths = suite_plan.begin_or_resume(ready, store, runs_dir, new=new)
    suite.play(ready, paths, store, show_on(progress))
    return paths.root.name


def _note_unavailable(
    asked: Asked, why: str, store: Store, runs_dir: Path, tasks_dir: Path, progress: Progress
) -> None:
    """Store that there are no controls for this plan, so that the verdict can say why."""
    from agent_ab.gate import judged

    plan = {**suite_plan.make_ready(asked, tasks_dir, progress).plan, judged.UNAVAILABLE: why}
    paths = single.begin(runs_dir, store, asked.profile.name, plan, RunKind.CONTROLS, blocks=0)
    store.end_run(paths.root.name, RunStatus.FINISHED, why)


def _state_data(state: "ControlState") -> dict[str, object]:
    return {"name": state.name, "run": state.run, "ok": state.ok, "detail": state.detail}


def _state_line(state: "ControlState") -> Text:
    mark = {True: ("ok", "green"), False: ("NO", "bold red"), None: ("?", "yellow")}[state.ok]
    return Text.assemble((f"{state.name:<11}", "bold"), mark, f"  {plain_line(state.detail)}   run {state.run}")


def _print_aa(state: "ControlState", figures: "Noise | None") -> None:
    out.print(_state_line(state), soft_wrap=True)
    if figures is None:
        return
    spread = "-" if figures.sd is None else f"{figures.sd:.4f}"
    if figures.sd_low is not None and figures.sd_high is not None:
        spread += f" (95 % interval {figures.sd_low:.4f} to {figures.sd_high:.4f})"
    lines = [
        ("pairs", str(figures.pairs)),
        (
            "identical",
            f"{counted(figures.identical, 'pair')}, {percent(figures.identical / figures.pairs)}, word for word",
        ),
        ("deviation", f"standard deviation of the differences {spread}; `agent-ab plan` plans with it"),
    ]
    if figures.alarms:
        lines.append(("false alarms", f"{figures.alarms.sentence}; looked at after every block"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, line in lines:
        grid.add_row(label, Text(line))
    out.print(grid)
    if not figures.checks:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "flips", "pairs", "share", "on one snapshot", ""):
        table.add_column(name)
    for row in figures.checks:
        word = "quarantined" if row.quarantined else ""
        cells = (str(row.flips), str(row.pairs), percent(row.share), str(row.disagreements), word)
        table.add_row(plain_line(f"{row.task}/{row.check}"), *cells)
    out.print(table)
