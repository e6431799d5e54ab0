"""A pair on a real vLLM, n-gram lookup against none. `make live-vllm` installs vLLM (3.5 GB) and asks for it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent_ab import process
from agent_ab.config import Draft, Speculation
from agent_ab.vllm import command
from agent_ab.vllm import engine as vllm_engine
from tests.command import agent_ab

ASKED = "AGENT_AB_LIVE_VLLM"
pytestmark = pytest.mark.skipif(
    not os.environ.get(ASKED), reason=f"vLLM is not tested: `make live-vllm` installs it (3.5 GB) and sets {ASKED}=1"
)
CONFIGS = [
    Speculation(type="ngram", n_max=4, lookup_min=1, lookup_max=4),
    Speculation(type="mtp", n_max=2, sampling="probabilistic", synth_rates=(0.5, 0.0)),
    Speculation(type="eagle3", n_max=3, draft=Draft(path="/models/head")),
    Speculation(type="dflash", n_max=16, draft=Draft(path="/models/block")),
]
PARSE = """
import dataclasses, json, sys, typing
from vllm.config import speculative
fields = {field.name for field in dataclasses.fields(speculative.SpeculativeConfig)}
def words(kind):
    for part in typing.get_args(kind):
        yield from words(part) if typing.get_args(part) else [part]
methods = set(words(speculative.SpeculativeMethod))
configs = json.loads(sys.argv[1])
faults = [f"{config}: no {name}" for config in configs for name in config if name not in fields]
faults += [config["method"] for config in configs if config["method"] not in methods]
print(json.dumps(faults))
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Play one pair; everything below is asked of it."""
    folder = tmp_path_factory.mktemp("vllm")
    words = ("pair", "--task", "transfer-repair", "--profile", "scripted-vllm", "--json")
    done = agent_ab(folder, *words, timeout_s=3600)
    assert done.stdout, done.stderr
    for arm in ("baseline", "candidate"):
        drafting = done.data["pair"][arm]["drafting"]
        metrics = done.data["metrics"][arm]
        print(f"{arm}: {metrics['turns']} turns, {metrics['generated_tokens']} tokens, drafting {drafting}")
    return done.data


def test_the_pair_is_proven_and_the_task_is_solved_in_both_arms(played: Any) -> None:
    pair = played["pair"]
    assert pair["outcome"] == "BOTH_PASS" and pair["proven"] is True
    assert all(line["ok"] and not line["unproven"] for line in pair["proof"])
    assert "speculative_config=None" in pair["baseline"]["server"]["proof"]
    assert "method='ngram'" in pair["candidate"]["server"]["proof"]


def test_acceptance_is_read_per_request_and_from_the_counters_and_both_agree(played: Any) -> None:
    baseline, candidate = (played["pair"][arm] for arm in ("baseline", "candidate"))
    assert baseline["drafting"] is None
    assert {e["timings"]["draft_n"] for e in baseline["log"]["exchanges"]} == {None}
    counted, metrics = candidate["drafting"], played["metrics"]["candidate"]
    assert metrics["drafted"] > metrics["accepted"] > 0
    assert (counted["drafted"], counted["accepted"]) == (metrics["drafted"], metrics["accepted"])
    assert sum(counted["accepted_at"]) == counted["accepted"] and len(counted["accepted_at"]) == 4


def test_nothing_came_from_the_prefix_cache(played: Any) -> None:
    for arm in ("baseline", "candidate"):
        attempt = played["pair"][arm]
        assert attempt["server"]["props"]["prefix_caching"] is False
        assert "--no-enable-prefix-caching" in attempt["server"]["argv"]
        assert {e["timings"]["cache_n"] for e in attempt["log"]["exchanges"]} == {0}


def test_the_methods_that_are_not_run_here_are_words_that_vllm_knows(tmp_path: Path) -> None:
    engine = vllm_engine.find("")
    configs = json.dumps([command.speculative_config(speculation) for speculation in CONFIGS])
    python = str(engine.binary.parent / "python3")
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = process.run([python, "-c", PARSE, configs], env=env, timeout_s=600)
    assert done.exit_code == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []
