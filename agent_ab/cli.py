"""The command line: the only place that prints and exits.

Exit status: 0 done (for `pair`: the pair is valid), 2 the user's mistake, 4 the apparatus broke or the pair is void,
130 interrupted.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_ab import __version__, diff_view, engine, models, report, run, tasks, verify, verify_view
from agent_ab import doctor as examination
from agent_ab import sandbox as run_sandbox
from agent_ab.config import Profile, Sandbox, load_profile, load_seeds, nearest
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Pair, SandboxKind
from agent_ab.progress import Progress
from agent_ab.schedule import plan_pair
from agent_ab.store import Store

app = typer.Typer(
    help="Change one thing about your model server: does your coding agent still fix the bugs, and do you wait less?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
err = Console(stderr=True, highlight=False)

USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__mro__[2]
"""What every usage error is (ClickException); typer carries a click of its own and does not export this class."""
ROOT = Path(__file__).resolve().parent.parent

TasksDir = Annotated[Path, typer.Option(help="Where the task directories are.")]
ProfilesDir = Annotated[Path, typer.Option(help="Where the profiles are.")]
Db = Annotated[Path, typer.Option(help="The database.")]
RunsDir = Annotated[Path, typer.Option(help="Where the evidence goes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data instead of tables.")]


@app.command()
def pair(
    task: Annotated[str, typer.Option(help="The task's id; `agent-ab task list` names them.")],
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
    chosen = _with_flags(load_profile(profile, profiles_dir), agent, sandbox)
    seeds = load_seeds(seeds_file)
    number = _seed(seed)
    if runs_dir.exists() and not runs_dir.is_dir():
        raise UserError(f"--runs-dir {runs_dir}: is a file, not a directory")
    for option, path in (("--runs-dir", runs_dir), ("--db", db)):
        if not path.absolute().parent.is_dir():
            raise UserError(f"{option} {path}: its parent directory does not exist")
    store = Store(db)
    try:
        with Progress(err) as progress:
            bench = run.prepare(chosen, task, tasks_dir, progress)
            played = run.play_pair(bench, plan_pair(task, number, seeds, repeat), runs_dir, store, progress)
    finally:
        store.close()
    _print_pair(played, runs_dir, as_json)
    if not played.valid:
        raise typer.Exit(4)


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(help="A pair, as `agent-ab pairs` names it; else the newest.")] = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Show one finished pair again: its checks, its price, its proof."""
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
        _print_json(diff_view.data(found))
    else:
        out.print(diff_view.view(found, full=full))


@app.command()
def pairs(as_json: AsJson = False, db: Db = Path("runs.db")) -> None:
    """List the finished pairs, oldest first."""
    store = _open(db)
    try:
        loaded = [store.load_pair(name) for name in store.pair_names()]
    finally:
        store.close()
    if as_json:
        rows = [{"name": p.name, "outcome": p.outcome, "flips": len(p.flips), "valid": p.valid} for p in loaded]
        _print_json(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("pair", "outcome", "baseline", "candidate", "flips"):
        table.add_column(column)
    for p in loaded:
        counts = [f"{a.passed}/{len(a.scored)}" for a in (p.baseline, p.candidate)]
        table.add_row(p.name, p.outcome.value, *counts, str(len(p.flips)))
    out.print(table)


@app.command()
def setup(
    profile: Annotated[str, typer.Option(help="Make ready what this profile needs.")] = "cpu-demo",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    as_json: AsJson = False,
) -> None:
    """Find or build llama-server, and fetch the demo model; `pair` does the same by itself.

    The first time this compiles llama-server (about 7 minutes on 2 cores) into the user's cache.
    """
    chosen = load_profile(profile, profiles_dir)
    with Progress(err) as progress:
        found = engine.find(chosen.server.binary, progress)
        model = None if chosen.model.source == "scripted" else models.resolve(chosen.model, None, progress)
    facts = {
        "llama_server": str(found.binary),
        "source": found.source,
        "build": found.build,
        "sha256": found.sha256,
        "spec_types": list(found.spec_types),
        "model": str(model.path) if model else "made from the task's script",
        "mtp": model.mtp_reason if model else "",
    }
    if as_json:
        _print_json(facts)
        return
    for label, value in facts.items():
        out.print(Text.assemble((f"{label:<14}", "bold"), ", ".join(value) if isinstance(value, list) else str(value)))


@app.command()
def check(
    task: Annotated[str, typer.Argument(help="The task's id.")],
    workspace: Annotated[Path, typer.Option(help="The directory to judge; it is read, never changed.")],
    sandbox: Annotated[SandboxKind, typer.Option(help="`none` runs the code loose.")] = SandboxKind.BWRAP,
    tasks_dir: TasksDir = ROOT / "tasks",
    as_json: AsJson = False,
) -> None:
    """Run a task's checks and probes on any directory, as they run on what an agent left behind.

    Exit status 0 whatever the checks say; 4 when the sandbox cannot be started.
    """
    loaded = tasks.load(task, tasks_dir)
    with Progress(err) as progress:
        results = run.check_workspace(loaded, workspace, Sandbox(kind=sandbox), progress)
    if as_json:
        _print_json(report.checks_data(results))
    else:
        out.print(report.checks_view(results))


@app.command()
def doctor(
    profile: Annotated[str, typer.Option(help="Look for what this profile needs.")] = "cpu-demo",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    as_json: AsJson = False,
) -> None:
    """Say what works on this machine, what does not, and what to do about it. Changes and builds nothing.

    Exit status 4 when something that a pair needs does not work.
    """
    chosen = load_profile(profile, profiles_dir)
    with Progress(err) as progress:
        findings = examination.examine(chosen.server.binary, progress)
    if as_json:
        _print_json([{"name": f.name, "ok": f.ok, "detail": f.detail} for f in findings])
    else:
        for f in findings:
            mark = ("ok", "green") if f.ok else ("NO", "bold red")
            out.print(Text.assemble((f"{f.name:<16}", "bold"), mark, f"  {f.detail}"), soft_wrap=True)
    if not all(f.ok for f in findings):
        raise typer.Exit(4)


task_app = typer.Typer(help="The tasks: what the agent is asked, and how it is judged.", no_args_is_help=True)
app.add_typer(task_app, name="task")


@task_app.command("list")
def task_list(tasks_dir: TasksDir = ROOT / "tasks", as_json: AsJson = False) -> None:
    """List the tasks."""
    loaded = [tasks.load(name, tasks_dir) for name in tasks.names(tasks_dir)]
    if as_json:
        _print_json([{"id": t.id, "title": t.title} for t in loaded])
        return
    for t in loaded:
        out.print(Text.assemble((f"{t.id:<20}", "bold"), t.title))


@task_app.command("show")
def task_show(
    name: Annotated[str, typer.Argument(help="The task's id.")], tasks_dir: TasksDir = ROOT / "tasks"
) -> None:
    """Print what the agent is asked."""
    sys.stdout.write(tasks.load(name, tasks_dir).instruction)


@task_app.command("verify")
def task_verify(
    names: Annotated[list[str] | None, typer.Argument(help="The tasks' ids; by default all of them.")] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Judge every variant so often; a check that differs is flaky.")
    ] = 1,
    workers: Annotated[int | None, typer.Option(min=1, help="Variants side by side; by default one a core.")] = None,
    sandbox: Annotated[SandboxKind, typer.Option(help="`none` runs the code loose.")] = SandboxKind.BWRAP,
    tasks_dir: TasksDir = ROOT / "tasks",
    as_json: AsJson = False,
) -> None:
    """Prove the tasks: starting code, reference and every mutant through the real checks.

    Exit status 1 when anything is wrong: a check that no mutant kills, a mutant that survives, a flaky check, a
    starting code that does not pass exactly one check, an instruction that gives a check away.
    """
    wanted = [tasks.load(name, tasks_dir) for name in names or tasks.names(tasks_dir)]
    run_sandbox.require(sandbox)
    with Progress(err) as progress:
        proven = [
            verify.verify(t, Sandbox(kind=sandbox), repeat=repeat, workers=workers, observer=progress) for t in wanted
        ]
    if as_json:
        _print_json(verify_view.data(proven))
    else:
        out.print(verify_view.table(proven))
    if not all(v.ok for v in proven):
        raise typer.Exit(1)


def _version(asked: bool) -> None:
    if asked:
        out.print(f"agent-ab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


def _with_flags(profile: Profile, agent: str, sandbox: SandboxKind | None) -> Profile:
    kinds = ("builtin", "oracle", "nop")
    if agent and agent not in kinds:
        raise UserError(f"--agent {agent!r}: no such agent{nearest(agent, list(kinds))}")
    changes: dict[str, object] = {}
    if agent:
        changes["agent"] = profile.agent.model_copy(update={"kind": agent})
    if sandbox:
        changes["sandbox"] = profile.sandbox.model_copy(update={"kind": sandbox})
    return profile.model_copy(update=changes)


def _seed(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise UserError(f"--seed {text!r}: not an integer") from None
    if not 0 <= number < 2**32 - 1:
        raise UserError(f"--seed {text}: a seed lies between 0 and {2**32 - 2}")
    return number


def _stored(name: str | None, db: Path) -> Pair:
    if name == "":
        raise UserError("the pair's name is empty; leave it out for the newest pair")
    store = _open(db)
    try:
        names = store.pair_names()
        if not names:
            raise UserError(f"{db}: holds no pair yet; `agent-ab pair --task transfer-repair` plays one")
        if name and name not in names:
            raise UserError(f"{db}: no pair {name!r}{nearest(name, list(names))}")
        return store.load_pair(name or names[-1])
    finally:
        store.close()


def _open(db: Path) -> Store:
    if not db.is_file():
        raise UserError(f"{db}: no such database; `agent-ab pair --task transfer-repair` makes one")
    return Store(db)


def _print_pair(played: Pair, runs_dir: Path, as_json: bool) -> None:
    evidence = str(runs_dir / played.name)
    if as_json:
        _print_json(report.pair_data(played, evidence))
    else:
        out.print(report.pair_view(played, evidence))


def _print_json(data: object) -> None:
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def run_command() -> int:
    """Run the command line and return its exit status; every error is told here, in one line."""
    try:
        return app(standalone_mode=False) or 0
    except UserError as error:
        return _fail(str(error), 2)
    except ApparatusError as error:
        return _fail(str(error), 4)
    except USAGE_ERROR as error:
        return _fail(f"{error.format_message()} (--help tells more)", 2)


def _fail(message: str, status: int) -> int:
    err.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    return status
