"""Small and broken GGUF files for tests."""

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

TRUNK = ("token_embd.weight", "blk.0.attn_norm.weight")
HEAD = ("blk.1.attn_norm.weight", "blk.1.nextn.eh_proj.weight")


def tiny(
    path: Path, *, architecture: str = "qwen35", blocks: int = 2, heads: int = 1, tensors: Sequence[str] = TRUNK + HEAD
) -> Path:
    """Write a GGUF with a header worth inspecting and next to no weights."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(blocks)
    writer.add_context_length(4096)
    if heads:
        writer.add_nextn_predict_layers(heads)
    writer.add_token_list(["a", "b"])
    return _finish(writer, path, tensors)


def split(folder: Path, count: int, *, last: Sequence[str] = HEAD) -> list[Path]:
    """Write a model in `count` parts, its MTP block in the last."""
    parts = [folder / f"model-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    for number, path in enumerate(parts):
        writer = gguf.GGUFWriter(path, "qwen35")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        if number == 0:
            writer.add_block_count(2)
            writer.add_nextn_predict_layers(1)
        names = TRUNK if number == 0 else last if number == count - 1 else (f"blk.0.extra.{number}",)
        _finish(writer, path, names)
    return parts


def _finish(writer: gguf.GGUFWriter, path: Path, tensors: Sequence[str]) -> Path:
    for name in tensors:
        writer.add_tensor(name, np.ones(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def without_mtp(model: Path, out: Path, *, keep_key: bool) -> Path:
    """Copy `model` without its MTP block; with `keep_key` its header goes on announcing one."""
    reader = gguf.GGUFReader(model)
    architecture = str(reader.fields["general.architecture"].contents())
    blocks = int(reader.fields[f"{architecture}.block_count"].contents())
    writer = gguf.GGUFWriter(out, architecture)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if not keep_key and key.endswith(".nextn_predict_layers"):
            continue
        if not keep_key and key.endswith(".block_count"):
            value = blocks - 1
        writer.add_key_value(key, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        if not tensor.name.startswith(f"blk.{blocks - 1}."):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    return _finish(writer, out, ())


def truncated(model: Path, out: Path, size: int) -> Path:
    """Copy the first `size` bytes of `model` (or all but the last, when negative)."""
    out.write_bytes(model.read_bytes()[:size])
    return out
