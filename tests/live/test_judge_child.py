"""The judge's process: one flushed line a case, and a reason when it cannot begin."""

import json
import subprocess
import sys
from pathlib import Path

from agent_ab.engine import engine as engines
from agent_ab.judge.case import CASES, LOADING, SCORE, Case, Loading, Said
from agent_ab.models import models
from tests.command import ROOT
from tests.table_model import settings


def test_every_case_is_a_line_and_those_that_cannot_be_judged_say_why(
    engine: engines.Engine, scripted: models.Model, tmp_path: Path
) -> None:
    prompt = "Do it.<|im_start|>assistant\n<|s0|>"
    cases = tuple(
        Case(name, prompt, count, settings(), Said((70, 71)), Said((70, 72)))
        for name, count in (("a", None), ("b", 10**6))
    )
    loading = Loading(str(scripted.path), 512, 64, 32, 0, 2, "f16", "f16", True, 2)
    job, scores = tmp_path / "job.json", tmp_path / "scores.jsonl"
    job.write_text(
        json.dumps(
            {"loading": LOADING.dump_python(loading, mode="json"), "cases": CASES.dump_python(cases, mode="json")}
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "agent_ab.judge.child", job, scores],
        env={"LLAMA_CPP_LIB_PATH": str(engine.binary.parent), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [SCORE.validate_json(line) for line in scores.read_bytes().splitlines()]
    assert [score.case for score in found] == ["a", "b"]
    assert found[0].index == 1 and found[0].candidate is not None and found[0].candidate.token == 72
    assert "prompt" in found[1].note
