"""`setup`, `doctor`: what this machine has, and what it lacks."""

from typing import Annotated

import typer
from rich.text import Text

from agent_ab import doctor as examination
from agent_ab import engine, models
from agent_ab.cli.app import ROOT, AsJson, ProfilesDir, app, err, out, print_json
from agent_ab.config import load_profile
from agent_ab.progress import Progress


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
        print_json(facts)
        return
    for label, value in facts.items():
        out.print(Text.assemble((f"{label:<14}", "bold"), ", ".join(value) if isinstance(value, list) else str(value)))


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
        print_json([{"name": f.name, "ok": f.ok, "detail": f.detail} for f in findings])
    else:
        for f in findings:
            mark = ("ok", "green") if f.ok else ("NO", "bold red")
            out.print(Text.assemble((f"{f.name:<16}", "bold"), mark, f"  {f.detail}"), soft_wrap=True)
    if not all(f.ok for f in findings):
        raise typer.Exit(4)
