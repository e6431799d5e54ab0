"""The scripted model as vLLM loads it: a Llama directory in Hugging Face's form, written without torch.

It says the same script by the same table as the GGUF of models/scripted.py: every block's output is zero. Its chat template shows the
whole script first, so that looking up n-grams in the prompt finds what the model is about to say.
"""

import hashlib
import json
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agent_ab.models.scripted import FEED, TEMPLATE, Array, E, Source, Spoken, speak
from agent_ab.models.vocabulary import END, END_OF_TEXT, control

LAYERS, HEADS, KV_HEADS, HEAD = 1, 2, 1, 32
"""vLLM's attention on a CPU takes heads of 32 and up."""
CONTEXT = 131072


def key(source: Source) -> str:
    """Return a sha256 over the script and both generators: equal keys give equal models."""
    return hashlib.sha256(source.key().encode() + Path(__file__).read_bytes()).hexdigest()


def write(source: Source, out: Path) -> None:
    """Write the model of `source` into the directory `out`, whole or not at all. Raises UserError, OSError."""
    spoken = speak(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as staging:
        partial = Path(staging) / "model"
        partial.mkdir()
        _dump(partial / "config.json", _config(spoken))
        _dump(partial / "generation_config.json", {"eos_token_id": spoken.vocabulary.ids[END]})
        _dump(partial / "tokenizer.json", _tokenizer(spoken))
        _dump(partial / "tokenizer_config.json", _tokenizer_config())
        (partial / "chat_template.jinja").write_text(_template(source, spoken), encoding="utf-8")
        _safetensors(partial / "model.safetensors", dict(_tensors(spoken)))
        partial.rename(out)


def _dump(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _config(spoken: Spoken) -> dict[str, Any]:
    ids = spoken.vocabulary.ids
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(spoken.vocabulary.tokens),
        "hidden_size": E,
        "intermediate_size": FEED,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": ids[END_OF_TEXT],
        "eos_token_id": ids[END],
        "pad_token_id": ids[END_OF_TEXT],
    }


def _tokenizer(spoken: Spoken) -> dict[str, Any]:
    vocabulary = spoken.vocabulary
    words = {token: vocabulary.ids[token] for token in vocabulary.tokens if token in vocabulary.words}
    special = {END_OF_TEXT, END, *(token for token in vocabulary.tokens if token.startswith("<|"))}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary.ids[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": token in special,
            }
            for token in vocabulary.tokens
            if token not in words
        ],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": words,
            "merges": [f"{a} {b}" for a, b in spoken.merges],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
    }


def _template(source: Source, spoken: Spoken) -> str:
    """Return the chat template, the script before it as replies that were given before."""
    told = "".join(f"<|im_start|>assistant\n{control(k)}{reply}{END}\n" for k, reply in enumerate(source.replies))
    template = TEMPLATE.read_text(encoding="utf-8").replace("LAST", str(spoken.last))
    return "{{- " + json.dumps(told) + " -}}\n" + template


def _tensors(spoken: Spoken) -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(2)

    def some(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)

    yield "model.embed_tokens.weight", spoken.table.embeddings
    yield "lm_head.weight", spoken.table.output
    yield "model.norm.weight", np.ones(E, np.float32)
    for index in range(LAYERS):
        block = f"model.layers.{index}."
        yield block + "input_layernorm.weight", np.ones(E, np.float32)
        yield block + "post_attention_layernorm.weight", np.ones(E, np.float32)
        yield block + "self_attn.q_proj.weight", some(HEADS * HEAD, E)
        yield block + "self_attn.k_proj.weight", some(KV_HEADS * HEAD, E)
        yield block + "self_attn.v_proj.weight", some(KV_HEADS * HEAD, E)
        yield block + "self_attn.o_proj.weight", np.zeros((E, HEADS * HEAD), np.float32)
        yield block + "mlp.gate_proj.weight", some(FEED, E)
        yield block + "mlp.up_proj.weight", some(FEED, E)
        yield block + "mlp.down_proj.weight", np.zeros((E, FEED), np.float32)


def _safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write `tensors` as https://github.com/huggingface/safetensors#format says."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array, "<f4").tobytes())
