"""`sweep`: does the gap between the arms close when both get more of something?"""

from pathlib import Path
from typing import Annotated

import typer

from agent_ab.cli.app import ROOT, AsJson, Db, ProfilesDir, RunsDir, TasksDir, app, err, out, print_json
from agent_ab.cli.options import Repeats, SeedNumbers, SeedsFile, TaskNames, require_parents, seeds_asked, tasks_asked
from agent_ab.cli.suite import show_on
from agent_ab.config import Profile, load_profile
from agent_ab.gate.policy import load_policy
from agent_ab.progress import Progress
from agent_ab.session.session import playing
from agent_ab.suite import sweep as sweeping
from agent_ab.suite import sweep_table
from agent_ab.suite.plan import Asked


@app.command()
def sweep(
    setting: Annotated[str, typer.Argument(help="A setting that both arms share, and its values.")],
    profile: Annotated[str, typer.Option(help="A profile's name, or the path of a .toml file.")] = "cpu-demo",
    tasks_: TaskNames = None,
    seeds: SeedNumbers = None,
    repeats: Repeats = 1,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    seeds_file: SeedsFile = ROOT / "seeds.toml",
) -> None:
    """Play the same pairs at each value of a setting, both arms alike, and say whether the gap between the arms closes.

    Per value: solved, checks, length stops, attempts that edited, time. Each value is a run of its own, which `gate` and
    `report` read; interrupted, the same command goes on.

    Exit status: 0 played; 4 a pair stayed VOID.

    Example: agent-ab sweep response_budget=1024,4096 --profile scripted-thinking --tasks transfer-repair --seeds 4242
    """
    swept = sweeping.parse(setting, load_profile(profile, profiles_dir))
    tasks, orders, policy = tasks_asked(tasks_, tasks_dir), seeds_asked(seeds, seeds_file), load_policy(None)
    require_parents(db, runs_dir)

    def ask(chosen: Profile) -> Asked:
        return Asked(chosen, tasks, orders, repeats, policy)

    with Progress(err) as progress, playing(db, runs_dir, progress) as store:
        found = sweeping.play(swept, ask, (tasks_dir, runs_dir), store, show_on(progress))
    if as_json:
        print_json(sweep_table.data(swept.setting, found))
    else:
        out.print(sweep_table.view(swept.setting, found))
    if any(at.void for at in found):
        raise typer.Exit(4)
