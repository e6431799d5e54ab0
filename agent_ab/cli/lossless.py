"""`lossless`, `replay`: the same requests again, to other arms, methods and servers."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from agent_ab import requests, tasks
from agent_ab.cli.app import ROOT, AsJson, Db, ProfilesDir, RunsDir, TasksDir, app, err, open_store, out, print_json
from agent_ab.cli.options import bounded, seed_number
from agent_ab.config import Profile, load_profile, nearest
from agent_ab.divergence.reply_diff import Token, tokens_from_reply
from agent_ab.errors import UserError
from agent_ab.lossless import lossless as measuring
from agent_ab.lossless import replay_pair, view
from agent_ab.lossless.lossless import Question
from agent_ab.model import Arm, Pair, Task
from agent_ab.paths import RunPaths
from agent_ab.progress import Progress
from agent_ab.requests import Recorded
from agent_ab.session.session import session
from agent_ab.store import evidence

DEFAULT_PROFILE, DEFAULT_TASK = "cpu-demo", "transfer-repair"
PairName = Annotated[str | None, typer.Argument(help="A pair, as `agent-ab pairs` names it.")]


@app.command()
def lossless(
    pair: PairName = None,
    profile: Annotated[
        str, typer.Option(help="Instead of a pair: the profile whose two arms answer; by default cpu-demo.")
    ] = "",
    requests_: Annotated[
        Path | None, typer.Option("--requests", help="JSON lines, or an exchanges.jsonl; by default our own set.")
    ] = None,
    classes: Annotated[str, typer.Option(help="Only these classes, as in code,prose; by default all.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many requests.")] = None,
    temperature: Annotated[
        list[float] | None, bounded("Send each request with it; may be given again.", most=100)
    ] = None,
    seed: Annotated[str, typer.Option(help="The sampling seed of requests that name none.")] = "4242",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Cap of each reply.")] = None,
    repeats: Annotated[
        int, typer.Option(min=0, help="Replies a request and arm for the test of distributions; 0: no test.")
    ] = 0,
    task: Annotated[
        str,
        typer.Option(help="With --profile: the task whose script a scripted model says; by default transfer-repair."),
    ] = "",
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
) -> None:
    """Ask whether a method keeps what the model says: both arms answer recorded requests, and every difference is judged.

    The judge is llama-cpp-python on the same GGUF, one token at a time, without speculation, after the servers are gone.
    `near tie`: the size of a batch alone moves the two tokens past each other. `sampling`: the sampler could have said
    both. `outside support`: the target would not have said it, a fault. `not judged` says why.

    Exit status: 0 no fault was found, 1 one was, 3 there are differences and none could be judged.

    Example: agent-ab lossless --profile cpu-demo --temperature 0 --temperature 1 --repeats 200
    """
    for option, value in (("--profile", profile), ("--task", task)):
        if pair and value:
            raise UserError(f"{option} {value}: the pair {pair} has its own; leave one of them out")
    number = seed_number(seed, "--seed")
    chosen, asked, name = _asked(pair, profile, requests_, db, runs_dir, profiles_dir)
    found = requests.choose(asked, [c for c in classes.split(",") if c], limit)
    question = Question(found, tuple(temperature or ()), number, max_tokens, repeats)
    with Progress(err) as progress, session(progress):
        arms = measuring.prepare(chosen, _task(name or task or DEFAULT_TASK, tasks_dir, chosen), progress)
        folder = _folder(runs_dir, "lossless")
        result = measuring.measure(arms, question, folder, progress)
    data = view.data(result)
    (folder / "lossless.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json({**data, "evidence": str(folder)})
    else:
        out.print(view.view(result))
        out.print(f"\nevidence   {folder}", soft_wrap=True)
    if result.lossy or result.undecided:
        raise typer.Exit(1 if result.lossy else 3)


@app.command()
def replay(
    pair: Annotated[str, typer.Argument(help="A pair, as `agent-ab pairs` names it.")],
    arm: Annotated[Arm, typer.Option(help="The arm whose server is asked.")] = Arm.CANDIDATE,
    recorded: Annotated[Arm, typer.Option("--from", help="The arm whose requests are sent.")] = Arm.BASELINE,
    profile: Annotated[str, typer.Option(help="Ask the arm of another profile, of another method for example.")] = "",
    url: Annotated[str, typer.Option(help="Ask this server instead, as in http://127.0.0.1:8000.")] = "",
    key_variable: Annotated[str, typer.Option(help="With --url: the environment variable that holds its key.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many requests.")] = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
    profiles_dir: ProfilesDir = ROOT / "profiles",
) -> None:
    """Send one arm's recorded requests to a server again, each as it was, whatever the replies are (teacher-forced).

    So two servers can be compared reply by reply, although their conversations would have drifted apart.

    Example: agent-ab replay 20261130-101500/transfer-repair-4242-0 --arm candidate
    """
    if url and profile:
        raise UserError("--url and --profile: a server of its own, or a profile's; name one")
    if key_variable and not url:
        raise UserError("--key-variable: only a server that --url names is asked with a key of yours")
    stored, own = _stored(pair, db)
    asked = _recorded(stored, recorded, runs_dir)[:limit]
    log = evidence.recorded_log(stored, recorded, runs_dir)
    with Progress(err) as progress, session(progress):
        if url:
            target = replay_pair.by_url(url, key_variable, asked, progress)
        else:
            chosen = load_profile(profile, profiles_dir) if profile else own
            parts = measuring.parts(chosen.arm(arm), _task(stored.task, tasks_dir, chosen), progress)
            target = replay_pair.by_arm(parts, arm, asked, _folder(runs_dir, "replay"), progress)
    result = replay_pair.compare_all(stored, recorded, log, target, _tokens(stored, recorded, runs_dir))
    if as_json:
        print_json(replay_pair.data(result))
    else:
        out.print(replay_pair.view(result))


def _asked(
    pair: str | None, profile: str, path: Path | None, db: Path, runs_dir: Path, profiles_dir: Path
) -> tuple[Profile, tuple[Recorded, ...], str]:
    """Return the profile, the requests and, of a pair, its task."""
    if pair is None:
        return load_profile(profile or DEFAULT_PROFILE, profiles_dir), requests.load(path), ""
    stored, own = _stored(pair, db)
    return own, requests.load(path) if path else _recorded(stored, Arm.BASELINE, runs_dir), stored.task


def _stored(name: str, db: Path) -> tuple[Pair, Profile]:
    """Return a pair and the profile that it was played with. Raises UserError."""
    store = open_store(db)
    try:
        names = store.pair_names()
        if name not in names:
            raise UserError(f"{db}: no pair {name!r}{nearest(name, list(names))}")
        plan = store.run(name.partition("/")[0]).plan
        pair = store.load_pair(name)
    finally:
        store.close()
    if not isinstance(plan, dict) or "profile" not in plan:
        raise UserError(f"{name}: its run was not played with a profile here; give --profile and --requests instead")
    return pair, Profile.model_validate(plan["profile"])


def _tokens(pair: Pair, arm: Arm, runs_dir: Path) -> dict[str, tuple[Token, ...]]:
    path = RunPaths(runs_dir / pair.run).attempt(pair.id, arm).tokens
    if not path.is_file():
        return {}
    replies = evidence.parsed(evidence.recorded_file(pair.attempt(arm), path))
    return {text: tokens_from_reply(reply) for text, reply in replies.items()}


def _recorded(pair: Pair, arm: Arm, runs_dir: Path) -> tuple[Recorded, ...]:
    found = requests.of_log(evidence.recorded_log(pair, arm, runs_dir))
    if not found:
        raise UserError(f"{pair.name}: the {arm} asked the model nothing, so there is nothing to send again")
    return found


def _task(name: str, tasks_dir: Path, profile: Profile) -> Task | None:
    return tasks.load(name, tasks_dir) if profile.model.source == "scripted" else None


def _folder(runs_dir: Path, what: str) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        folder = runs_dir / (f"{what}-{stamp}-{number}" if number else f"{what}-{stamp}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"{folder}: cannot be written: {error.strerror}; choose another with --runs-dir") from error
        return folder
    raise UserError(f"{runs_dir}: too many results within one second")
