"""A tiny GGUF that says a script, so that the real llama-server plays a whole agent conversation in seconds on a CPU.

It is a `qwen35` model (gated delta net, attention and a real MTP block), the architecture of Qwen3.5 and later. Every
block's output is zero, so the hidden state is the current token's embedding and the output matrix is a table
"token -> next token". The embeddings of what is said lie on one orbit of a rotation, in the order of saying: that is
what the generated drafts (drafts.py) go on along. A reply is cut into whole-string tokens, each used once in the whole script. The chat template
ends a prompt with the control token `<|sK|>`, K = number of assistant messages so far, which starts reply K; after the
last reply the model says one short sentence.

A script (TOML):

    mtp_noise = 0.25                  # optional: share of the MTP block's guesses that are wrong ("the reply ends")
    [[turns]]
    think = 3000                      # optional: about so many tokens of numbered thoughts come first
    say = "Let me look."
    [turns.call]                      # written in the Hermes form, which llama-server parses into a tool call
    name = "write"
    arguments = { path = "app.py" }   # in the order of the tool's schema, which is the order of the server's grammar
    content_from = "solution/app.py"  # optional: argument `content`, read from a file of the task directory
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from agent_ab.config import Strict
from agent_ab.errors import UserError
from agent_ab.files import appearing, text_of
from agent_ab.models.merges import ALPHABET, Pair, learn_merges
from agent_ab.models.vocabulary import END, END_OF_TEXT, Vocabulary, control, cut_all, lines_of
from agent_ab.reading import TOML_BYTES, explain, toml

Array = npt.NDArray[np.float32]

_PACKAGE = Path(__file__).parent.parent
TEMPLATE = _PACKAGE / "data" / "scripted_chat.jinja"
_AGENT_FILES = (_PACKAGE / "agents" / "builtin_agent.py",)
_GENERATOR_FILES = (*map(Path(__file__).with_name, ("scripted.py", "vocabulary.py", "merges.py")), TEMPLATE)

NAME = "scripted"
"""What the header of such a model calls itself."""
LAST_WORDS = "The script ends here."
"""What the model says to a conversation that is longer than its script."""

MERGES = 1500
"""Merges learnt from the task's own text: 10 kB of prompt become about 2,500 tokens."""
E, HEADS, KV_HEADS, HEAD, FEED = 64, 1, 1, 32, 32
CONV, STATE, GROUPS, RANK, ROTATED, TRUNK = 4, 16, 1, 1, 16, 2
MTP_EMBEDDINGS = f"blk.{TRUNK}.nextn.embed_tokens.weight"
STILL = 0.3
"""The part of an embedding that its rotation leaves where it is."""
MARGIN = 50.0
"""Least distance in nats between the right token and any other: far outside of what temperature 1.0 can bridge."""


class Call(Strict):
    """One tool call of a script."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    content_from: str = ""


class Turn(Strict):
    """One reply of a script."""

    think: int = Field(0, ge=0, le=20_000)
    """About so many tokens of numbered thoughts come before `say`."""
    say: str = ""
    call: Call | None = None


class Script(Strict):
    """A script file."""

    mtp_noise: float = Field(0.25, ge=0, le=1)
    """Share of the MTP block's guesses that are wrong: without any, a server that accepts all drafts would do well."""
    turns: tuple[Turn, ...] = Field(min_length=1)


def load(path: Path) -> Script:
    """Read a script. Raises UserError."""
    try:
        return Script.model_validate(toml(text_of(path, TOML_BYTES), str(path)))
    except OSError as error:
        raise UserError(f"cannot read the script {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error)}") from None


@dataclass(frozen=True, slots=True)
class Source:
    """Everything that a scripted model is made from."""

    script: Path
    replies: tuple[str, ...]
    """What each turn says, word for word."""
    mtp_noise: float
    corpus: tuple[str, ...]
    """What prompts will be made of: the task's instruction and fixture, and the built-in agent's own words."""

    @classmethod
    def load(cls, script: Path, task_root: Path) -> "Source":
        """Read a script and what it refers to. Raises UserError naming the turn."""
        parsed = load(script)
        replies = tuple(
            _reply(turn, f"{script}: turn {number}", task_root) for number, turn in enumerate(parsed.turns, 1)
        )
        fixture = sorted(p for p in (task_root / "fixture").rglob("*") if p.is_file())
        files = [task_root / "instruction.md", *fixture, *_AGENT_FILES]
        corpus = tuple(f.read_text(encoding="utf-8", errors="replace") for f in files if f.is_file())
        return cls(script, replies, parsed.mtp_noise, corpus)

    def key(self) -> str:
        """Return a sha256 over all of it and over this generator: equal keys give equal models."""
        programs = [path.read_text(encoding="utf-8") for path in _GENERATOR_FILES]
        parts = [programs, self.replies, self.mtp_noise, self.corpus]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _reply(turn: Turn, where: str, task_root: Path) -> str:
    """Return what a turn says. Raises UserError."""
    text = _thoughts(turn.think) + turn.say
    if turn.call is not None:
        arguments = dict(turn.call.arguments)
        if turn.call.content_from:
            try:
                arguments["content"] = (task_root / turn.call.content_from).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"{where}: content_from = {turn.call.content_from!r}: {error}") from None
        try:
            call = json.dumps({"name": turn.call.name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"{where}: arguments: {error}") from None
        text += ("\n" if text else "") + f"<tool_call>\n{call}\n</tool_call>"
    if not text:
        raise UserError(f"{where} says nothing; give it `say` or a call")
    if "<|" in text or "\0" in text:
        raise UserError(f"{where}: '<|' and NUL cannot be said: they belong to the chat template")
    if text.count("<tool_call>") > (turn.call is not None):
        raise UserError(f"{where}: '<tool_call>' can be said by `call` only")
    return text


def _thoughts(tokens: int) -> str:
    """Return numbered thoughts, each about one token long: no piece of them occurs twice."""
    return "".join(f"Case {number} holds. " for number in range(1, tokens + 1))


def generate(script: Path, task_root: Path, out: Path) -> None:
    """Write the model that says `script` to `out`; equal inputs give equal bytes. Raises UserError."""
    write(Source.load(script, task_root), out)


def write(source: Source, out: Path) -> None:
    """Write the model of `source` to `out`, whole or not at all. Raises UserError, OSError."""
    spoken = speak(source)
    with appearing(out) as partial:
        _write(partial, spoken.vocabulary, spoken.merges, spoken.table, last=spoken.last)


@dataclass(frozen=True, slots=True)
class Table:
    """The table "token -> next token", as (vocabulary, E) matrices."""

    embeddings: Array
    output: Array
    guesses: Array
    """What the MTP block sees instead of `embeddings`: a wrong guess sees a token that ends the reply."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A script as tokens: what any model that says it is made of."""

    vocabulary: Vocabulary
    merges: Sequence[Pair]
    table: Table
    last: int
    """Number of the reply that is said to a conversation longer than the script."""


def speak(source: Source) -> Spoken:
    """Return the tokens of `source` and which follows which. Raises UserError."""
    texts = [*source.replies, LAST_WORDS]
    merges = learn_merges(source.corpus, MERGES)
    vocabulary = Vocabulary.start(merges, len(texts))
    cuts = cut_all(texts, vocabulary, str(source.script))
    chains = [[vocabulary.ids[control(k)], *map(vocabulary.say, cut)] for k, cut in enumerate(cuts)]
    for line in filter(vocabulary.can_say, lines_of(source.corpus)):
        vocabulary.say(line)
    table = _table(chains, len(vocabulary.tokens), vocabulary.ids[END], source.mtp_noise)
    return Spoken(vocabulary, merges, table, len(source.replies))


def _table(chains: Sequence[Sequence[int]], size: int, end: int, noise: float) -> Table:
    """Return the table of `chains`, in which every other token, and each chain's last, is followed by `end`."""
    rng = np.random.default_rng(1)
    sources = [token for chain in chains for token in chain[:-1]]
    codes = orbit(len(sources))
    likeness = codes @ codes.T
    np.fill_diagonal(likeness, 0)
    gain = np.float32(MARGIN / (np.sqrt(E) * (1 - likeness.max())))
    embeddings = np.zeros((size, E), np.float32)
    embeddings[:, 0] = 1
    embeddings[sources] = codes
    output = np.zeros((size, E), np.float32)
    output[end, 0] = gain
    followers = [token for chain in chains for token in chain[1:]]
    output[followers] = gain * codes
    guesses = embeddings.copy()
    wrong = rng.choice(len(sources), round(noise * len(sources)), replace=False)
    guesses[np.array(sources)[wrong]] = embeddings[end]
    return Table(embeddings, output, guesses)


def rotation() -> Array:
    """Return the (E, E) matrix that leads from one said token's embedding to the next one's."""
    matrix = np.eye(E)
    for first, angle in zip(range(2, E, 2), _angles(), strict=True):
        cos, sin = np.cos(angle), np.sin(angle)
        matrix[first : first + 2, first : first + 2] = [[cos, -sin], [sin, cos]]
    return matrix.astype(np.float32)


def orbit(length: int) -> Array:
    """Return (length, E) unit vectors, each the rotation of the one before, no two of them alike.

    Dimension 0 is kept for "the reply ends here", at right angles to all; dimension 1 is the same in all.
    """
    turns = np.arange(length)[:, None] * _angles()
    planes = np.stack([np.cos(turns), np.sin(turns)], axis=2).reshape(length, E - 2)
    still = np.broadcast_to([0.0, STILL], (length, 2))
    return np.concatenate([still, planes * np.sqrt((1 - STILL**2) / (E / 2 - 1))], axis=1).astype(np.float32)


def _angles() -> npt.NDArray[np.float64]:
    return np.random.default_rng(3).uniform(0, np.pi, E // 2 - 1)


def _write(out: Path, vocabulary: Vocabulary, merges: Sequence[Pair], table: Table, last: int) -> None:
    writer = gguf.GGUFWriter(out, "qwen35")
    writer.add_name(NAME)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(131072)
    writer.add_embedding_length(E)
    writer.add_block_count(TRUNK + 1)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_rope_dimension_count(ROTATED)
    writer.add_rope_dimension_sections([4, 2, 2, 0])
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_group_count(GROUPS)
    writer.add_ssm_time_step_rank(RANK)
    writer.add_ssm_inner_size(RANK * STATE)
    writer.add_full_attention_interval(TRUNK)
    writer.add_nextn_predict_layers(1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges([f"{a} {b}" for a, b in merges] or [f"{ALPHABET[32]} {ALPHABET[32]}"])
    writer.add_bos_token_id(vocabulary.ids[END_OF_TEXT])
    writer.add_eos_token_id(vocabulary.ids[END])
    writer.add_pad_token_id(vocabulary.ids[END_OF_TEXT])
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE.read_text(encoding="utf-8").replace("LAST", str(last)))
    for name, array in _tensors(table):
        writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(table: Table) -> Iterator[tuple[str, Array]]:
    """Yield every tensor; a block's own output is zero, so only the table speaks."""
    rng = np.random.default_rng(2)

    def some(*shape: int, scale: float = 0.02) -> Array:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, np.float32)

    def ones(size: int) -> Array:
        return np.ones(size, np.float32)

    yield "token_embd.weight", table.embeddings
    yield "output_norm.weight", ones(E)
    yield "output.weight", table.output
    for index in range(TRUNK + 1):
        block = f"blk.{index}."
        yield block + "attn_norm.weight", ones(E)
        yield block + "post_attention_norm.weight", ones(E)
        if index == 0:
            key, value = STATE * GROUPS, STATE * RANK
            yield block + "attn_qkv.weight", some(2 * key + value, E)
            yield block + "attn_gate.weight", some(value, E)
            yield block + "ssm_conv1d.weight", some(2 * key + value, CONV, scale=0.2)
            yield block + "ssm_dt.bias", ones(RANK)
            yield block + "ssm_a", -ones(RANK)
            yield block + "ssm_beta.weight", some(RANK, E)
            yield block + "ssm_alpha.weight", some(RANK, E)
            yield block + "ssm_norm.weight", ones(STATE)
            yield block + "ssm_out.weight", zeros(E, value)
        else:
            yield block + "attn_q.weight", some(2 * HEAD * HEADS, E)
            yield block + "attn_k.weight", some(HEAD * KV_HEADS, E)
            yield block + "attn_v.weight", some(HEAD * KV_HEADS, E)
            yield block + "attn_q_norm.weight", ones(HEAD)
            yield block + "attn_k_norm.weight", ones(HEAD)
            yield block + "attn_output.weight", zeros(E, HEAD * HEADS)
        yield block + "ffn_gate.weight", some(FEED, E)
        yield block + "ffn_up.weight", some(FEED, E)
        yield block + "ffn_down.weight", zeros(E, FEED)
    block = MTP_EMBEDDINGS.removesuffix("embed_tokens.weight")
    # The block's input is concat(embedding, hidden state); the embedding alone passes.
    yield block + "eh_proj.weight", np.concatenate([np.eye(E, dtype=np.float32), zeros(E, E)], axis=1)
    yield block + "enorm.weight", ones(E)
    yield block + "hnorm.weight", ones(E)
    yield MTP_EMBEDDINGS, table.guesses
