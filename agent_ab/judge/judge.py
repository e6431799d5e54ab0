"""The independent judge: llama-cpp-python on the same GGUF, in a child process, one token at a time, no speculation.

Under speculation the server's own log-probabilities are wrong (llama.cpp #27972), so they are never used. The child takes
the shared libraries of the server itself, loads the model with the same batch sizes, cache types and threads, and so
computes the server's own numbers.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

import agent_ab
from agent_ab import process
from agent_ab.config import ArmSettings
from agent_ab.engine import build, build_steps, engine
from agent_ab.errors import UserError
from agent_ab.judge.case import CASES, LOADING, SCORE, Case, Loading, Score
from agent_ab.model import Event, Observer
from agent_ab.models.gguf_header import Header, read_header
from agent_ab.models.models import Model

LIBRARY = "libllama.so.0.5.0"
"""The library that llama-cpp-python 0.3.36 was written for: another version has other structures."""
LIMIT_S = 4 * 3600.0
SPARE_BYTES = 512 << 20
"""Beside model and cache: compute buffers, rows of logits, Python."""
PLACES = 128
"""Places at which the near-tie threshold is measured at least."""
SPARE_TOKENS = 8
CONTEXT_STEP = 256
_KV_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 0.75, "q5_0": 0.6875, "q4_1": 0.625}
_KV_LEAST = 0.5625
_CHANGES_MODEL = re.compile(r"--(lora|control-vector|override-kv|rope|yarn|override-tensor)|-ot$")
"""Options of `server.extra_args` that make another model of the file; the judge does not take them over."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the judge judges with: the baseline's settings, and the largest draft of either arm."""

    engine: engine.Engine
    settings: ArmSettings
    model: Model
    n_max: int


def judge(cases: Sequence[Case], bench: Bench, scratch: Path, observer: Observer) -> tuple[Score, ...]:
    """Return one score a case, in order. What cannot be judged has a note; nothing is raised for it."""
    if not cases:
        return ()
    loading = loading_of(cases, bench)
    reason = refusal(bench, loading)
    if reason:
        return tuple(Score(case.id, reason) for case in cases)
    done: list[Score] = []
    begin = time.monotonic()

    def tick(_elapsed_s: float) -> None:
        observer(Event(None, None, f"judging {len(cases)} replies", elapsed_s=time.monotonic() - begin))

    while len(done) < len(cases):
        left = cases[len(done) :]
        done += _run_child(left, bench, loading, scratch, tick)
    return tuple(done)


def refusal(bench: Bench, loading: Loading) -> str:
    """Return why the judge cannot work here, or an empty string; looked at before anything is loaded."""
    if find_spec("llama_cpp") is None:
        return "llama-cpp-python is not installed"
    if libraries(bench.engine) is None:
        return f"no {LIBRARY} beside {bench.engine.binary} or in our own build, which llama-cpp-python needs"
    changed = next((word for word in bench.settings.server.extra_args if _CHANGES_MODEL.match(word)), None)
    if changed:
        return f"server.extra_args has {changed}, which the judge does not take over"
    budget = bench.settings.server.reasoning_budget
    if budget is not None and budget >= 0:
        return "server.reasoning_budget forces tokens, which the judge does not model"
    try:
        needed, free = need_bytes(bench.model, loading), _free_bytes(loading)
    except UserError as error:
        return str(error)
    if free is not None and needed > free:
        return f"the model needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
    return ""


def libraries(found: engine.Engine) -> Path | None:
    """Return the folder of the shared libraries: the server's own, else our own build's; None when neither fits."""
    if (found.binary.parent / LIBRARY).is_file():
        return found.binary.parent
    own = engine.cache_dir() / "engines" / build_steps.plan().name
    return own if (own / LIBRARY).is_file() and build.present(engine.cache_dir()) else None


def loading_of(cases: Sequence[Case], bench: Bench) -> Loading:
    """Return how the model is loaded for `cases`: as the server does, with the context that they need."""
    server = bench.settings.server
    longest = max(_length(case) for case in cases) + 2 * (bench.n_max + 1)
    # A text's bytes are an upper bound of its tokens, and no reply is longer than the server's context.
    context = min(-(-longest // CONTEXT_STEP) * CONTEXT_STEP, -(-server.context // CONTEXT_STEP) * CONTEXT_STEP)
    return Loading(
        model=str(bench.model.path.absolute()),
        context=context + CONTEXT_STEP,
        batch=server.batch,
        ubatch=server.ubatch,
        gpu_layers=-1 if server.gpu_layers == "all" else server.gpu_layers,
        threads=server.threads,
        kv_type_k=server.kv_type_k,
        kv_type_v=server.kv_type_v,
        flash_attention=server.flash_attention == "on",
        many=bench.n_max + 1,
        places=PLACES,
    )


def _length(case: Case) -> int:
    """Return an upper bound of a case's tokens: a token is at least one byte of text."""
    prompt = case.prompt_tokens or len(case.prompt.encode("utf-8", "replace"))
    replies = [len(said.tokens or ()) for said in (case.baseline, case.candidate)]
    texts = [
        len(guess.text.encode("utf-8", "surrogatepass")) for guess in (*case.baseline.guesses, *case.candidate.guesses)
    ]
    return prompt + max([*replies, *texts]) + SPARE_TOKENS


def need_bytes(model: Model, loading: Loading) -> int:
    """Return about how many bytes the judge needs: the file's parts, the KV cache, and some to spare."""
    stem = re.sub(r"-\d{5}-of-(\d{5})\.gguf$", r"-*-of-\1.gguf", model.path.name)
    size = sum(part.stat().st_size for part in model.path.parent.glob(stem))
    return size + _kv_bytes(read_header(model.path), loading) + SPARE_BYTES


def _kv_bytes(header: Header, loading: Loading) -> int:
    name = header.text("general.architecture")
    layers = header.number(f"{name}.block_count")
    heads = header.number(f"{name}.attention.head_count_kv") or header.number(f"{name}.attention.head_count")
    width = header.number(f"{name}.attention.key_length")
    if not width and (count := header.number(f"{name}.attention.head_count")):
        width = header.number(f"{name}.embedding_length") // count
    sizes = (_KV_BYTES.get(kind, _KV_LEAST) for kind in (loading.kv_type_k, loading.kv_type_v))
    return int(loading.context * layers * heads * width * sum(sizes))


def _free_bytes(loading: Loading) -> int | None:
    """Return the free memory of where the model goes; None when a GPU does not say."""
    if loading.gpu_layers == 0:
        return int(psutil.virtual_memory().available)
    argv = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = process.run(argv, env={"PATH": os.environ.get("PATH", os.defpath)}, timeout_s=30)
        return sum(int(line) << 20 for line in done.stdout.decode().split())
    except (OSError, ValueError):
        return None


def _run_child(
    cases: Sequence[Case], bench: Bench, loading: Loading, scratch: Path, tick: Callable[[float], None]
) -> list[Score]:
    """Judge `cases` until the child ends; a case that ended it is told as not judged."""
    job, scores = scratch / "job.json", scratch / "scores.jsonl"
    scores.unlink(missing_ok=True)
    data = {"loading": LOADING.dump_python(loading, mode="json"), "cases": CASES.dump_python(tuple(cases), mode="json")}
    job.write_text(json.dumps(data), encoding="utf-8")
    argv = [sys.executable, "-m", "agent_ab.judge.child", str(job), str(scores)]
    ended = process.run(argv, env=_environment(bench.engine), timeout_s=LIMIT_S, tick=tick)
    lines = scores.read_bytes().splitlines() if scores.exists() else []
    found = [SCORE.validate_json(line) for line in lines]
    if len(found) == len(cases):
        return found
    last = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    why = f"the judge ended with status {ended.exit_code}" + (f": {last[0]}" if last else "")
    # A signal may be one case's doing (llama.cpp aborts on some grammars); anything else would only come again.
    crashed = ended.exit_code < 0 and not ended.timed_out
    lost = cases[len(found) : len(found) + 1] if crashed else cases[len(found) :]
    return found + [Score(case.id, why) for case in lost]


def _environment(found: engine.Engine) -> dict[str, str]:
    package = Path(agent_ab.__file__).parent.parent
    kept = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    library_path = {"LD_LIBRARY_PATH": found.library_path} if found.library_path else {}
    return {
        "PATH": engine.SYSTEM_PATH,
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LLAMA_CPP_LIB_PATH": str(libraries(found)),
        "OMP_WAIT_POLICY": "passive",
        **library_path,
        **kept,
    }
