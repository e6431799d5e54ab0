"""The memory estimate, against figures of a published model and against what changes it."""

import pytest

from agent_ab.config import Server, Speculation
from agent_ab.doctor.memory import GIB, MIB, Estimate, Free, Part, estimate, fits, largest_context, size
from agent_ab.errors import UserError
from agent_ab.models.gguf_header import Header
from tests.test_model_shape import KEYS, attention, header

MTP = Speculation(type="draft-mtp", n_max=3)
TINY = header("llama", KEYS, attention(0) | attention(1) | {"token_embd.weight": (64, 100)})


def qwen() -> Header:
    """Return a header with the sizes of a 27B hybrid: 48 recurrent and 16 attention blocks, and an MTP block."""
    keys = {
        "block_count": 65,
        "nextn_predict_layers": 1,
        "embedding_length": 5120,
        "attention.head_count": 24,
        "ssm.state_size": 128,
        "ssm.inner_size": 6144,
    }
    tensors: dict[str, tuple[int, ...]] = {}
    for index in range(65):
        if index < 64 and (index + 1) % 4:
            tensors[f"blk.{index}.ssm_conv1d.weight"] = (4, 10240)
        else:
            tensors |= {f"blk.{index}.attn_k.weight": (5120, 1024), f"blk.{index}.attn_v.weight": (5120, 1024)}
    return header("qwen35", keys, tensors)


def parts(found: Estimate) -> dict[str, Part]:
    return {part.name: part for part in found.parts}


def test_recurrent_states_and_the_mtp_cache_come_to_the_published_figures() -> None:
    server = Server(context=131072, gpu_layers="all", kv_type_k="q8_0", kv_type_v="q8_0", ubatch=256)
    baseline = parts(estimate(qwen(), server))
    candidate = parts(estimate(qwen(), server.model_copy(update={"speculation": MTP})))
    # 149.62 MiB for one state (ggml-org/llama.cpp#22673); one more for each drafted token.
    assert baseline["recurrent states"].gpu / MIB == pytest.approx(149.62, abs=0.01)
    assert candidate["recurrent states"].gpu == 4 * baseline["recurrent states"].gpu
    assert candidate["MTP KV cache"].gpu == 512 * MIB
    assert candidate["KV cache"] == baseline["KV cache"] and "MTP KV cache" not in baseline
    quantised = MTP.model_copy(update={"kv_type_k": "q8_0", "kv_type_v": "q8_0"})
    smaller = parts(estimate(qwen(), server.model_copy(update={"speculation": quantised})))
    assert smaller["MTP KV cache"].gpu == 272 * MIB


def test_the_cache_grows_with_the_context_in_steps_of_256_and_shrinks_with_its_type() -> None:
    full = parts(estimate(TINY, Server(context=1024)))["KV cache"].ram
    assert full == 1024 * 2 * (32 + 32) * 2
    assert parts(estimate(TINY, Server(context=1025)))["KV cache"].ram == full * 1280 // 1024
    assert parts(estimate(TINY, Server(context=1024, kv_type_k="q8_0")))["KV cache"].ram == full * 49 // 64


def test_n_gram_lookup_needs_nothing_more() -> None:
    looking = Server(context=1024, speculation=Speculation(type="ngram-mod"))
    assert estimate(TINY, looking) == estimate(TINY, Server(context=1024))


def test_a_draft_model_is_counted_with_a_cache_of_its_own_type() -> None:
    speculation = Speculation(type="draft-simple", kv_type_k="q8_0", kv_type_v="q8_0")
    found = parts(estimate(TINY, Server(context=1024, speculation=speculation), TINY))
    assert found["draft model"] and found["draft KV cache"].ram * 32 == found["KV cache"].ram * 17


def test_embeddings_stay_in_main_memory_and_blocks_go_to_the_gpu_from_the_end() -> None:
    everything = parts(estimate(TINY, Server(context=1024, gpu_layers="all")))
    assert everything["model"].ram == 12_800 and everything["KV cache"].ram == 0 and everything["driver"].gpu
    half = parts(estimate(TINY, Server(context=1024, gpu_layers=2)))
    assert half["KV cache"].ram == half["KV cache"].gpu > 0
    none = parts(estimate(TINY, Server(context=1024)))
    assert none["model"].gpu == 0 and "driver" not in none


def test_without_flash_attention_the_scores_are_counted() -> None:
    dense = parts(estimate(TINY, Server(context=1024, flash_attention="off")))["compute buffers"].ram
    assert dense - parts(estimate(TINY, Server(context=1024)))["compute buffers"].ram == 4 * 1024 * 256 * 2


def test_what_fits_is_judged_where_the_memory_is() -> None:
    needed = Estimate((Part("model", gpu=3 * GIB, ram=GIB),))
    assert fits(needed, Free(ram=GIB, gpu=3 * GIB)) and fits(needed, Free(ram=4 * GIB))
    assert not fits(needed, Free(ram=16 * GIB, gpu=2 * GIB)) and not fits(needed, Free(ram=3 * GIB))


def test_the_largest_context_that_fits_is_found() -> None:
    server = Server(context=65536)
    room = Free(estimate(TINY, server.model_copy(update={"context": 8192})).ram)
    assert largest_context(TINY, server, None, room) == 8192
    assert largest_context(TINY, server, None, Free(0)) == 0
    assert largest_context(TINY, server, None, Free(GIB)) == 65536


def test_a_stripped_mtp_block_takes_nothing() -> None:
    lacking = Header(
        dict(TINY.values) | {"llama.nextn_predict_layers": 1, "llama.block_count": 3}, frozenset(), dict(TINY.entries)
    )
    assert not [part for part in estimate(lacking, Server(context=1024, speculation=MTP)).parts if "MTP" in part.name]


def test_an_unknown_cache_type_is_named() -> None:
    with pytest.raises(UserError, match="'q3' is no type of a KV cache"):
        estimate(TINY, Server(kv_type_k="q3"))


def test_sizes_and_parts_are_told_to_people() -> None:
    assert (size(512 * MIB), size(3 * GIB // 2)) == ("512 MiB", "1.5 GiB")
    told = Estimate((Part("model", gpu=2 * GIB), Part("next to nothing", ram=10))).words()
    assert told == "2.0 GiB (model 2.0 GiB)"
