"""A model directory in Hugging Face's form, as its config.json and the headers of its weights describe it.

Formats: https://github.com/huggingface/safetensors#format, and config.json as transformers writes it.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_ab.errors import UserError
from agent_ab.files import contents
from agent_ab.model import Json

_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Where vLLM looks for the number of MTP layers (vllm/config/speculative.py)."""
_LAYER = re.compile(r"\blayers\.(\d+)\.")
_LONGEST_HEADER = 100_000_000
_LONGEST_FILE = 64_000_000


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a model directory."""

    names: frozenset[str]
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Directory:
    """What a model directory says about itself."""

    path: Path
    config: Mapping[str, Json]
    """config.json; of a model that sees, its text part."""
    weights: Weights

    @property
    def architecture(self) -> str:
        """Return the name of the model's class."""
        named = self.config.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else "unknown"

    @property
    def context(self) -> int:
        """Return the context length that it was trained for, in tokens; 0 when it does not say."""
        return _whole(self.config, "max_position_embeddings")

    def without_mtp(self) -> str:
        """Return why vLLM's `mtp` cannot run, or an empty string when it can."""
        heads = next((count for key in _MTP_KEYS if (count := _whole(self.config, key))), 0)
        if heads < 1:
            return f"its config.json announces no MTP layer (none of {', '.join(_MTP_KEYS)})"
        trunk = _whole(self.config, "num_hidden_layers")
        extra = any(int(found[1]) >= trunk for name in self.weights.names if (found := _LAYER.search(name)))
        if not extra and not any("mtp" in name for name in self.weights.names):
            return (
                "its config.json announces MTP layers, but its weights hold none; take files that were kept with them"
            )
        return ""

    def kv_bytes(self, context: int) -> int:
        """Return the bytes of a key-value cache of 16-bit numbers for `context` tokens; every layer counts as attending."""
        heads = _whole(self.config, "num_attention_heads") or 1
        width = _whole(self.config, "head_dim") or _whole(self.config, "hidden_size") // heads
        cached = _whole(self.config, "num_key_value_heads") or heads
        kinds = self.config.get("layer_types")
        layers = _whole(self.config, "num_hidden_layers")
        if isinstance(kinds, list):
            layers = sum("attention" in str(kind) and "linear" not in str(kind) for kind in kinds)
        return 2 * 2 * layers * cached * width * context


def read(path: Path) -> Directory:
    """Read what a model directory says about itself. Raises UserError that names the file."""
    if not path.is_dir():
        raise UserError(f"the model {path} is no directory; vLLM loads a directory with config.json and safetensors")
    config = _json(path / "config.json")
    text = config.get("text_config")
    if isinstance(text, dict):
        config = {**config, **text, "architectures": config.get("architectures")}
    files = weight_files(path)
    if not files:
        raise UserError(f"the model {path} holds no *.safetensors; download it again")
    parts = [_weights(file) for file in files]
    names = frozenset().union(*(part.names for part in parts))
    return Directory(path, config, Weights(names, sum(part.size for part in parts)))


def weight_files(path: Path) -> list[Path]:
    """Return the files with the model's weights. Raises UserError when the index names one that is missing."""
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(path.glob("*.safetensors"))
    listed = _json(index).get("weight_map")
    files = sorted({path / str(name) for name in listed.values()}) if isinstance(listed, dict) else []
    for file in files:
        if not file.is_file():
            raise UserError(f"the model {path} lacks {file.name}, which its index names; download it again")
    return files


def files_of(path: Path) -> list[Path]:
    """Return every file that decides what the model says: weights, configuration, tokenizer, template."""
    return sorted(
        file
        for file in path.iterdir()
        if file.is_file() and file.suffix in (".json", ".safetensors", ".jinja", ".model", ".txt")
    )


def template_sha256(path: Path, named: str) -> str:
    """Return the sha256 of the chat template that a server takes: the `named` file, or else the directory's own."""
    file = Path(named).expanduser() if named else path / "chat_template.jinja"
    if file.is_file():
        return hashlib.sha256(file.read_bytes()).hexdigest()
    settings = path / "tokenizer_config.json"
    template = _json(settings).get("chat_template") if settings.is_file() else ""
    return hashlib.sha256(json.dumps(template or "").encode()).hexdigest()


def _weights(path: Path) -> Weights:
    """Read the header of a safetensors file. Raises UserError: truncated or damaged."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _LONGEST_HEADER:
                raise ValueError("its header is too long")
            header = json.loads(file.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        if path.stat().st_size < 8 + length + end:
            raise ValueError("it ends before its tensors do")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is truncated or damaged: {error}; download it again") from None
    return Weights(frozenset(entries), end)


def _json(path: Path) -> dict[str, Json]:
    try:
        data = json.loads(contents(path, _LONGEST_FILE))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path} is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} holds no JSON object")
    return data


def _whole(config: Mapping[str, Json], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and math.isfinite(value) else 0
