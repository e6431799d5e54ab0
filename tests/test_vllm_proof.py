"""What a started vLLM shows of itself, in its own words of version 0.32.0."""

from dataclasses import replace

import pytest

from agent_ab.model import Json
from agent_ab.server.counters import Counters
from agent_ab.vllm import proof
from agent_ab.vllm.proof import Asked, Seen

NONE = "speculative_config=None"
NGRAM = "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)"
CACHE = 'vllm:cache_config_info{block_size="128",enable_prefix_caching="False",engine="0"} 1.0\n'
COUNTED = (
    "vllm:spec_decode_num_drafts_total 5\nvllm:spec_decode_num_draft_tokens_total 15\n"
    "vllm:spec_decode_num_accepted_tokens_total 10\n"
)
ASKED = Asked("0.32.0+cpu", "/models/m", 4096, "none")


def log(speculation: str) -> str:
    config = f"model='/models/m', {speculation}, tokenizer='/models/m', max_seq_len=4096"
    return f"(EngineCore pid=9) INFO 11-30 20:35:29 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: {config}\n"


def reply(cached: int = 0) -> Json:
    return {"usage": {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": cached}}}


SEEN = Seen(
    models={"data": [{"id": "local", "root": "/models/m", "max_model_len": 4096}]},
    version="0.32.0",
    metrics=CACHE,
    before=Counters(),
    canaries=(reply(), reply()),
    log=log(NONE),
)


def test_the_server_that_was_asked_for_has_no_fault() -> None:
    assert proof.identity_fault(ASKED, SEEN) == "" and proof.caching_fault(SEEN) == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (replace(ASKED, version="0.31.1"), "another vLLM answers: 0.32.0, not 0.31.1"),
        (replace(ASKED, model="/models/other"), "its model is /models/m, not /models/other"),
        (replace(ASKED, context=8192), "the server's context is 4096, not server.context = 8192"),
    ],
)
def test_another_server_is_told_from_the_one_asked_for(asked: Asked, words: str) -> None:
    assert words in proof.identity_fault(asked, SEEN)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(SEEN, metrics=CACHE.replace("False", "True")), "says enable_prefix_caching True"),
        (replace(SEEN, metrics=""), "says enable_prefix_caching nowhere"),
        (replace(SEEN, canaries=(reply(), reply(16))), "an equal prompt came from the cache (16 tokens"),
        (replace(SEEN, metrics=CACHE + "vllm:prefix_cache_hits_total 3\n"), "3 hits"),
    ],
)
def test_a_prefix_cache_that_is_not_shown_to_be_off_is_a_fault(seen: Seen, words: str) -> None:
    assert words in proof.caching_fault(seen)


@pytest.mark.parametrize(
    ("declared", "seen", "missing"),
    [
        ("none", SEEN, ""),
        ("none", replace(SEEN, log=log(NGRAM), metrics=COUNTED), "missing no speculation"),
        ("none", replace(SEEN, log=""), "missing no speculation"),
        ("ngram", replace(SEEN, log=log(NGRAM), metrics=COUNTED), ""),
        ("ngram", replace(SEEN, log=log(NGRAM), metrics=COUNTED.replace("15", "0")), ""),
        ("ngram", SEEN, "missing ngram in the log and its counters"),
        ("mtp", replace(SEEN, log=log(NGRAM.replace("ngram", "mtp")), metrics=COUNTED), ""),
        (
            "mtp",
            replace(SEEN, log=log(NGRAM.replace("ngram", "mtp")), metrics=COUNTED.replace("15", "0")),
            "drafts by mtp",
        ),
        ("mtp", replace(SEEN, log=log(NGRAM), metrics=COUNTED), "missing mtp in the log"),
    ],
)
def test_the_declared_speculation_is_shown_or_its_lack_is_named(declared: str, seen: Seen, missing: str) -> None:
    found = proof.judge(declared, seen)
    assert found.proven is not bool(missing) and missing in found.sentence and found.sentence.startswith(declared)


def test_requests_are_counted_by_the_access_log_whatever_came_of_them() -> None:
    text = (
        'INFO:     127.0.0.1:49784 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        'INFO:     127.0.0.1:49784 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
        'INFO:     127.0.0.1:44298 - "GET /metrics HTTP/1.1" 200 OK\n'
        'INFO:     127.0.0.1:51344 - "POST /tokenize HTTP/1.1" 200 OK\n'
    )
    assert proof.requests(text) == 2


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (-4, "", "status -4: SIGILL: it was built for another CPU"),
        (2, "usage: vllm serve\nvllm: error: unrecognized arguments: --frob 3\n", "this vLLM does not know --frob 3"),
        (1, "(Worker) ERROR [x.py:1] RuntimeError: CPU Generator does not use offset\nEngineDeadError: EngineCore died\n",
         "status 1: RuntimeError: CPU Generator does not use offset"),
        (1, "x WARNING OSError: [Errno 24] Too many open files\nValueError: bad\n", "status 1: ValueError: bad"),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried\n", "use a smaller server.context"),
    ],
)  # fmt: skip
def test_the_end_is_explained_by_its_cause_and_not_by_what_followed(code: int, text: str, words: str) -> None:
    assert words in proof.explain_exit(code, text)
