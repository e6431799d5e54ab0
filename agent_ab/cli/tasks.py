"""`check`, `task`: the tasks, and how a directory is judged."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from agent_ab import run, tasks
from agent_ab import sandbox as run_sandbox
from agent_ab.cli.app import ROOT, AsJson, TasksDir, app, err, out, print_json
from agent_ab.config import Sandbox
from agent_ab.model import SandboxKind
from agent_ab.progress import Progress
from agent_ab.report import report
from agent_ab.session.session import session
from agent_ab.verify import verify, view


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
    with Progress(err) as progress, session(progress):
        results = run.check_workspace(loaded, workspace, Sandbox(kind=sandbox), progress)
    if as_json:
        print_json(report.checks_data(results))
    else:
        out.print(report.checks_view(results))


task_app = typer.Typer(help="The tasks: what the agent is asked, and how it is judged.", no_args_is_help=True)
app.add_typer(task_app, name="task")


@task_app.command("list")
def task_list(tasks_dir: TasksDir = ROOT / "tasks", as_json: AsJson = False) -> None:
    """List the tasks."""
    loaded = [tasks.load(name, tasks_dir) for name in tasks.names(tasks_dir)]
    if as_json:
        print_json([{"id": t.id, "title": t.title} for t in loaded])
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
    with Progress(err) as progress, session(progress):
        proven = [
            verify.verify(t, Sandbox(kind=sandbox), repeat=repeat, workers=workers, observer=progress) for t in wanted
        ]
    if as_json:
        print_json(view.data(proven))
    else:
        out.print(view.table(proven))
    if not all(v.ok for v in proven):
        raise typer.Exit(1)
