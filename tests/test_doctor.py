"""The doctor says what works and what to do about what does not; it comes by itself when a pair cannot start."""

from pathlib import Path

import pytest

from agent_ab.config import Agent, Profile, load_profile
from agent_ab.doctor import doctor
from agent_ab.doctor.findings import Finding
from agent_ab.model import Event
from tests.command import ROOT, here
from tests.gguf_files import TRUNK, tiny

PARTS = "python,git,engine,speculation baseline,speculation candidate,agent,proxy,sandbox,sandbox python,ports,cache,runs,clock,load"


def ignore(_event: Event) -> None:
    pass


def line(stdout: str, name: str) -> str:
    return next(line for line in stdout.splitlines() if line.startswith(name))


def found(profile: Profile) -> dict[str, Finding]:
    return {finding.name: finding for finding in doctor.examine(profile, ignore)}


def test_every_part_of_a_pair_is_examined_and_nothing_is_made(tmp_path: Path) -> None:
    done = here(tmp_path, "doctor", "--json", env={"AGENT_AB_CACHE": str(tmp_path / "cache")})
    names = [finding["name"] for finding in done.data]
    assert set(PARTS.split(",")) <= set(names) and len(names) == len(set(names))
    assert not (tmp_path / "cache").exists() and not (tmp_path / "runs").exists()


def test_on_a_bare_machine_each_missing_tool_is_named_with_its_package(tmp_path: Path) -> None:
    done = here(
        tmp_path,
        "doctor",
        env={"PATH": str(tmp_path), "AGENT_AB_CACHE": str(tmp_path / "cache"), "AGENT_AB_LLAMA_SERVER": ""},
    )
    assert done.status == 4
    assert "apt install git" in line(done.stdout, "git")
    assert "cmake" in line(done.stdout, "engine") and "AGENT_AB_LLAMA_SERVER" in line(done.stdout, "engine")


def test_a_sandbox_that_does_not_work_is_told_with_its_remedy(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = here(tmp_path, "doctor", env={"AGENT_AB_BWRAP": str(broken)})
    assert done.status == 4
    assert "--sandbox none" in done.stdout


def test_a_pair_that_cannot_start_is_followed_by_what_the_doctor_finds_broken(tmp_path: Path) -> None:
    model = tiny(tmp_path / "m.gguf", heads=0, tensors=TRUNK)
    text = (ROOT / "profiles" / "scripted-solve.toml").read_text()
    text = text.replace('source = "scripted"\nscript = "solve"', f'source = "file"\npath = "{model}"')
    text = text.replace("gpu_layers = 0", "gpu_layers = 99")
    (tmp_path / "p.toml").write_text(text)
    done = here(tmp_path, "pair", "--task", "transfer-repair", "--profile", "p.toml")
    assert done.status == 2 and "announces no MTP block" in done.error
    told = [line for line in done.stderr.splitlines() if line.startswith("doctor: ")]
    # The cause is not told twice.
    assert any("doctor: GPU" in line for line in told) and not any("MTP block" in line for line in told)


def test_a_mistake_in_the_command_line_needs_no_doctor(tmp_path: Path) -> None:
    done = here(tmp_path, "pair", "--task", "transfer-repare", env={"PATH": str(tmp_path)})
    assert done.status == 2 and "doctor:" not in done.stderr


def test_findings_that_the_arms_share_are_said_once() -> None:
    same, other = Finding("model", True, "m"), Finding("memory", False, "too little")
    merged = doctor.merged({"baseline": (same, Finding("memory", True, "enough")), "candidate": (same, other)})
    assert [finding.name for finding in merged] == ["model", "memory baseline", "memory candidate"]


def test_each_of_several_candidates_is_looked_at(tmp_path: Path) -> None:
    text = (ROOT / "profiles" / "scripted-solve.toml").read_text().partition("[candidate")[0]
    for name, kind in (("head", "draft-mtp"), ("lookup", "ngram-mod")):
        text += f'\n[candidates.{name}.server.speculation]\ntype = "{kind}"\n'
    (tmp_path / "p.toml").write_text(text)
    lines = found(load_profile(str(tmp_path / "p.toml"), tmp_path))
    assert {"speculation baseline", "speculation head", "speculation lookup"} <= set(lines)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (Agent(kind="opencode", binary="/no/such/opencode"), "agent.binary: no program /no/such/opencode; correct"),
        (Agent(kind="command"), "agent.command: agent.kind"),
        (Agent(clock="2026-02-31 00:00:00"), "agent.clock"),
    ],
    ids=lambda value: value.kind if isinstance(value, Agent) else "",
)
def test_an_agent_that_cannot_be_run_is_named(agent: Agent, words: str) -> None:
    profile = load_profile("scripted-solve", ROOT / "profiles").model_copy(update={"agent": agent})
    line = found(profile)["agent"]
    assert not line.ok and words in line.words


def test_a_disk_that_is_too_small_or_cannot_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    full = doctor.disk("cache", tmp_path / "new", 1 << 60, "AGENT_AB_CACHE")
    assert not full.ok and "name another directory with AGENT_AB_CACHE" in full.todo
    assert doctor.disk("runs", tmp_path, 1, "--runs-dir").ok
