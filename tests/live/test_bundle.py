"""What a real pair leaves behind is enough: judged again, bundled, sent again, all without the database's word."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent_ab.engine.engine import Engine
from agent_ab.export.reproduce import last_common
from agent_ab.model import Arm, Pair, PairOutcome
from agent_ab.models.models import Model
from agent_ab.paths import RunPaths
from agent_ab.server.server import free_port
from agent_ab.store import evidence
from tests.command import here
from tests.played import once


def test_a_real_pair_is_judged_again_bundled_and_reproduced_from_its_evidence(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, engine: Engine, scripted: Model
) -> None:
    tmp_path = once(tmp_path_factory, "scripted-known-bad").copied(tmp_path)
    (run,) = (RunPaths(path) for path in (tmp_path / "runs").iterdir() if path.is_dir())
    (pair_id,) = evidence.pair_ids(run)
    recorded, derived = evidence.recorded_pair(run, pair_id), evidence.load_pair(run, pair_id)
    assert (derived.outcome, len(derived.flips)) == (PairOutcome.BROKEN, 9)
    assert all(line.ok for line in derived.proof) and len(derived.proof) >= 7
    assert evidence.disagreements(recorded, derived) == ()
    assert evidence.against_plan(json.loads(run.plan.read_text()), derived) == ()
    bundled_and_refused(tmp_path)
    regraded(tmp_path)
    reproduced(tmp_path, engine, scripted, derived)


def bundled_and_refused(cwd: Path) -> None:
    made = here(cwd, "bundle", "--out", "run.zip", "--json").data
    verified = here(cwd, "bundle", "--verify", "run.zip", "--digest", made["digest"], "--json").data
    assert (verified["outcomes"], verified["verdict"]["verdict"]) == ({"BROKEN": 1}, made["verdict"])
    data = bytearray((cwd / "run.zip").read_bytes())
    data[len(data) // 2] ^= 1
    (cwd / "changed.zip").write_bytes(data)
    refused = here(cwd, "bundle", "--verify", "changed.zip")
    assert refused.status == 4 and "was changed" in refused.error


def regraded(cwd: Path) -> None:
    (found,) = here(cwd, "regrade", "--json").data
    assert (found["outcome"], found["outcome_today"], found["changed"]) == ("BROKEN", "BROKEN", [])
    words = ("--pair", found["pair"].partition("/")[2], "--check", "atomicity", "--mark", "flaky", "--json")
    marked = here(cwd, "review", *words).data
    assert marked["reruns"] == {"baseline": ["pass"] * 3, "candidate": ["fail"] * 3}
    assert marked["quarantined"] is False


def reproduced(cwd: Path, engine: Engine, model: Model, pair: Pair) -> None:
    script = here(cwd, "reproduce").stdout
    assert "the bytes that reached both servers" in script
    (cwd / "reproduce.sh").write_text(script)
    done = subprocess.run(
        ["bash", "reproduce.sh"],
        cwd=cwd,
        env={
            "PATH": os.environ["PATH"],
            "LLAMA_SERVER": str(engine.binary),
            "LD_LIBRARY_PATH": engine.library_path,
            "MODEL": str(model.path),
            "PORT": str(free_port()),
            "OUT": str(cwd / "out"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "baseline: HTTP 200" in done.stdout and "candidate: HTTP 200" in done.stdout
    assert "the answers differ" in done.stdout and "warning" not in done.stderr
    # The very replies of the recorded pair.
    logs = [pair.attempt(arm).log for arm in Arm]
    assert logs[0] and logs[1]
    index = last_common(logs[0], logs[1]).index
    for arm, log in zip(Arm, logs, strict=True):
        said = json.dumps(log.exchanges[index].content, ensure_ascii=False)[1:-1] if log else ""
        assert said in (cwd / "out" / f"{arm}.text").read_text()
