"""What of a model takes memory is told by its tensors, whatever the architecture is called."""

from agent_ab.models.gguf_header import Entry, Header
from agent_ab.models.shape import Block, shape_of


def header(architecture: str, keys: dict[str, int], tensors: dict[str, tuple[int, ...]]) -> Header:
    """Return a header whose tensors are of two-byte numbers."""
    values = {f"{architecture}.{key}": number for key, number in keys.items()}
    entries = {}
    for name, shape in tensors.items():
        size = 2
        for length in shape:
            size *= length
        entries[name] = Entry(shape, 0, size)
    return Header({"general.architecture": architecture, **values}, frozenset(entries), entries)


def attention(index: int, *, kv: int = 32, width: int = 64) -> dict[str, tuple[int, ...]]:
    return {
        f"blk.{index}.attn_norm.weight": (width,),
        f"blk.{index}.attn_k.weight": (width, kv),
        f"blk.{index}.attn_v.weight": (width, kv),
        f"blk.{index}.ffn_up.weight": (width, 128),
    }


def recurrent(index: int) -> dict[str, tuple[int, ...]]:
    return {f"blk.{index}.attn_qkv.weight": (64, 64), f"blk.{index}.ssm_conv1d.weight": (4, 48)}


KEYS = {"block_count": 2, "embedding_length": 64, "attention.head_count": 2}


def test_an_attention_block_caches_the_width_of_its_key_and_value() -> None:
    shape = shape_of(header("llama", KEYS, attention(0) | attention(1, kv=16) | {"token_embd.weight": (64, 100)}))
    assert [(block.key, block.value, block.state) for block in shape.trunk] == [(32, 32, 0), (16, 16, 0)]
    assert shape.embeddings == 12_800 and shape.tied and shape.heads == ()


def test_a_recurrent_block_has_a_state_and_no_cache() -> None:
    keys = KEYS | {"ssm.state_size": 16, "ssm.inner_size": 32}
    shape = shape_of(header("qwen35", keys, recurrent(0) | attention(1)))
    assert shape.trunk[0] == Block(weights=2 * (64 * 64 + 4 * 48), state=3 * 48 + 16 * 32)
    assert shape.trunk[1].key == 32 and shape.trunk[1].state == 0


def test_mtp_blocks_are_told_from_the_trunk() -> None:
    shape = shape_of(header("qwen35", KEYS | {"nextn_predict_layers": 1}, attention(0) | attention(1)))
    assert len(shape.trunk) == len(shape.heads) == 1


def test_a_latent_cache_has_no_value_of_its_own() -> None:
    keys = KEYS | {"block_count": 1}
    shape = shape_of(header("deepseek2", keys, {"blk.0.attn_kv_a_mqa.weight": (64, 40)}))
    assert (shape.trunk[0].key, shape.trunk[0].value) == (40, 0)


def test_a_fused_projection_is_measured_by_its_heads() -> None:
    keys = KEYS | {"block_count": 1, "attention.head_count_kv": 1}
    shape = shape_of(header("phi3", keys, {"blk.0.attn_qkv.weight": (64, 128)}))
    assert (shape.trunk[0].key, shape.trunk[0].value) == (32, 32)


def test_the_experts_that_work_on_one_token_make_the_width() -> None:
    keys = KEYS | {"block_count": 1, "expert_used_count": 4}
    shape = shape_of(header("qwen35moe", keys, {"blk.0.ffn_up_exps.weight": (64, 32, 8)}))
    assert shape.width == 4 * 64 + 3 * 32 * 4


def test_a_draft_without_embeddings_is_no_whole_model() -> None:
    assert not shape_of(header("eagle3", {"block_count": 1}, attention(0))).whole
    assert shape_of(header("llama", KEYS, attention(0) | {"token_embd.weight": (64, 100)})).whole
