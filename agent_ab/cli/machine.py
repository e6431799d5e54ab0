"""`setup`, `doctor`: what this machine has, and what it lacks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from agent_ab.cli.app import ROOT, AsJson, ProfilesDir, RunsDir, app, err, out, print_json
from agent_ab.cli.options import bounded
from agent_ab.config import Profile, load_profile
from agent_ab.doctor import doctor as examination
from agent_ab.doctor.findings import Finding
from agent_ab.doctor.memory import GIB
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Arm, Event, Outcome, Pair
from agent_ab.progress import Progress
from agent_ab.server import serving

STARTING = ("server", "proxy", "sandbox")
"""Steps whose failure is the machine's, or the profile's, and never the model's."""


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
    settings = chosen.arm(Arm.BASELINE)
    with Progress(err) as progress:
        found = serving.find(settings.server, progress)
        model = None if settings.model.source == "scripted" else serving.model(settings, None, progress)
    facts: dict[str, object] = {"engine": serving.describe(found), "sha256": found.sha256}
    if isinstance(found, Engine):
        facts |= {
            "llama_server": str(found.binary),
            "source": found.source,
            "build": found.build,
            "spec_types": list(found.spec_types),
        }
    facts |= {
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
    free_gib: Annotated[
        float | None, bounded("Ask for a machine, or its GPU, with so much free memory.", most=1e6)
    ] = None,
    profiles_dir: ProfilesDir = ROOT / "profiles",
    runs_dir: RunsDir = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Say what works on this machine, what does not, and what to do about it. Changes and builds nothing.

    Engine, speculation, model, memory of both arms, GPU, agent, proxy, box, ports, disk, clock, load. Exit status 4 when
    something that a pair needs does not work. It runs by itself when a pair cannot start.

    Example: agent-ab doctor --profile rtx3090-qwen3.8-27b-mtp --free-gib 24
    """
    chosen = load_profile(profile, profiles_dir)
    free = None if free_gib is None else round(free_gib * GIB)
    with Progress(err) as progress:
        findings = examination.examine(chosen, progress, runs_dir=runs_dir, free=free)
    if as_json:
        print_json([{"name": f.name, "ok": f.ok, "detail": f.detail, "todo": f.todo} for f in findings])
    else:
        for finding in findings:
            out.print(_line(finding), soft_wrap=True)
    if not all(f.ok for f in findings):
        raise typer.Exit(4)


def _line(finding: Finding) -> Text:
    mark = ("NO  ", "bold red") if not finding.ok else ("note", "yellow") if finding.todo else ("ok  ", "green")
    return Text.assemble((f"{finding.name:<22}", "bold"), mark, f"  {finding.words}")


@contextmanager
def examined(profile: Profile, runs_dir: Path) -> Iterator[None]:
    """When the block cannot start a run of `profile`, add to its error what the doctor finds broken."""
    try:
        yield
    except (UserError, ApparatusError) as error:
        for finding in _broken(profile, runs_dir):
            # The doctor often finds the very cause, in the same words.
            if finding.detail.rpartition(": ")[2] not in str(error):
                error.add_note(f"doctor: {finding.name}: {finding.words}")
        raise


def explain_void(pair: Pair, profile: Profile, runs_dir: Path) -> None:
    """Print what the doctor finds broken when an attempt of `pair` never came to its agent."""
    reasons = [a.invalid_reason for a in (pair.baseline, pair.candidate) if a.outcome is Outcome.INVALID]
    if any(reason.partition(":")[0] in STARTING for reason in reasons):
        err.print("looking for the cause ...", style="dim")
        for finding in _broken(profile, runs_dir):
            err.print(Text(f"doctor: {finding.name}: {finding.words}"), soft_wrap=True)


def _broken(profile: Profile, runs_dir: Path) -> list[Finding]:
    def silent(_event: Event) -> None:
        pass

    return [f for f in examination.examine(profile, silent, runs_dir=runs_dir) if not f.ok]
