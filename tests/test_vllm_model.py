"""A model directory for vLLM: what it says, and what is wrong with it, in one line."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from agent_ab.errors import UserError
from agent_ab.vllm import model

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
}
TRUNK = ("model.embed_tokens.weight", "model.layers.0.x.weight", "model.layers.1.x.weight")


def directory(path: Path, *names: str, **config: Any) -> Path:
    """Write a model directory with tensors of these names, four bytes each."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG | config))
    entries = {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(names)}
    header = json.dumps({"__metadata__": {}, **entries}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * len(names)))
    return path


def test_a_directory_tells_its_class_its_size_and_its_context(tmp_path: Path) -> None:
    found = model.read(directory(tmp_path / "m", *TRUNK))
    assert (found.architecture, found.context, found.weights.size) == ("LlamaForCausalLM", 2048, 12)
    assert found.kv_bytes(1024) == 2 * 2 * 2 * 1 * 32 * 1024


def test_linear_layers_cache_nothing(tmp_path: Path) -> None:
    hybrid = directory(tmp_path / "m", *TRUNK, layer_types=["linear_attention", "full_attention"])
    assert model.read(hybrid).kv_bytes(1024) == 2 * 2 * 1 * 1 * 32 * 1024


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers"])
@pytest.mark.parametrize("tensor", ["mtp.fc.weight", "model.layers.2.eh_proj.weight"])
def test_mtp_layers_are_announced_and_there(tmp_path: Path, key: str, tensor: str) -> None:
    assert model.read(directory(tmp_path / "m", *TRUNK, tensor, **{key: 1})).without_mtp() == ""


def test_the_text_part_of_a_model_that_sees_is_what_counts(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", *TRUNK, "mtp.fc.weight", text_config={"mtp_num_hidden_layers": 1})
    assert model.read(path).without_mtp() == ""


def test_without_mtp_the_reason_says_whether_it_was_ever_there(tmp_path: Path) -> None:
    assert "announces no MTP layer" in model.read(directory(tmp_path / "a", *TRUNK)).without_mtp()
    stripped = model.read(directory(tmp_path / "b", *TRUNK, num_nextn_predict_layers=1))
    assert "its weights hold none" in stripped.without_mtp()


def complaint(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        model.read(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    assert "is no directory" in complaint(tmp_path / "absent.gguf")
    whole = directory(tmp_path / "m", *TRUNK)
    (whole / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:-1])
    assert "model.safetensors is truncated or damaged: it ends before its tensors do" in complaint(whole)
    (whole / "model.safetensors").write_bytes(b"<html>")
    assert "is truncated or damaged" in complaint(whole)
    (whole / "model.safetensors").unlink()
    assert "holds no *.safetensors" in complaint(whole)
    (whole / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "part-2.safetensors"}}))
    assert "lacks part-2.safetensors" in complaint(whole)
    (whole / "config.json").write_text("{")
    assert "config.json is no JSON" in complaint(whole)


def test_the_chat_template_is_the_named_one_or_the_directorys_own(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", *TRUNK)
    none = model.template_sha256(path, "")
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    inside = model.template_sha256(path, "")
    (path / "chat_template.jinja").write_text("{{ y }}")
    own = model.template_sha256(path, "")
    (tmp_path / "named.jinja").write_text("{{ z }}")
    assert len({none, inside, own, model.template_sha256(path, str(tmp_path / "named.jinja"))}) == 4


def test_all_that_decides_what_it_says_is_hashed(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", *TRUNK)
    (path / "tokenizer.json").write_text("{}")
    (path / "README.md").write_text("")
    assert [file.name for file in model.files_of(path)] == ["config.json", "model.safetensors", "tokenizer.json"]
