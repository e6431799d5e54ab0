"""How much memory an arm's llama-server takes, worked out from the model's header before anything starts. Pure.

Weights, KV caches and recurrent states are llama.cpp's own sizes (tests/live/test_memory.py compares them with its log);
the compute buffers and what a GPU's driver takes are rules of thumb. Windows of sliding attention are not counted: a
model that has them may need less.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from agent_ab.config import Server
from agent_ab.errors import UserError
from agent_ab.models.gguf_header import Header
from agent_ab.models.shape import Block, Shape, shape_of

MIB, GIB = 1 << 20, 1 << 30
CELLS = 256
"""llama.cpp rounds a context up to a multiple of this."""
N_MAX = 3
"""Drafted tokens when the profile names no number."""
PROCESS_BYTES = 64 * MIB
"""What a server takes besides its buffers; 31 MiB were seen with a vocabulary of 49,000."""
DRIVER_BYTES = 500 * MIB
"""What CUDA takes on the GPU for one process."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that takes memory, in bytes."""

    name: str
    gpu: int = 0
    ram: int = 0

    @property
    def total(self) -> int:
        """Return the bytes in both places."""
        return self.gpu + self.ram


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one arm's server takes."""

    parts: tuple[Part, ...]

    @property
    def gpu(self) -> int:
        """Return the bytes on the GPU."""
        return sum(part.gpu for part in self.parts)

    @property
    def ram(self) -> int:
        """Return the bytes in main memory."""
        return sum(part.ram for part in self.parts)

    def words(self) -> str:
        """Return the whole, and the parts that are worth naming."""
        named = ", ".join(f"{part.name} {size(part.total)}" for part in self.parts if part.total >= MIB)
        return f"{size(self.gpu + self.ram)} ({named})"


@dataclass(frozen=True, slots=True)
class Free:
    """What a server may take, in bytes; `gpu` is None where no GPU has memory of its own."""

    ram: int
    gpu: int | None = None


def estimate(header: Header, server: Server, draft: Header | None = None) -> Estimate:
    """Return what a llama-server with these settings takes; `draft` is its separate draft model. Raises UserError."""
    speculation = server.speculation
    kinds = [kind.strip() for kind in speculation.type.split(",")]
    drafted = (speculation.n_max or N_MAX) if any(kind.startswith("draft-") for kind in kinds) else 0
    shape = shape_of(header)
    place = _Place(server, len(shape.trunk))
    parts = [
        place.weights("model", shape.trunk, shape),
        place.cache("KV cache", shape.trunk, (server.kv_type_k, server.kv_type_v)),
        # One state to go back to for each drafted token.
        place.states("recurrent states", shape.trunk, 1 + drafted),
        place.compute("compute buffers", shape),
    ]
    types = (speculation.kv_type_k or "f16", speculation.kv_type_v or "f16")
    if "draft-mtp" in kinds and any(head.weights for head in shape.heads):
        parts.append(place.weights("MTP block", shape.heads))
        parts.append(place.cache("MTP KV cache", shape.heads, types))
        parts.append(place.compute("MTP compute buffers", shape))
    if draft is not None:
        other = shape_of(draft)
        parts.append(place.weights("draft model", other.trunk, other))
        parts.append(place.cache("draft KV cache", other.trunk, types))
        parts.append(place.compute("draft compute buffers", other))
    if server.gpu_layers != 0:
        parts.append(Part("driver", gpu=DRIVER_BYTES))
    parts.append(Part("process", ram=PROCESS_BYTES))
    return Estimate(tuple(part for part in parts if part.total))


def fits(needed: Estimate, free: Free) -> bool:
    """Return whether there is room; without a GPU that has memory of its own, all of it is main memory."""
    if free.gpu is None:
        return needed.gpu + needed.ram <= free.ram
    return needed.gpu <= free.gpu and needed.ram <= free.ram


def largest_context(header: Header, server: Server, draft: Header | None, free: Free) -> int:
    """Return the largest context, in tokens, up to the asked one, with which the server would fit; 0: with none."""
    low, high = 0, server.context // CELLS
    while low < high:
        middle = (low + high + 1) // 2
        smaller = server.model_copy(update={"context": middle * CELLS})
        low, high = (middle, high) if fits(estimate(header, smaller, draft), free) else (low, middle - 1)
    return low * CELLS


def size(count: int) -> str:
    """Return a number of bytes for people."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where llama.cpp puts the parts: the last `gpu_layers` of the trunk's blocks and the output on the GPU."""

    server: Server
    trunk: int

    @property
    def offloaded(self) -> int:
        """Return the blocks of the trunk that are on the GPU; the output is the layer after them."""
        layers = self.server.gpu_layers
        return self.trunk if layers == "all" else max(0, min(self.trunk, layers - 1))

    def _split(self, blocks: Sequence[Block]) -> Iterator[tuple[Block, bool]]:
        # MTP blocks and drafts go where the output is.
        first = self.trunk - self.offloaded if len(blocks) == self.trunk else 0
        for index, block in enumerate(blocks):
            yield block, self.server.gpu_layers != 0 and index >= first

    def _part(self, name: str, each: Sequence[tuple[int, bool]]) -> Part:
        on_gpu = sum(count for count, gpu in each if gpu)
        return Part(name, on_gpu, sum(count for count, _ in each) - on_gpu)

    def weights(self, name: str, blocks: Sequence[Block], whole: Shape | None = None) -> Part:
        """Return the weights of `blocks`, with what is outside of the blocks of a `whole` model."""
        offloads = self.server.gpu_layers != 0
        each = [(block.weights, gpu) for block, gpu in self._split(blocks)]
        if whole:
            # Tied embeddings are in memory twice only when the output is elsewhere.
            copied = whole.embeddings if whole.tied and offloads else 0
            each += [(whole.embeddings, False), (whole.output + copied, offloads)]
        return self._part(name, each)

    def cache(self, name: str, blocks: Sequence[Block], types: tuple[str, str]) -> Part:
        key, value = (_bytes_per_element(kind) for kind in types)
        cells = -(-self.server.context // CELLS) * CELLS
        each = [(round(cells * (b.key * key + b.value * value)), gpu) for b, gpu in self._split(blocks)]
        return self._part(name, each)

    def states(self, name: str, blocks: Sequence[Block], count: int) -> Part:
        return self._part(name, [(4 * count * block.state, gpu) for block, gpu in self._split(blocks)])

    def compute(self, name: str, shape: Shape) -> Part:
        """Return the attention mask (f16) and the activations of one micro-batch (f32)."""
        tokens, context = self.server.ubatch, self.server.context
        scores = 4 * context * tokens * shape.attention_heads if self.server.flash_attention == "off" else 0
        count = 2 * context * tokens + 4 * tokens * shape.width + scores
        return self._part(name, [(count, self.server.gpu_layers != 0)])


def _bytes_per_element(kind: str) -> float:
    try:
        block, count = GGML_QUANT_SIZES[GGMLQuantizationType[kind.upper()]]
    except KeyError:
        raise UserError(f"{kind!r} is no type of a KV cache; f16, q8_0 and q4_0 are") from None
    return float(count / block)
