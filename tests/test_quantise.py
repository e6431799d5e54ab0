"""A GGUF in another quantisation."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from agent_ab.models import quantise, scripted
from tests.test_drafts import SCRIPT
from tests.tiny_task import tiny_task


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a scripted model."""
    root = tiny_task(tmp_path_factory.mktemp("quantise"), {"scripts/solve.toml": SCRIPT}).root
    scripted.generate(root / "scripts" / "solve.toml", root, root / "model.gguf")
    return root / "model.gguf"


@pytest.fixture(scope="module")
def before(model: Path) -> gguf.GGUFReader:
    """Return what it holds."""
    return gguf.GGUFReader(model)


def tensors(reader: gguf.GGUFReader) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in reader.tensors}


@pytest.mark.parametrize("kind", ["f16", "q4_0"])
def test_matrices_change_their_type_and_nothing_else_does(
    model: Path, before: gguf.GGUFReader, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "out.gguf"
    quantise.write(model, kind, out)
    written = gguf.GGUFReader(out)
    old, new = tensors(before), tensors(written)
    assert old.keys() == new.keys()
    wanted = gguf.GGMLQuantizationType[kind.upper()]
    assert new["output.weight"].tensor_type == wanted
    assert new["output_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    assert new["blk.0.ssm_conv1d.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    close = gguf.quants.dequantize(new["token_embd.weight"].data, wanted)
    assert np.abs(old["token_embd.weight"].data - close).max() < {"f16": 1e-3, "q8_0": 1e-2, "q4_0": 0.2}[kind]
    assert set(before.fields) == set(written.fields)
    assert written.fields["general.file_type"].contents() == quantise.FILE_TYPES[wanted]
    assert out.stat().st_size < model.stat().st_size
