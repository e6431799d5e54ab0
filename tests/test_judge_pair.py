import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_ab.config import ArmSettings
from agent_ab.divergence import divergence, parting
from agent_ab.engine.engine import Engine
from agent_ab.judge.judge import LIBRARY, Bench
from agent_ab.judge.judgement import Judgement
from agent_ab.judge.pair import of_pair
from agent_ab.model import Arm, Event, Exchange, ExchangeLog, Pair
from agent_ab.models.models import inspect
from agent_ab.paths import RunPaths
from tests.builders import attempt, exchange, pair, timings
from tests.gguf_files import tiny

DRAFTS = {Arm.BASELINE: 0, Arm.CANDIDATE: 3}


def ignore(_event: Event) -> None:
    """Observe nothing."""


@pytest.fixture(autouse=True)
def no_own_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "cache"))


def played(left: Exchange, right: Exchange, **changes: Any) -> Pair:
    arms = [attempt(arm, log=ExchangeLog((said,), ())) for arm, said in ((Arm.BASELINE, left), (Arm.CANDIDATE, right))]
    made = replace(pair(*arms), **changes)
    return replace(made, divergence=parting.to_json(divergence.between(made.baseline, made.candidate)))


def judged(of: Pair, tmp_path: Path, prompts: object = None, servers_run: bool = False) -> Judgement:
    run = RunPaths(tmp_path / "runs" / of.run)
    if prompts is not None:
        path = run.attempt(of.id, Arm.BASELINE).prompts
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(prompts))
    bench = Bench(
        Engine(tmp_path / "llama-server", "", "b1", frozenset(), (), "PATH"),
        ArmSettings(),
        inspect(tiny(tmp_path / "m.gguf"), ignore),
        3,
    )
    return of_pair(of, run, bench, DRAFTS, ignore, servers_run)


PROMPTS = {"format": 1, "prompts": [{"kept": 0, "rest": "<go>", "shape": 0}], "settings": [{"temperature": 1.0}]}
PARTED = exchange(0, content="one two"), exchange(0, content="one six")


def test_equal_replies_leave_nothing_to_judge_and_symptoms_are_counted(tmp_path: Path) -> None:
    drafted = exchange(0, timings=timings(draft_n=12, draft_n_accepted=9))
    found = judged(played(exchange(0), drafted), tmp_path)
    assert found.judged is None
    assert found.symptoms[Arm.CANDIDATE].drafted == 12 and found.symptoms[Arm.BASELINE].drafted == 0


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (played(*PARTED, variable="model.path"), "the arms owe each other no equal replies"),
        (played(exchange(0), exchange(0, finish_reason="length")), "only the ends differ"),
        (played(*PARTED), "before prompts were kept"),
    ],
)
def test_what_cannot_be_judged_says_why(tmp_path: Path, of: Pair, told: str) -> None:
    assert told in judged(of, tmp_path).sentence


def test_while_the_servers_run_no_second_model_is_loaded(tmp_path: Path) -> None:
    assert "live on" in judged(played(*PARTED), tmp_path, PROMPTS, servers_run=True).sentence


def test_a_budget_of_thoughts_is_not_judged(tmp_path: Path) -> None:
    asked = {"messages": [], "reasoning_budget_tokens": 50}
    left, right = (replace(said, request=asked) for said in PARTED)
    assert "reasoning_budget_tokens" in judged(played(left, right), tmp_path, PROMPTS).sentence


def test_a_difference_with_its_prompt_goes_to_the_judge(tmp_path: Path) -> None:
    assert LIBRARY in judged(played(*PARTED), tmp_path, PROMPTS).sentence


def test_without_a_gguf_there_is_no_judge_and_it_is_said_so(tmp_path: Path) -> None:
    of = played(*PARTED)
    found = of_pair(of, RunPaths(tmp_path / "runs" / of.run), None, DRAFTS, ignore)
    assert "no GGUF was served" in found.sentence and found.symptoms[Arm.BASELINE].replies == 1
