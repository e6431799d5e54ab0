"""Draft models for a scripted target, with a chosen acceptance: the real EAGLE3, DFlash and plain-draft paths on any CPU.

A scripted target (scripted.py) says tokens whose embeddings lie on one orbit: code(t+1) = N code(t), N a rotation. Its
blocks change nothing, so the hidden state that llama-server hands to a draft is code(t).

    draft-simple   a llama whose blocks change nothing: the target's own table, token -> next token
    draft-eagle3   hidden state g = code(t) -> its attention looks at itself and adds (N - I) g -> the table
    draft-dflash   mask i of a block looks h = i + 1 places back, where head h finds code(t - 1) and turns it by N^(h-1)

EAGLE3 and DFlash know the tokens by the target's hidden states only. What a draft gets wrong is taken out of its table,
so that it says something else there; which rows those are is chosen by playing the script's own replies (`play`), until
the share of accepted tokens is the wanted one.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from agent_ab.errors import UserError
from agent_ab.files import appearing
from agent_ab.models import scripted
from agent_ab.models.vocabulary import END, END_OF_TEXT, control

Array = npt.NDArray[np.float32]

KINDS: Mapping[str, str] = {"draft-simple": "llama", "draft-eagle3": "eagle3", "draft-dflash": "dflash"}
"""The types that a draft can be generated for, and its architecture."""
E, FEED = scripted.E, 32
HEAD, ROTATED = E, 32
ROPE_BASE = 10_000.0
CONST = 0
"""The dimension of a draft's own embeddings that asks; the target's orbit leaves it empty."""
SHARP = 1000.0
"""Attention's score of the one place that is meant; any other comes to less than SHARP - 20, where the sink takes over."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One draft."""

    kind: str
    n_max: int
    """Tokens that are drafted at a time."""
    acceptance: float
    """Share of the drafted tokens that the script's replies accept."""

    @property
    def block(self) -> int:
        """Return DFlash's block: the last token and what is drafted after it."""
        return max(8, self.n_max + 1)

    def key(self) -> str:
        """Return a short name that is equal for equal drafts of this generator."""
        programs = [Path(file).read_text(encoding="utf-8") for file in (__file__, scripted.__file__)]
        parts = [programs, self.kind, self.n_max, self.acceptance]
        return f"{self.kind}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Played:
    """What a script's replies make of a draft."""

    drafted: int
    accepted: int

    @property
    def acceptance(self) -> float:
        """Return the accepted share."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """What a draft must know of a scripted model."""

    reader: gguf.GGUFReader
    embeddings: Array
    following: Mapping[int, int]
    """Token -> next token, of all that is said but a reply's last."""
    replies: tuple[tuple[int, ...], ...]
    """Each from its control token to its last."""
    ends: int
    """The token that ends a reply."""
    mtp_wrong: frozenset[int]
    """The tokens whose successors the model's own MTP block does not know."""

    @classmethod
    def read(cls, path: Path) -> "Target":
        """Read a scripted model. Raises UserError when it is none."""
        reader = gguf.GGUFReader(path)
        name = reader.fields.get("general.name")
        if name is None or name.contents() != scripted.NAME:
            raise UserError(f"{path} is no scripted model: a draft can be generated for those only")
        wanted = ("token_embd.weight", "output.weight", scripted.MTP_EMBEDDINGS)
        tensors = {t.name: t for t in reader.tensors}
        embeddings, output, guesses = (
            gguf.quants.dequantize(tensors[n].data, tensors[n].tensor_type).astype(np.float32) for n in wanted
        )
        said = np.flatnonzero(embeddings[:, CONST] < 0.5)
        nexts = (embeddings[said] @ output.T).argmax(axis=1)
        following = {int(a): int(b) for a, b in zip(said, nexts, strict=True)}
        tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        ids = {token: number for number, token in enumerate(tokens)}
        replies: list[tuple[int, ...]] = []
        while (token := ids.get(control(len(replies)))) is not None:
            reply = [token]
            while reply[-1] in following:
                reply.append(following[reply[-1]])
            replies.append(tuple(reply))
        wrong = frozenset(np.flatnonzero((guesses[:, CONST] > 0.5) & (embeddings[:, CONST] < 0.5)).tolist())
        return cls(reader, embeddings, following, tuple(replies), ids[END], wrong)


def play(reply: Sequence[bool], n_max: int) -> Played:
    """Return what one reply drafts and accepts.

    `reply[i]` says whether the draft knows what follows token i + 1 (the first comes from the prompt, undrafted; what
    follows the last is the end). llama-server drafts `n_max` tokens at each step, past the end too.
    """
    at = drafted = accepted = 0
    while at < len(reply):
        right = 0
        while right < n_max and at + right < len(reply) and reply[at + right]:
            right += 1
        # What is accepted is counted as what came out less the one that is always the target's own: an end in the
        # middle of a draft is that one.
        inside = at + right == len(reply) and right < n_max
        drafted, accepted = drafted + n_max, accepted + right - inside * reply[-1]
        at += right + 1
    return Played(drafted, accepted)


def played(target: Target, kind: str, n_max: int, wrong: frozenset[int]) -> tuple[Played, ...]:
    """Return what each reply of a script makes of a draft that knows all but what follows the `wrong` tokens."""
    # The orbit ends with the last token but one: EAGLE3 and DFlash do not see the end coming.
    sees_end = kind in ("draft-simple", "draft-mtp")
    replies = ([*(token not in wrong for token in reply[1:-1]), sees_end] for reply in target.replies)
    return tuple(play(reply, n_max) for reply in replies)


def total(parts: Sequence[Played]) -> Played:
    """Return the sum."""
    return Played(sum(part.drafted for part in parts), sum(part.accepted for part in parts))


def expected(target_path: Path, wanted: Wanted) -> tuple[Played, ...]:
    """Return what each reply of a scripted model must draft and accept with that draft, or with its own MTP block.

    llama-server counts `draft-simple` a little differently on these models, whose state it cannot roll back for it.
    Raises UserError when the model is no scripted one.
    """
    target = Target.read(target_path)
    wrong = target.mtp_wrong if wanted.kind == "draft-mtp" else choose_wrong(target, wanted)
    return played(target, wanted.kind, wanted.n_max, wrong)


def choose_wrong(target: Target, wanted: Wanted) -> frozenset[int]:
    """Return the tokens whose successors the draft must not know, so that its acceptance is nearest to the wanted one."""
    spoken = sorted(token for reply in target.replies for token in reply[1:-1])
    order = [int(token) for token in np.random.default_rng(5).permutation(spoken)]

    def acceptance(count: int) -> float:
        return total(played(target, wanted.kind, wanted.n_max, frozenset(order[:count]))).acceptance

    # Acceptance falls as more is taken away, nearly evenly: look closely around where it crosses.
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        if acceptance(middle) > wanted.acceptance:
            low = middle
        else:
            high = middle
    near = range(max(0, low - 20), min(len(order), high + 20) + 1)
    return frozenset(order[: min(near, key=lambda count: abs(acceptance(count) - wanted.acceptance))])


def write(target_path: Path, wanted: Wanted, out: Path) -> None:
    """Write a draft for the scripted model at `target_path`, whole or not at all. Raises UserError, OSError."""
    target = Target.read(target_path)
    wrong = choose_wrong(target, wanted)
    table = np.zeros_like(target.embeddings)
    for token, follower in target.following.items():
        if token not in wrong:
            table[follower] = target.embeddings[token]
    tensors = {"draft-simple": _simple, "draft-eagle3": _eagle3, "draft-dflash": _dflash}[wanted.kind]
    with appearing(out) as partial:
        writer = gguf.GGUFWriter(partial, KINDS[wanted.kind])
        _keys(writer, target, wanted)
        for name, array in (*tensors(target, wanted, table), *_feed_forward()):
            writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _keys(writer: gguf.GGUFWriter, target: Target, wanted: Wanted) -> None:
    writer.add_name("scripted draft")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(131072)
    writer.add_embedding_length(E)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(wanted.block + 1 if wanted.kind == "draft-dflash" else 1)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(HEAD if wanted.kind == "draft-simple" else ROTATED)
    layers = [0, scripted.TRUNK // 2, scripted.TRUNK - 1]
    if wanted.kind == "draft-eagle3":
        writer.add_array("eagle3.target_layers", layers)
        writer.add_uint32("eagle3.target_hidden_size", E)
        writer.add_bool("eagle3.norm_before_residual", True)
    if wanted.kind == "draft-dflash":
        writer.add_array("dflash.target_layers", layers)
        writer.add_uint32("dflash.block_size", wanted.block)
        writer.add_rope_dimension_sections([ROTATED // 2, 0, 0, 0])
    tokenizer = {key: field for key, field in target.reader.fields.items() if key.startswith("tokenizer.ggml.")}
    for key, field in tokenizer.items():
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=inner)
    tokens = target.reader.fields["tokenizer.ggml.tokens"].contents()
    writer.add_uint32("tokenizer.ggml.mask_token_id", tokens.index(END_OF_TEXT))


Tensors = Iterator[tuple[str, npt.NDArray[np.floating]]]


def _simple(target: Target, _: Wanted, table: Array) -> Tensors:
    table = table.copy()
    table[target.ends, CONST] = 1
    yield "token_embd.weight", target.embeddings
    yield "output.weight", table
    yield "output_norm.weight", np.ones(E)
    yield "blk.0.attn_norm.weight", np.ones(E)
    for name, shape in (("q", (HEAD, E)), ("k", (HEAD, E)), ("v", (HEAD, E)), ("output", (E, HEAD))):
        yield f"blk.0.attn_{name}.weight", np.zeros(shape)


def _eagle3(target: Target, _: Wanted, table: Array) -> Tensors:
    # Input: the norms of [own embedding; g]. The own embedding is CONST alone, sqrt(E) after its norm.
    asks = np.zeros((HEAD, 2 * E))
    asks[:, CONST] = _here() * np.sqrt(SHARP * np.sqrt(HEAD) / (ROTATED // 2)) / np.sqrt(E)
    values = np.zeros((HEAD, 2 * E))
    values[:, E:] = scripted.rotation() - np.eye(E)
    yield "fc.weight", _first_layer_only()
    yield "token_embd.weight", _constant(len(table))
    yield "output.weight", table
    yield "output_norm.weight", np.ones(E)
    yield "blk.0.attn_norm.weight", np.ones(E)
    yield "blk.0.attn_norm_2.weight", np.ones(E)
    yield "blk.0.attn_q.weight", asks
    yield "blk.0.attn_k.weight", asks
    yield "blk.0.attn_v.weight", values
    yield "blk.0.attn_output.weight", np.eye(E)


def _dflash(target: Target, wanted: Wanted, table: Array) -> Tensors:
    heads = wanted.block + 1
    asks, puts = np.zeros((heads, HEAD, E)), np.zeros((E, heads, HEAD))
    turned = np.eye(E)
    for head in range(heads):
        asks[head, :, CONST] = _back(head)
        if head >= 2:
            turned = turned @ scripted.rotation()
            puts[:, head] = turned
    # Only what the target has said answers: dimension 1 is the still part of every code.
    answers = np.zeros((HEAD, E))
    answers[:, 1] = _here()
    values = np.eye(E)
    values[CONST, CONST] = 0
    gain = np.sqrt(SHARP / np.sqrt(HEAD))  # after the norms of q and k, |q| |k| = HEAD
    yield "fc.weight", _first_layer_only()
    yield "enc.output_norm.weight", np.ones(E)
    yield "token_embd.weight", _constant(len(table))
    yield "output.weight", table
    yield "output_norm.weight", np.ones(E)
    yield "blk.0.attn_norm.weight", np.ones(E)
    yield "blk.0.attn_q.weight", asks.reshape(heads * HEAD, E)
    yield "blk.0.attn_k.weight", answers
    yield "blk.0.attn_v.weight", values
    yield "blk.0.attn_output.weight", puts.reshape(E, heads * HEAD)
    yield "blk.0.attn_q_norm.weight", gain * np.ones(HEAD)
    yield "blk.0.attn_k_norm.weight", gain * np.ones(HEAD)
    yield "blk.0.attn_sinks.weight", (SHARP - 20) * np.ones(heads)


def _feed_forward() -> Tensors:
    yield "blk.0.ffn_norm.weight", np.ones(E)
    yield "blk.0.ffn_gate.weight", np.zeros((FEED, E))
    yield "blk.0.ffn_up.weight", np.zeros((FEED, E))
    yield "blk.0.ffn_down.weight", np.zeros((E, FEED))


def _first_layer_only() -> npt.NDArray[np.float64]:
    """Return the encoder that takes the first of three layers' inputs, which is the token's embedding, without CONST."""
    encoder = np.zeros((E, 3 * E))
    kept = [i for i in range(E) if i != CONST]
    encoder[kept, kept] = 1
    return encoder


def _constant(size: int) -> Array:
    embeddings = np.zeros((size, E), np.float32)
    embeddings[:, CONST] = 1
    return embeddings


def _here() -> npt.NDArray[np.float64]:
    """Return a key that rope leaves comparable: NEOX pairs are (i, i + ROTATED / 2)."""
    key = np.zeros(HEAD)
    key[: ROTATED // 2] = 1
    return key


def _back(places: int) -> npt.NDArray[np.float64]:
    """Return the query that meets the key `_here` exactly so many places back."""
    half = ROTATED // 2
    theta = ROPE_BASE ** (-np.arange(half) * 2 / ROTATED)
    query = np.zeros(HEAD)
    query[:half] = np.cos(places * theta)
    query[half:ROTATED] = -np.sin(places * theta)
    return query
