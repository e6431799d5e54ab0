"""Inspect AI's own reader takes the log that we write: when it is asked for, or is in the cache (it is 300 MB)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_ab import process
from agent_ab.engine.engine import cache_dir
from agent_ab.export import eval_log
from agent_ab.files import locked
from tests.command import ROOT
from tests.run_files import RUN, pair_of, played
from tests.test_eval_log import talkative

ASKED = "AGENT_AB_LIVE_INSPECT"
INSPECT = "inspect-ai==0.3.285"
READER = """
import json, sys
from inspect_ai.log import read_eval_log

log = read_eval_log(sys.argv[1])
header = read_eval_log(sys.argv[1], header_only=True)
print(json.dumps({
    "status": header.status,
    "task": header.eval.task,
    "means": {score.name: score.metrics["mean"].value for score in header.results.scores if score.metrics},
    "samples": {
        sample.id: {
            "solved": sample.scores["solved"].value,
            "checks": sample.scores["check"].value,
            "roles": [message.role for message in sample.messages],
            "calls": [call.arguments for m in sample.messages for call in getattr(m, "tool_calls", None) or []],
            "said": sample.output.completion,
            "tokens": sample.model_usage["local"].output_tokens,
        }
        for sample in log.samples
    },
}))
"""


@pytest.fixture(scope="module")
def inspect() -> Iterator[Path]:
    """Give the directory of inspect-ai and all that it needs, installed once into the cache."""
    folder = cache_dir() / "test" / f"{INSPECT.replace('==', '-')}-py{sys.version_info[0]}.{sys.version_info[1]}"
    if not folder.is_dir() and not os.environ.get(ASKED):
        pytest.skip(f"inspect-ai is not tested: `make live-inspect` installs it (300 MB, once) and sets {ASKED}=1")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock"), "installs inspect-ai", lambda _: None):
        if not folder.is_dir():
            staging = folder.with_name(f"{folder.name}.part")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
            pinned = ["-c", str(ROOT / "tests" / "inspect_constraints.txt")]
            done = process.run([*pip, *pinned, "--target", str(staging), INSPECT], env=os.environ, timeout_s=3600)
            assert done.exit_code == 0, done.stderr.decode()
            staging.rename(folder)
    yield folder


def test_inspect_reads_every_sample_score_and_message(inspect: Path, tmp_path: Path) -> None:
    store, runs_dir = played(tmp_path, talkative(), pair_of(7, (10, 10)))
    with closing(store):
        eval_log.write(store, RUN, runs_dir, tmp_path / "log.json")
    done = subprocess.run(
        # Without our own packages: nothing of ours helps it along.
        [sys.executable, "-S", "-c", READER, tmp_path / "log.json"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(inspect)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert (read["status"], read["task"]) == ("success", "agent_ab/cpu-demo")
    assert read["means"]["solved (baseline)"] == 1.0 and read["means"]["checks (candidate)"] == 0.55
    assert len(read["samples"]) == 4
    first = read["samples"]["transfer-repair-4242-0/baseline"]
    assert first["solved"] == "C" and len(first["checks"]) == 10
    assert first["roles"] == ["system", "user", "assistant", "tool", "user", "assistant"]
    assert first["calls"] == [{"path": "a.py"}, {"text": "{path"}]
    assert (first["said"], first["tokens"]) == ("done", 40)
    assert read["samples"]["transfer-repair-4242-0/candidate"]["solved"] == "I"
