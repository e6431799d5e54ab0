"""What of a model takes memory, read off its header: the trunk's blocks, the MTP blocks, embeddings and output. Pure.

Which block attends and which one is recurrent is told by the tensors that it has, so that no architecture is named here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent_ab.models.gguf_header import Entry, Header

_RECURRENT = ("ssm_", "shortconv.")


@dataclass(frozen=True, slots=True)
class Block:
    """What one block of a model needs."""

    weights: int
    """Bytes."""
    key: int = 0
    """Elements of one token in the KV cache; 0: the block does not attend."""
    value: int = 0
    state: int = 0
    """Elements (f32) of one recurrent state; 0: the block has none."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how much memory a model takes."""

    embeddings: int
    """Bytes of the token embeddings, which stay in main memory."""
    output: int
    """Bytes of everything else outside of the blocks; with tied embeddings those are the output, too."""
    tied: bool
    trunk: tuple[Block, ...]
    heads: tuple[Block, ...]
    """The MTP blocks; loaded for `draft-mtp` only."""
    width: int
    """Activations of one token that are alive at once, in elements."""
    attention_heads: int

    @property
    def whole(self) -> bool:
        """Return whether the model can answer by itself: a draft's file may lack the embeddings."""
        return self.embeddings > 0


def shape_of(header: Header) -> Shape:
    """Return the shape of the model that `header` describes."""
    keys = _Keys(header, header.text("general.architecture"))
    blocks = tuple(_block(keys, _tensors_of(header, index)) for index in range(keys.number("block_count")))
    trunk = len(blocks) - keys.number("nextn_predict_layers")
    outside = {name: entry.size for name, entry in header.entries.items() if not name.startswith("blk.")}
    embeddings = outside.pop("token_embd.weight", 0)
    return Shape(
        embeddings=embeddings,
        output=sum(outside.values()),
        tied="output.weight" not in outside,
        trunk=blocks[:trunk],
        heads=blocks[trunk:],
        width=4 * keys.number("embedding_length") + 3 * _feed_forward(keys, _tensors_of(header, 0)),
        attention_heads=keys.number("attention.head_count", 1),
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """The header's numbers, the architecture's name left out."""

    header: Header
    architecture: str

    def number(self, key: str, default: int = 0) -> int:
        return self.header.number(f"{self.architecture}.{key}") or default


def _tensors_of(header: Header, index: int) -> dict[str, Entry]:
    prefix = f"blk.{index}."
    return {name.removeprefix(prefix): e for name, e in header.entries.items() if name.startswith(prefix)}


def _block(keys: _Keys, own: Mapping[str, Entry]) -> Block:
    recurrent = any(name.startswith(_RECURRENT) for name in own)
    # A recurrent block's `attn_qkv` is its own; some hybrids attend in the same block.
    attends = "attn_k.weight" in own or not recurrent
    key, value = _key_and_value(keys, own) if attends else (0, 0)
    return Block(sum(entry.size for entry in own.values()), key, value, _state(keys, own) if recurrent else 0)


def _key_and_value(keys: _Keys, own: Mapping[str, Entry]) -> tuple[int, int]:
    """Return the elements of one token's key and value; a value may be a view of its key."""
    if latent := own.get("attn_kv_a_mqa.weight"):
        return latent.shape[1], 0
    if "attn_k.weight" in own:
        key = own["attn_k.weight"].shape[1]
        return key, own["attn_v.weight"].shape[1] if "attn_v.weight" in own else key
    if "attn_qkv.weight" not in own:
        return 0, 0
    heads = keys.number("attention.head_count", 1)
    per_head = keys.number("embedding_length") // heads
    cached = keys.number("attention.head_count_kv", heads)
    key, value = (keys.number(f"attention.{name}_length", per_head) for name in ("key", "value"))
    return cached * key, cached * value


def _state(keys: _Keys, own: Mapping[str, Entry]) -> int:
    """Return the elements of what is kept of the convolution's last inputs, and of the state itself."""
    kernels = [e.shape for name, e in own.items() if name.startswith(("ssm_conv1d", "shortconv.conv"))]
    kept = sum((shape[0] - 1) * shape[1] for shape in kernels if len(shape) > 1)
    state = keys.number("ssm.state_size") * keys.number("ssm.inner_size")
    return kept + (state if any(name.startswith("ssm_") for name in own) else 0)


def _feed_forward(keys: _Keys, own: Mapping[str, Entry]) -> int:
    """Return the width of the feed-forward layer, or of all experts that work on one token."""
    for name, times in (("ffn_up.weight", 1), ("ffn_up_exps.weight", keys.number("expert_used_count", 1))):
        if name in own:
            return own[name].shape[1] * times
    return keys.number("feed_forward_length")
