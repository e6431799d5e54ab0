"""Which GGUF an arm loads, and what its header says about it; no server is started for it."""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from agent_ab import scripted, smollm2
from agent_ab.config import ModelFile, Speculation, nearest
from agent_ab.engine import cache_dir
from agent_ab.errors import UserError
from agent_ab.files import appearing
from agent_ab.gguf_header import Header, read_header
from agent_ab.model import Event, Observer, Task

MTP_ARCHITECTURES = frozenset(
    {"qwen35", "qwen35moe", "qwen3next", "qwen4exp", "glm4moe", "glm-dsa", "glm5-next", "deepseek2", "deepseek32"}
    | {"deepseek4", "mimo2", "step35", "hy_v3", "cohere2moe", "bailingmoe3", "nemotron_h_moe"}
)
"""Architectures with an MTP graph in llama.cpp b11434 (src/models, LLM_GRAPH_TYPE_DECODER_MTP)."""

HASH_ALWAYS_BYTES = 64_000_000
"""Smaller files are hashed each time; the hashes of larger ones are remembered."""
_CHUNK = 8_000_000
_SAY_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Model:
    """A GGUF, as its header describes it."""

    path: Path
    """The file that the server is given; the first part of a split model."""
    sha256: str
    """Of the file, or of all parts in their order."""
    architecture: str
    mtp: bool
    """Whether `--spec-type draft-mtp` can run on it."""
    mtp_reason: str
    """Why, or why not, in one sentence."""
    context_train: int
    """Context length that the model was trained for, in tokens; 0 when it does not say."""


def ignore(_event: Event) -> None:
    """Observe nothing."""


def resolve(settings: ModelFile, task: Task | None, observer: Observer) -> Model:
    """Return the model of `settings`, made or downloaded first when it is one of ours. Raises UserError.

    A scripted model belongs to a task; the others need none.
    """
    if settings.source == "file":
        if not settings.path:
            raise UserError("the profile names no model: set model.path to a GGUF file")
        return inspect(Path(settings.path).expanduser().absolute(), observer)
    cache = cache_dir()
    try:
        if settings.source == "smollm2-mtp":
            return inspect(smollm2.build(cache, observer), observer)
        return inspect(_scripted(settings.script, task, cache, observer), observer)
    except OSError as error:
        problem = error.strerror or str(error)
        raise UserError(f"cannot keep a model in {cache}: {problem}; AGENT_AB_CACHE names another directory") from None


def _scripted(name: str, task: Task | None, cache: Path, observer: Observer) -> Path:
    """Return the cached GGUF of a task's script."""
    if task is None:
        raise UserError("a scripted model belongs to a task: name the task")
    if not name:
        raise UserError("the profile names no script: set model.script to one of the task's scripts/*.toml")
    scripts = task.root / "scripts"
    script = scripts / f"{name}.toml"
    if not script.is_file():
        known = sorted(path.stem for path in scripts.glob("*.toml"))
        raise UserError(f"task {task.id} has no script {name!r} ({script}){nearest(name, known)}")
    source = scripted.Source.load(script, task.root)
    path = cache / "scripted" / f"{task.id}-{name}-{source.key()[:16]}.gguf"
    if not path.is_file():
        observer(Event(None, None, f"writing the scripted model {name} of {task.id}"))
        scripted.write(source, path)
    return path


def require(model: Model, speculation: Speculation) -> None:
    """Refuse MTP on a model without it. Raises UserError with the reason."""
    if "draft-mtp" in speculation.type.split(",") and not model.mtp:
        raise UserError(f"speculation.type = {speculation.type!r} cannot run on {model.path}: {model.mtp_reason}")


def inspect(path: Path, observer: Observer = ignore) -> Model:
    """Read the header of a GGUF and take its sha256. Raises UserError: missing, truncated, not a GGUF, a part missing."""
    header = read_header(path)
    parts = _parts(path, header.number("split.count"))
    tensors = header.tensors.union(*(read_header(part).tensors for part in parts if part != path))
    header = Header(header.values, tensors)
    architecture = header.text("general.architecture")
    if not architecture:
        raise UserError(f"the model {path} names no general.architecture: it is no language model")
    return Model(
        path=path,
        sha256=_sha256(parts, observer),
        architecture=architecture,
        mtp=_without_mtp(header, architecture) == "",
        mtp_reason=_without_mtp(header, architecture) or "its header has a whole MTP block for llama.cpp's draft-mtp",
        context_train=header.number(f"{architecture}.context_length"),
    )


def _without_mtp(header: Header, architecture: str) -> str:
    """Return why draft-mtp cannot run, or an empty string when it can."""
    blocks = header.number(f"{architecture}.block_count")
    heads = header.number(f"{architecture}.nextn_predict_layers")
    if architecture == "gemma4-assistant":
        return "it is a separate MTP draft (gemma4-assistant), not a model that can answer by itself"
    if heads < 1:
        return f"its header announces no MTP block ({architecture}.nextn_predict_layers is absent or 0)"
    first, last = f"blk.{blocks - heads}.", f"blk.{blocks - 1}.nextn.eh_proj.weight"
    if not any(name.startswith(first) for name in header.tensors):
        return (
            f"its header announces an MTP block, but the tensors {first}* were stripped; llama-server may not load "
            "this file at all, take one that was converted with its MTP tensors"
        )
    if last not in header.tensors:
        return f"its MTP block is incomplete: the tensor {last} is missing"
    if architecture not in MTP_ARCHITECTURES:
        return f"llama.cpp has no MTP graph for the architecture {architecture}, although the file has an MTP block"
    if "blk.0.attn_norm.weight" not in header.tensors:
        return "the file holds an MTP block only and no trunk: it is a draft for another file"
    return ""


def _parts(path: Path, count: int) -> list[Path]:
    """Return all files of a model that is split into `count`. Raises UserError."""
    if count <= 1:
        return [path]
    suffix = f"-of-{count:05}.gguf"
    stem = path.name.removesuffix(suffix)
    if stem == path.name or not stem.endswith("-00001"):
        raise UserError(f"the model {path} is one of {count} parts: name the first, which ends in -00001{suffix}")
    parts = [path.with_name(f"{stem.removesuffix('-00001')}-{number:05}{suffix}") for number in range(1, count + 1)]
    for part in parts:
        if not part.is_file():
            raise UserError(f"the model {path} is split into {count} parts, and {part.name} is missing beside it")
    return parts


def _sha256(parts: list[Path], observer: Observer) -> str:
    """Return the sha256 of the parts' bytes, remembered for large files as long as they look untouched."""
    stats = [part.stat() for part in parts]
    total = sum(stat.st_size for stat in stats)
    if total < HASH_ALWAYS_BYTES:
        return _hash(parts, total, ignore)
    look = [[str(p), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino] for p, s in zip(parts, stats, strict=True)]
    name = hashlib.sha256(str(parts[0]).encode()).hexdigest()[:32]
    note = cache_dir() / "sha256" / f"{name}.json"
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["files"] == look:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    digest = _hash(parts, total, observer)
    try:
        with appearing(note) as partial:
            partial.write_text(json.dumps({"files": look, "sha256": digest}), encoding="utf-8")
    except OSError as error:
        observer(Event(None, None, f"the sha256 of {parts[0].name} cannot be kept for the next run: {error.strerror}"))
    return digest


def _hash(parts: list[Path], total: int, observer: Observer) -> str:
    digest, done, begin, said = hashlib.sha256(), 0, time.monotonic(), 0.0
    for part in parts:
        with part.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                elapsed = time.monotonic() - begin
                if elapsed - said > _SAY_EVERY_S:
                    said = elapsed
                    message = f"taking the sha256 of {parts[0].name}: {done * 100 // total} %"
                    observer(Event(None, None, message, elapsed_s=elapsed))
    return digest.hexdigest()
