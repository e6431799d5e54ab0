"""`blocks`: several candidates against one baseline."""

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
from agent_ab.suite.plan import Asked


@app.command()
def blocks(
    profile: Annotated[str, typer.Option(help=r"A profile with \[candidates.NAME] tables, or the path of its file.")],
    tasks_: TaskNames = None,
    seeds: SeedNumbers = None,
    repeats: Repeats = 1,
    policy: Annotated[Path | None, typer.Option(help="The gate's policy; its alpha is shared out.")] = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
    seeds_file: SeedsFile = ROOT / "seeds.toml",
) -> None:
    """Play several candidates against one baseline, and stop playing a candidate as soon as it is rejected.

    A block is one seed over all tasks; in it the baseline plays each task once, and so does every candidate. Each
    candidate is a run of its own (`agent-ab gate RUN`), judged with alpha divided by the number of candidates.

    Exit status: 0 played; 1 every candidate is rejected; 4 a pair stayed VOID.

    Example: agent-ab blocks --profile scripted-three-arms --seeds 1,2,3,4,5
    """
    # Brings scipy with it.
    from agent_ab.suite import blocks as playing_blocks
    from agent_ab.suite import blocks_view

    chosen = load_profile(profile, profiles_dir)
    tasks, orders, rules = tasks_asked(tasks_, tasks_dir), seeds_asked(seeds, seeds_file), load_policy(policy)
    require_parents(db, runs_dir)

    def ask(own: Profile, candidates: int) -> Asked:
        return Asked(own, tasks, orders, repeats, playing_blocks.shared(rules, candidates))

    with Progress(err) as progress, playing(db, runs_dir, progress) as store:
        found = playing_blocks.play(chosen, ask, (tasks_dir, runs_dir), store, show_on(progress))
    if as_json:
        print_json(blocks_view.data(found, rules.alpha))
    else:
        out.print(blocks_view.view(found, rules.alpha))
    if any(c.verdict and c.verdict.decision.value == "INVALID" for c in found):
        raise typer.Exit(4)
    if all(c.rejected for c in found):
        raise typer.Exit(1)
