"""Which GGUF an arm loads, and what its header says about it; no server is started for it."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent_ab.config import ModelFile, Speculation, nearest
from agent_ab.engine.engine import cache_dir
from agent_ab.errors import UserError
from agent_ab.files import appearing
from agent_ab.model import Event, Observer, Task
from agent_ab.models import drafts, quantise, scripted, smollm2
from agent_ab.models.gguf_header import Header, read_header
from agent_ab.wording import counted, percent

MTP_ARCHITECTURES = frozenset(
    {"qwen35", "qwen35moe", "qwen3next", "qwen4exp", "glm4moe", "glm-dsa", "glm5-next", "deepseek2", "deepseek32"}
    | {"deepseek4", "mimo2", "step35", "hy_v3", "cohere2moe", "bailingmoe3", "nemotron_h_moe"}
)
"""Architectures with an MTP graph in llama.cpp b11434 (src/models, LLM_GRAPH_TYPE_DECODER_MTP)."""

HASH_ALWAYS_BYTES = 64_000_000
"""Smaller files are hashed each time; the hashes of larger ones are remembered."""
_CHUNK = 8_000_000
_SAY_EVERY_S = 0.5


DRAFT_ARCHITECTURES: Mapping[str, str] = {"draft-eagle3": "eagle3", "draft-dflash": "dflash", "draft-dspark": "dflash"}
"""What a draft's header must say; `draft-simple` takes any whole model with the target's vocabulary."""
DRAFTED_BY_A_FILE = frozenset({"draft-simple", *DRAFT_ARCHITECTURES})


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A separate GGUF that drafts for another."""

    path: Path
    sha256: str
    architecture: str
    files: tuple[Path, ...] = ()
    """All that the sha256 is over."""


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
    draft: DraftModel | None = None
    """The arm's draft model, if its speculation has one."""
    files: tuple[Path, ...] = ()
    """All that the sha256 is over: the parts of a split model, the files of a directory."""


def ignore(_event: Event) -> None:
    """Observe nothing."""


def resolve(settings: ModelFile, task: Task | None, observer: Observer) -> Model:
    """Return the model of `settings`, made or downloaded first when it is one of ours. Raises UserError.

    A scripted model belongs to a task; the others need none.
    """
    if settings.source == "file":
        if not settings.path:
            raise UserError("the profile names no model: set model.path to a GGUF file")
        if settings.quantisation:
            raise UserError(
                "model.quantisation: is for our own models; make a file with llama-quantize and name it in model.path"
            )
        return inspect(Path(settings.path).expanduser().absolute(), observer)
    cache = cache_dir()
    try:
        if settings.source == "smollm2-mtp":
            made = smollm2.build(cache, observer)
        else:
            made = _scripted(settings.script, task, cache, observer)
        return inspect(_quantised(made, settings.quantisation, observer), observer)
    except OSError as error:
        problem = error.strerror or str(error)
        raise UserError(f"cannot keep a model in {cache}: {problem}; AGENT_AB_CACHE names another directory") from None


def _quantised(path: Path, kind: str, observer: Observer) -> Path:
    """Return the file in another quantisation, made beside it when it is not there."""
    if not kind:
        return path
    program = hashlib.sha256(Path(quantise.__file__).read_bytes()).hexdigest()
    out = path.with_name(f"{path.stem}-{kind}-{program[:8]}.gguf")
    if not out.is_file():
        observer(Event(None, None, f"writing {path.name} as {kind}"))
        quantise.write(path, kind, out)
    return out


def _scripted(name: str, task: Task | None, cache: Path, observer: Observer) -> Path:
    """Return the cached GGUF of a task's script."""
    source = script_of(name, task)
    assert task
    path = cache / "scripted" / f"{task.id}-{name}-{source.key()[:16]}.gguf"
    if not path.is_file():
        observer(Event(None, None, f"writing the scripted model {name} of {task.id}"))
        scripted.write(source, path)
    return path


def script_of(name: str, task: Task | None) -> scripted.Source:
    """Return a task's script with all that it refers to. Raises UserError that names the known ones."""
    if task is None:
        raise UserError("a scripted model belongs to a task: name the task")
    if not name:
        raise UserError("the profile names no script: set model.script to one of the task's scripts/*.toml")
    scripts = task.root / "scripts"
    script = scripts / f"{name}.toml"
    if not script.is_file():
        known = sorted(path.stem for path in scripts.glob("*.toml"))
        raise UserError(f"task {task.id} has no script {name!r} ({script}){nearest(name, known)}")
    return scripted.Source.load(script, task.root)


def require(model: Model, speculation: Speculation) -> None:
    """Refuse MTP on a model without it, and a draft of another kind. Raises UserError with the reason."""
    kinds = [kind.strip() for kind in speculation.type.split(",")]
    if "draft-mtp" in kinds and not model.mtp:
        raise UserError(f"speculation.type = {speculation.type!r} cannot run on {model.path}: {model.mtp_reason}")
    asked = [kind for kind in kinds if kind in DRAFTED_BY_A_FILE]
    if model.draft is None:
        # llama-server would start, answer, and never draft.
        if asked:
            raise UserError(
                f"speculation.type = {speculation.type!r} drafts with a model of its own: name it in speculation.draft"
            )
        return
    if not asked:
        raise UserError(f"speculation.draft: has no effect on type {speculation.type!r}; remove it")
    own, wanted = model.draft.architecture, DRAFT_ARCHITECTURES.get(asked[0])
    if own != wanted and (wanted or own in DRAFT_ARCHITECTURES.values()):
        raise UserError(
            f"the draft {model.draft.path} does not fit {asked[0]}: its architecture is {own}, not"
            f" {wanted or 'that of a whole model'}"
        )


def with_draft(model: Model, speculation: Speculation, observer: Observer) -> Model:
    """Return `model` with the draft that its speculation names, made first when it is one of ours. Raises UserError."""
    asked = speculation.draft
    if asked is None:
        return model
    try:
        match asked.source:
            case "self":
                drafted = DraftModel(model.path, model.sha256, model.architecture, model.files)
            case "generated":
                drafted = _generated(model, speculation, asked.acceptance, observer)
            case "smollm2":
                drafted = _draft(smollm2.source(cache_dir(), observer), observer)
            case "file":
                if not asked.path:
                    raise UserError("speculation.draft names no file: set its path to a GGUF")
                drafted = _draft(Path(asked.path).expanduser().absolute(), observer)
    except OSError as error:
        raise UserError(f"cannot keep a draft model in {cache_dir()}: {error.strerror or error}") from None
    return replace(model, draft=drafted)


def _draft(path: Path, observer: Observer) -> DraftModel:
    file = inspect(path, observer)
    return DraftModel(file.path, file.sha256, file.architecture, file.files)


def _generated(model: Model, speculation: Speculation, acceptance: float, observer: Observer) -> DraftModel:
    kinds = [kind for kind in speculation.type.split(",") if kind in drafts.KINDS]
    if not kinds:
        raise UserError(f"no draft can be generated for type {speculation.type!r}, only for {', '.join(drafts.KINDS)}")
    wanted = drafts.Wanted(kinds[0], speculation.n_max or 3, acceptance)
    path = cache_dir() / "drafts" / f"{model.sha256[:16]}-{wanted.key()}.gguf"
    if not path.is_file():
        observer(Event(None, None, _writing(model, wanted)))
        drafts.write(model.path, wanted, path)
    return _draft(path, observer)


def _writing(model: Model, wanted: drafts.Wanted) -> str:
    tokens = counted(wanted.n_max, "token")
    return f"writing a {wanted.kind} draft for {model.path.name}: {tokens} at a time, {percent(wanted.acceptance)} accepted"


@dataclass(frozen=True, slots=True)
class Look:
    """What the header of a GGUF, in one part or several, says."""

    header: Header
    parts: tuple[Path, ...]
    architecture: str
    without_mtp: str
    """Why draft-mtp cannot run, or an empty string when it can."""

    @property
    def stripped(self) -> bool:
        """Return whether it announces an MTP block that it lacks: then it may not load in either arm."""
        return _stripped(self.header, self.architecture)


def look(path: Path) -> Look:
    """Read the header of a GGUF and of its other parts. Raises UserError: missing, truncated, not a GGUF, a part missing."""
    header = read_header(path)
    parts = _parts(path, header.number("split.count"))
    others = [read_header(part) for part in parts if part != path]
    entries = dict(header.entries)
    for other in others:
        entries |= other.entries
    header = Header(header.values, frozenset(entries), entries)
    architecture = header.text("general.architecture")
    if not architecture:
        raise UserError(f"the model {path} names no general.architecture: it is no language model")
    return Look(header, tuple(parts), architecture, _without_mtp(header, architecture))


def inspect(path: Path, observer: Observer = ignore) -> Model:
    """Read the header of a GGUF and take its sha256. Raises UserError: missing, truncated, not a GGUF, a part missing."""
    found = look(path)
    return Model(
        path=path,
        sha256=digest(list(found.parts), observer),
        architecture=found.architecture,
        mtp=not found.without_mtp,
        mtp_reason=found.without_mtp or "its header has a whole MTP block for llama.cpp's draft-mtp",
        context_train=found.header.number(f"{found.architecture}.context_length"),
        files=found.parts,
    )


def _without_mtp(header: Header, architecture: str) -> str:
    """Return why draft-mtp cannot run, or an empty string when it can."""
    blocks = header.number(f"{architecture}.block_count")
    heads = header.number(f"{architecture}.nextn_predict_layers")
    if architecture == "gemma4-assistant":
        return "it is a separate MTP draft (gemma4-assistant), not a model that can answer by itself"
    if heads < 1:
        return f"its header announces no MTP block ({architecture}.nextn_predict_layers is absent or 0)"
    last = f"blk.{blocks - 1}.nextn.eh_proj.weight"
    if _stripped(header, architecture):
        return (
            f"its header announces an MTP block, but the tensors blk.{blocks - heads}.* were stripped; llama-server may not load "
            "this file at all, take one that was converted with its MTP tensors"
        )
    if last not in header.tensors:
        return f"its MTP block is incomplete: the tensor {last} is missing (stripped, it seems)"
    if architecture not in MTP_ARCHITECTURES:
        return f"llama.cpp has no MTP graph for the architecture {architecture}, although the file has an MTP block"
    if "blk.0.attn_norm.weight" not in header.tensors:
        return "the file holds an MTP block only and no trunk: it is a draft for another file"
    return ""


def _stripped(header: Header, architecture: str) -> bool:
    heads = header.number(f"{architecture}.nextn_predict_layers")
    first = f"blk.{header.number(f'{architecture}.block_count') - heads}."
    return heads >= 1 and not any(name.startswith(first) for name in header.tensors)


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


def digest(parts: list[Path], observer: Observer) -> str:
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
