"""What the judge refuses, and how it loads; tests/live/test_judge.py has it judge."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_ab.config import ArmSettings
from agent_ab.engine.engine import Engine
from agent_ab.judge.case import Case, Guess, Said
from agent_ab.judge.judge import LIBRARY, Bench, judge, libraries, loading_of, need_bytes, refusal
from agent_ab.model import Event
from agent_ab.models.models import inspect
from tests.gguf_files import tiny
from tests.table_model import settings as sampler


def ignore(_event: Event) -> None:
    """Observe nothing."""


@pytest.fixture(autouse=True)
def no_own_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "cache"))


def bench(tmp_path: Path, *, library: bool = True, **server: Any) -> Bench:
    binary = tmp_path / "llama-server"
    if library:
        (tmp_path / LIBRARY).write_bytes(b"")
        (tmp_path / "libllama.so").write_bytes(b"no library at all")
    settings = ArmSettings.model_validate({"server": server})
    model = inspect(tiny(tmp_path / "m.gguf"), ignore)
    return Bench(Engine(binary, "", "b1", frozenset(), (), "PATH"), settings, model, 3)


def case(**changes: Any) -> Case:
    made = {
        "id": "x",
        "prompt": "hello",
        "prompt_tokens": 5,
        "settings": sampler(),
        "baseline": Said((1, 2)),
        "candidate": Said((1, 3)),
    }
    return Case(**{**made, **changes})


def reason(of: Bench) -> str:
    return refusal(of, loading_of([case()], of))


def test_what_the_judge_cannot_do_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    assert reason(bench(tmp_path)) == ""
    assert "--lora" in reason(bench(tmp_path, extra_args=("--lora", "x.gguf")))
    assert reason(bench(tmp_path, extra_args=("--mlock",))) == ""
    assert "reasoning_budget" in reason(bench(tmp_path, reasoning_budget=0))
    assert reason(bench(tmp_path, reasoning_budget=-1)) == ""


def test_without_fitting_libraries_there_is_no_judge(tmp_path: Path) -> None:
    of = bench(tmp_path, library=False)
    assert libraries(of.engine) is None
    assert LIBRARY in reason(of)
    (score,) = judge([case()], of, tmp_path, ignore)
    assert score.case == "x" and LIBRARY in score.note


def test_a_model_that_does_not_fit_into_the_free_memory_is_not_loaded(tmp_path: Path) -> None:
    of = bench(tmp_path)
    os.truncate(of.model.path, 1 << 41)
    assert "the model needs about 2199.6 GB" in reason(of)


def test_all_parts_of_a_split_model_are_counted(tmp_path: Path) -> None:
    of = bench(tmp_path)
    loading = loading_of([case()], of)
    parts = [tmp_path / f"big-0000{n}-of-00002.gguf" for n in (1, 2)]
    for part in parts:
        part.write_bytes(of.model.path.read_bytes())
    one = need_bytes(of.model, loading)
    assert need_bytes(replace(of.model, path=parts[0]), loading) == one + of.model.path.stat().st_size


def test_the_model_is_loaded_as_the_server_loads_it_with_the_context_that_the_cases_need(tmp_path: Path) -> None:
    of = bench(tmp_path, context=65536, threads=7, gpu_layers="all", kv_type_k="q8_0", batch=1024, ubatch=64)
    loading = loading_of([case(), case(prompt_tokens=900, candidate=Said(tuple(range(200))))], of)
    assert (loading.batch, loading.ubatch, loading.threads, loading.gpu_layers, loading.many) == (1024, 64, 7, -1, 4)
    assert (loading.kv_type_k, loading.kv_type_v, loading.flash_attention) == ("q8_0", "f16", True)
    assert 1108 < loading.context < 1800
    text = Said(None, True, (Guess("x" * 3000, ((0, 3000),)),))
    assert loading_of([case(candidate=text)], of).context > 3000
    assert loading_of([case(prompt_tokens=10**6)], of).context <= 65536 + 256


def test_short_replies_have_the_threshold_measured_at_the_prompt_too(tmp_path: Path) -> None:
    of = bench(tmp_path)
    # A long reply may be read to its first difference only.
    assert {loading_of([case(candidate=Said(tuple(range(n))))], of).places for n in (1, 500)} == {128}


def test_libraries_that_cannot_be_loaded_cost_the_judgement_and_nothing_else(tmp_path: Path) -> None:
    scores = judge([case(), case(id="y")], bench(tmp_path), tmp_path, ignore)
    assert [score.case for score in scores] == ["x", "y"]
    assert all("the judge ended with status 1" in score.note for score in scores)


def test_no_case_is_no_work(tmp_path: Path) -> None:
    assert judge([], bench(tmp_path), tmp_path, ignore) == ()


def test_a_damaged_model_is_told_and_not_loaded(tmp_path: Path) -> None:
    of = bench(tmp_path)
    of.model.path.write_bytes(b"GGUF")
    assert "truncated" in reason(of)
