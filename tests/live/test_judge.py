"""The judge on real models: llama-cpp-python on the server's own libraries, in a process of its own."""

from pathlib import Path

from agent_ab.config import ArmSettings
from agent_ab.engine import engine as engines
from agent_ab.judge import judge
from agent_ab.judge.case import Case, Said
from agent_ab.judge.classes import Class, Judged, classify, threshold
from agent_ab.lossless import replay
from agent_ab.model import Arm
from agent_ab.models import models
from agent_ab.requests import load
from agent_ab.workbench import ArmParts
from tests.conftest import ignore
from tests.fakes.altering_proxy import altering
from tests.gguf_files import tiny

SETTINGS = ArmSettings.model_validate({"server": {"context": 2048}})
SHORT = {"max_tokens": 24, "seed": 4242, "cache_prompt": False, "top_k": 20, "top_p": 0.95, "min_p": 0.0}


def case(left: replay.Replayed, right: replay.Replayed) -> Case:
    assert left.raw and right.raw
    return Case(left.id, left.raw.prompt, left.raw.prompt_tokens, left.raw.settings, left.raw.said, right.raw.said)


def judged(cases: list[Case], bench: judge.Bench, scratch: Path) -> list[Judged]:
    scores = judge.judge(cases, bench, scratch, ignore)
    limit = threshold(scores, bench.n_max + 1)
    return [classify(score, limit) for score in scores]


def test_one_improbable_token_is_found_at_its_place_and_a_schema_is_no_fault(
    engine: engines.Engine, smollm2: models.Model, tmp_path: Path
) -> None:
    bodies = {request.id: {**request.body, **SHORT} for request in load()}
    prose, schema = bodies["prose-3"], bodies["json-3"]
    parts = ArmParts(SETTINGS, engine, smollm2)
    with replay.serving(parts, Arm.BASELINE, tmp_path / "server.log", ignore) as (client, _):
        asked = [("warm", {**prose, "temperature": 1.0}), ("greedy", {**prose, "temperature": 0.0})]
        clean = replay.replay(client, asked)
        odd = client.post("/tokenize", json={"content": " zebra"}, timeout=60).json()["tokens"][0]
        with altering(client, 9, odd) as proxy:
            altered = replay.replay(proxy, asked)
        constrained = replay.replay(
            client, [("schema", {**schema, "temperature": 1.0, "seed": seed}) for seed in (1, 2)]
        )
    bench = judge.Bench(engine, SETTINGS, smollm2, 1)
    cases = [case(*both) for both in zip(clean, altered, strict=True)] + [case(*constrained)]
    warm, greedy, free = judged(cases, bench, tmp_path)
    for found in (warm, greedy):
        assert found.kind is Class.OUTSIDE and found.arm == "candidate", found
        assert found.score.index == 9 and found.score.candidate and found.score.candidate.piece == " zebra"
        # Without speculation the judge has the server's own numbers: what the baseline said lies in the support.
        assert found.score.baseline and found.score.baseline.margin == 0.0
        assert [outlier for outlier in found.score.outliers if outlier.arm == "both"] == []
    assert greedy.score.baseline and greedy.score.baseline.rank == 0
    assert free.score.grammar == "applied" and free.kind in (Class.NEAR_TIE, Class.SAMPLING), free
    assert not free.fault


def test_a_file_that_is_no_model_costs_the_judgement_and_says_so(engine: engines.Engine, tmp_path: Path) -> None:
    bench = judge.Bench(engine, SETTINGS, models.inspect(tiny(tmp_path / "tiny.gguf"), ignore), 1)
    settings = {"temperature": 0.0, "top_k": 20, "top_p": 0.95, "min_p": 0.0}
    (score,) = judge.judge([Case("x", "a", None, settings, Said((1, 2)), Said((1, 3)))], bench, tmp_path, ignore)
    assert score.note.startswith("the judge ended with status 1: llama-cpp-python cannot load"), score.note
