"""The scripted model for vLLM: the same table as the GGUF's, in files that transformers can read."""

import json
from pathlib import Path

import numpy as np
import pytest

from agent_ab.model import Task
from agent_ab.models import scripted
from agent_ab.models.vocabulary import END, control
from agent_ab.vllm import model
from agent_ab.vllm import scripted as vllm_scripted


@pytest.fixture(scope="module")
def made(transfer_repair: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vllm") / "model"
    vllm_scripted.write(
        scripted.Source.load(transfer_repair.root / "scripts" / "solve.toml", transfer_repair.root), out
    )
    return out


def weights(path: Path) -> dict[str, np.ndarray]:
    data = (path / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = {k: v for k, v in json.loads(data[8 : 8 + length]).items() if k != "__metadata__"}
    body = data[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
        for name, entry in entries.items()
    }


def test_it_is_a_whole_llama_directory(made: Path) -> None:
    found = model.read(made)
    assert found.architecture == "LlamaForCausalLM" and found.context == vllm_scripted.CONTEXT
    names = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert {file.name for file in made.iterdir()} == names | {"chat_template.jinja"}


def test_the_table_leads_from_the_control_token_through_the_reply_to_its_end(made: Path, transfer_repair: Task) -> None:
    tensors = weights(made)
    tokenizer = json.loads((made / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]} | tokenizer["model"]["vocab"]
    names = {number: token for token, number in ids.items()}
    embeddings, output = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    assert not tensors["model.layers.0.self_attn.o_proj.weight"].any()
    assert not tensors["model.layers.0.mlp.down_proj.weight"].any()
    source = scripted.Source.load(transfer_repair.root / "scripts" / "solve.toml", transfer_repair.root)
    token, said = ids[control(0)], ""
    while (token := int(np.argmax(output @ embeddings[token]))) != ids[END]:
        said += names[token]
    assert said == source.replies[0]


def test_the_prompt_shows_the_whole_script_for_n_gram_lookup(made: Path, transfer_repair: Task) -> None:
    source = scripted.Source.load(transfer_repair.root / "scripts" / "solve.toml", transfer_repair.root)
    first = (made / "chat_template.jinja").read_text().splitlines()[0]
    told = json.loads(first.removeprefix("{{- ").removesuffix(" -}}"))
    assert all(f"<|s{k}|>{reply}" in told for k, reply in enumerate(source.replies))


def test_the_key_is_not_the_ggufs(transfer_repair: Task) -> None:
    source = scripted.Source.load(transfer_repair.root / "scripts" / "solve.toml", transfer_repair.root)
    assert vllm_scripted.key(source) != source.key()
