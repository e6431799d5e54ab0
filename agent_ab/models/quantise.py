"""A GGUF in another quantisation: for our own small models, so that a quantised file can be a pair's variable anywhere.

Matrices are dequantised and written in the wanted type, as llama-quantize's plain types do it (no importance matrix).
What cannot be cut into blocks, and vectors, stay as they are: llama.cpp wants those in full.
"""

from pathlib import Path

import gguf
import numpy as np

from agent_ab.files import appearing

Kind = gguf.GGMLQuantizationType
FILE_TYPES = {
    Kind.F32: gguf.LlamaFileType.ALL_F32,
    Kind.F16: gguf.LlamaFileType.MOSTLY_F16,
    Kind.BF16: gguf.LlamaFileType.MOSTLY_BF16,
    Kind.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
    Kind.Q5_1: gguf.LlamaFileType.MOSTLY_Q5_1,
    Kind.Q5_0: gguf.LlamaFileType.MOSTLY_Q5_0,
    Kind.Q4_1: gguf.LlamaFileType.MOSTLY_Q4_1,
    Kind.Q4_0: gguf.LlamaFileType.MOSTLY_Q4_0,
}
"""What the header says the file is, which llama-server repeats in `/props`."""
KEPT = ("ssm_conv1d.weight", "ffn_gate_inp.weight")
"""Matrices that llama.cpp reads in full only."""


def write(source: Path, kind: str, out: Path) -> None:
    """Write `source` with its matrices as `kind` (`q8_0` ...) to `out`, whole or not at all. Raises OSError."""
    wanted = Kind[kind.upper()]
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    with appearing(out) as partial:
        writer = gguf.GGUFWriter(partial, architecture)
        for key, field in reader.fields.items():
            if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
                continue
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)
        writer.add_file_type(FILE_TYPES[wanted])
        for tensor in reader.tensors:
            if _fits(tensor, wanted):
                values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                data = gguf.quants.quantize(np.ascontiguousarray(values, np.float32), wanted)
                writer.add_tensor(tensor.name, data, raw_dtype=wanted)
            else:
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _fits(tensor: gguf.ReaderTensor, kind: gguf.GGMLQuantizationType) -> bool:
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return len(tensor.shape) > 1 and tensor.shape[0] % block == 0 and not tensor.name.endswith(KEPT)
