"""`bench`: which decoding method is fastest on agent traffic."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from agent_ab import tasks
from agent_ab.bench import loop, methods, plot, record, view
from agent_ab.bench import requests as bench_requests
from agent_ab.bench.result import Plan
from agent_ab.bench.stats import ALL, Row
from agent_ab.cli.app import ROOT, AsJson, ProfilesDir, RunsDir, TasksDir, app, err, out, print_json
from agent_ab.cli.options import MOST_MINUTES, bounded
from agent_ab.config import load_profile
from agent_ab.errors import UserError
from agent_ab.model import Task
from agent_ab.progress import Progress
from agent_ab.session.session import session

EACH, TOKENS = 1, 48
"""Requests of a class and tokens of a reply with which five methods take less than ten minutes on two cores."""


@app.command()
def bench(
    method_names: Annotated[
        str,
        typer.Option("--methods", help="A comma list, `none` among it: ngram-mod, mtp-2, eagle3, dflash, simple ..."),
    ] = "none,ngram-mod,mtp-1,mtp-2,mtp-3",
    profile: Annotated[str, typer.Option(help="A profile's name, or the path of a .toml file.")] = "cpu-demo",
    requests: Annotated[
        str, typer.Option(help="A .jsonl file, or a pair RUN/PAIR whose requests are played; else our own set.")
    ] = "",
    each: Annotated[
        int | None, typer.Option(min=1, help="At most so many requests of each class: 1; all of a script.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="9 give 96 % intervals that bear one outlier on each side.")] = 9,
    tokens: Annotated[
        int | None, typer.Option(min=8, help="Greatest number of tokens of a reply: 48; all of a script.")
    ] = None,
    max_minutes: Annotated[
        float, bounded("After 6 rounds, begin none that would end later; 0: play all.", most=MOST_MINUTES)
    ] = 9,
    seed: Annotated[int, typer.Option(min=0, help="The replies' sampling seeds come from it.")] = 4242,
    task: Annotated[
        str, typer.Option(help="For scripted models: the task whose script is played.")
    ] = "transfer-repair",
    against: Annotated[str, typer.Option(help="An earlier bench below --runs-dir: do the ratios agree?")] = "",
    as_json: AsJson = False,
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
) -> None:
    """Measure decoding methods on recorded agent requests: speed, waiting, acceptance, memory, each with its interval.

    Every method answers the same requests, in every round on a fresh server, in ABBA order. A method whose draft does not
    fit is reported as not applied. Exit status 4 when no method but the baseline could be measured.

    Example: agent-ab bench --profile cpu-demo --methods none,ngram-mod,mtp-1,mtp-2,mtp-3
    """
    chosen = load_profile(profile, profiles_dir)
    loaded = tasks.load(task, tasks_dir) if chosen.model.source == "scripted" else None
    scripted = loaded is not None and not requests
    found = bench_requests.find(requests, chosen, loaded, runs_dir)
    plan = Plan(
        profile=chosen,
        methods=methods.parse(method_names, chosen),
        requests=bench_requests.some_of_each(found, each or (None if scripted else EACH)),
        rounds=rounds,
        tokens=tokens or (bench_requests.SCRIPT_TOKENS if scripted else TOKENS),
        seed=seed,
        limit_s=max_minutes * 60 or None,
    )
    earlier = record.rows(runs_dir / against) if against else ()
    _play(plan, loaded, _new_folder(runs_dir), earlier, as_json)


def _play(plan: Plan, task: Task | None, folder: Path, earlier: tuple[Row, ...], as_json: bool) -> None:
    try:
        with Progress(err) as progress, session(progress):
            result = loop.play(plan, task, folder, progress)
    except BaseException as error:
        left = _left(folder)
        if left and isinstance(error, KeyboardInterrupt):
            # Nobody shows its notes.
            err.print(left, soft_wrap=True)
        elif left:
            error.add_note(left)
        raise
    dropped = [name for name, standing in result.standings.items() if standing.not_applied]
    subtitle = f"{plan.profile.name}, {result.facts['model']}, {len(plan.requests)} requests a round"
    (folder / "bench.svg").write_text(plot.plot(result.rows, subtitle, dropped), encoding="utf-8")
    record.save(folder, view.data(result))
    compared = view.agreement(result.rows, earlier)
    if as_json:
        print_json(view.data(result) | {"folder": str(folder), "agreement": compared})
    else:
        out.print(view.view(result, str(folder)))
        for line in compared:
            out.print(f"  {line}")
    if not [row for row in result.rows if row.kind == ALL and row.decode_ratio]:
        raise typer.Exit(4)


def _left(folder: Path) -> str:
    """Return in a sentence what a bench that was cut off leaves; when that is nothing, remove its folder."""
    replies = folder / loop.REPLIES
    if replies.exists():
        return f"the replies so far are kept in {replies}, the server logs beside them"
    if any(folder.iterdir()):
        return f"no method has finished a round; the plan and the server logs are in {folder}"
    folder.rmdir()
    return ""


def _new_folder(runs_dir: Path) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        folder = runs_dir / f"bench-{stamp}{f'-{number}' if number else ''}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"{folder}: cannot be written: {error.strerror}; choose another with --runs-dir") from None
        return folder
    raise UserError(f"{runs_dir}: too many benches within one second")
