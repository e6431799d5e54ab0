"""Find llama-server, and learn what it can do from what it says about itself."""

import hashlib
import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import platformdirs

from agent_ab import process
from agent_ab.config import Speculation
from agent_ab.engine import build
from agent_ab.errors import UserError
from agent_ab.model import Event, Observer

BINARY_VARIABLE = "AGENT_AB_LLAMA_SERVER"
CACHE_VARIABLE = "AGENT_AB_CACHE"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PROBE_S = 60.0
"""Time limit of `--version` and `--help`; a large CUDA library can take seconds to load from a cold disk."""

# Formats seen: "version: 9216 (1ff0fc138)" and "version: 0.5.0-dev (build 1, commit 0c1e570)".
_VERSION = re.compile(r"^version: (?:\S+ \(build (\d+), commit (\w+)\)|(\d+) \((\w+)\))", re.MULTILINE)
_OPTION = re.compile(r"^-{1,2}[A-Za-z][\w.-]*(?:,\s+-{1,2}[A-Za-z][\w.-]*)*")
_FLAG = re.compile(r"(?<![\w-])-{1,2}[A-Za-z][\w.-]*")
_SPEC_TYPE = re.compile(r"(?<![\w-])[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")
_SPEC_TYPE_IN_PROSE = re.compile(r"(?<![\w-])(?:none|(?:draft|ngram)-[a-z0-9-]+)(?![\w-])")
_MISSING_LIBRARY = re.compile(r"error while loading shared libraries: ([^:\s]+)|^\s*(\S+) => not found", re.MULTILINE)
_OWN_LIBRARY = re.compile(r"lib(?:llama|ggml|mtmd)[^/]*\.so[^/]*$")


@dataclass(frozen=True, slots=True)
class Engine:
    """A llama-server that was run once and told what it is."""

    binary: Path
    sha256: str
    """Of llama-server and its shared libraries: build numbers can be 0 or 1, so this is the identity."""
    build: str
    """As `/props` says it: `b<number>-<commit>`; `unknown` when `--version` names none."""
    flags: frozenset[str]
    """Every option that `--help` lists, except those it calls removed."""
    spec_types: tuple[str, ...]
    """The values of `--spec-type`."""
    source: str
    """Where it was found: `server.binary`, `AGENT_AB_LLAMA_SERVER`, `PATH`, `own build`."""
    library_path: str = ""
    """Our LD_LIBRARY_PATH, when the binary or a plug-in beside it does not find its libraries without."""


def cache_dir() -> Path:
    """Return the directory that keeps what is built or downloaded once: `AGENT_AB_CACHE`, else the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser().absolute() if named else platformdirs.user_cache_path("agent-ab")


def find(binary: str, observer: Observer) -> Engine:
    """Return the profile's llama-server, `AGENT_AB_LLAMA_SERVER`, the one on PATH, or our own, built when it is not there.

    Raises UserError when a named one cannot be used or our own cannot be built.
    """
    for named, source in ((binary, "server.binary"), (os.environ.get(BINARY_VARIABLE, ""), BINARY_VARIABLE)):
        if named:
            try:
                return probe(Path(shutil.which(named) or named).expanduser(), source)
            except UserError as error:
                raise UserError(f"{source}: {error}") from None
    on_path = shutil.which("llama-server")
    if on_path:
        try:
            return probe(Path(on_path), "PATH")
        except UserError as error:
            observer(Event(None, None, f"passing over the llama-server on PATH: {error}"))
    return probe(build.ensure(cache_dir(), observer), "own build")


def probe(binary: Path, source: str = "given") -> Engine:
    """Run `--version` and `--help` of `binary` once per state of its files, and hash it with its libraries.

    Raises UserError that names what is wrong: not there, SIGILL, a missing library, another machine's, too old.
    """
    if not binary.is_file():
        raise UserError(f"no such file: {binary}")
    if not os.access(binary, os.X_OK):
        raise UserError(f"not executable: {binary}")
    path = binary.resolve()
    if _foreign(path):
        raise UserError(f"not a program for this machine: {path}")
    stamp = tuple((file.name, *_stamp(file)) for file in (path, *_beside(path)))
    return _probe(path, source, stamp)


def files(engine: Engine) -> tuple[Path, ...]:
    """Return every file that `engine.sha256` is over."""
    return _files(engine.binary, engine.library_path)


def digest(engine: Engine) -> str:
    """Return the sha256 of the engine's files as they are now. Raises OSError."""
    return _digest(engine.binary, engine.library_path)


def describe(engine: Engine) -> str:
    """Return the engine in one line, for people."""
    return f"llama-server {engine.build}, sha256 {engine.sha256[:12]}, from {engine.source}: {engine.binary}"


def require(engine: Engine, speculation: Speculation) -> None:
    """Raise UserError when this build cannot speculate as asked, rather than measure something else."""
    asked = tuple(part.strip() for part in speculation.type.split(","))
    for kind in asked:
        if kind not in engine.spec_types:
            raise UserError(
                f"server.speculation.type: {engine.binary} does not know {kind!r} (it knows {', '.join(engine.spec_types)});"
                f" name a newer llama-server in server.binary or {BINARY_VARIABLE}"
            )
    if "none" in asked and len(asked) > 1:
        raise UserError("server.speculation.type: 'none' switches every other type of the list off; drop one of them")
    if asked == ("none",):
        return
    drafting = any(kind.startswith("draft-") for kind in asked)
    usable = dict(SPECULATION_FLAGS) if drafting else {}
    for kind in asked:
        usable |= {key: flag for key, (flag, _) in NGRAM_OPTIONS.get(kind, {}).items()}
    for key in type(speculation).model_fields:
        value = getattr(speculation, key)
        if value is None or key in ("type", "draft", "draft_gpu_layers"):
            continue
        if key not in usable:
            raise UserError(f"server.speculation.{key}: has no effect on type {speculation.type!r}; remove the key")
        # `greedy` is what a build without this flag does anyway.
        if usable[key] not in engine.flags and value != "greedy":
            raise UserError(f"server.speculation.{key}: {engine.binary} ({engine.build}) has no {usable[key]}")


SPECULATION_FLAGS = {
    "n_max": "--spec-draft-n-max",
    "n_min": "--spec-draft-n-min",
    "p_min": "--spec-draft-p-min",
    "sampling": "--spec-draft-sampling",
    "kv_type_k": "--spec-draft-type-k",
    "kv_type_v": "--spec-draft-type-v",
    "synth_rates": "--spec-synth-rates",
}
"""The keys of `server.speculation` that describe a model-drafted type, and their flags."""
NGRAM_OPTIONS: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "ngram-mod": {
        "ngram_match": ("--spec-ngram-mod-n-match", 24),
        "ngram_min": ("--spec-ngram-mod-n-min", 48),
        "ngram_max": ("--spec-ngram-mod-n-max", 64),
    },
    **{
        kind: {
            "ngram_size": (f"--spec-{kind}-size-n", 12),
            "ngram_draft": (f"--spec-{kind}-size-m", 48),
            "ngram_hits": (f"--spec-{kind}-min-hits", 1),
        }
        for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
    },
}
"""The keys of each n-gram type, their flags, and llama-server's defaults, which are said aloud."""


@lru_cache(maxsize=32)
def _probe(path: Path, source: str, _state: tuple[tuple[str | int, ...], ...]) -> Engine:
    library_path = _library_path(path)
    _, told = _ask(path, "--version", library_path)
    helped, _ = _ask(path, "--help", library_path)
    flags, spec_types = parse_help(helped)
    if not spec_types:
        raise UserError(f"{path} is too old: its --help has no --spec-type; use a llama.cpp of 2026")
    return Engine(
        binary=path,
        sha256=_digest(path, library_path),
        build=parse_version(told),
        flags=flags,
        spec_types=spec_types,
        source=source,
        library_path=library_path,
    )


def parse_version(text: str) -> str:
    """Return `b<number>-<commit>` of what `--version` printed, or `unknown`."""
    match = _VERSION.search(text)
    if not match:
        return "unknown"
    number, commit = match[1] or match[3], match[2] or match[4]
    return f"b{number}-{commit}"


def parse_help(text: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the usable options of a `--help`, and the values of `--spec-type`.

    Whole words only: a list that holds `draft-mtp` does not offer `mtp`. Options "removed" are fatal, so not usable.
    """
    flags: set[str] = set()
    spec_types: tuple[str, ...] = ()
    for entry in re.split(r"\n(?=-)", "\n" + text):
        option = _OPTION.match(entry)
        if not option or "has been removed" in entry:
            continue
        names = _FLAG.findall(option[0])
        flags.update(names)
        if "--spec-type" in names:
            listed = entry[option.end() :].split(maxsplit=1)
            found = _SPEC_TYPE.findall(listed[0]) if listed else []
            spec_types = tuple(dict.fromkeys(found or _SPEC_TYPE_IN_PROSE.findall(entry)))
    return frozenset(flags), spec_types


def _environment(library_path: str) -> dict[str, str]:
    base = {"PATH": SYSTEM_PATH, "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    return base | ({"LD_LIBRARY_PATH": library_path} if library_path else {})


def _ask(path: Path, flag: str, library_path: str) -> tuple[str, str]:
    """Return stdout and stderr of `path flag`. Raises UserError."""
    try:
        done = process.run([str(path), flag], env=_environment(library_path), timeout_s=PROBE_S)
    except OSError as error:
        raise UserError(f"{path} cannot be started: {error.strerror}") from None
    out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    if done.timed_out:
        raise UserError(f"{path} {flag} did not end within {PROBE_S:.0f} s")
    if done.exit_code != 0:
        raise UserError(f"{path} {_why(done.exit_code, err or out)}")
    return out, err


def _why(exit_code: int, text: str) -> str:
    missing = _MISSING_LIBRARY.search(text)
    if exit_code == -signal.SIGILL:
        return "dies of SIGILL: it was built for another CPU; build it on this machine or unset it to use our own build"
    if missing:
        return f"lacks the shared library {missing[1] or missing[2]}; install it or set LD_LIBRARY_PATH"
    if "GLIBC" in text and "not found" in text:
        return "needs a newer C library than this system has"
    lines = [line for line in text.splitlines() if line.strip()]
    return f"failed with status {exit_code}" + (f": {lines[-1].strip()}" if lines else "")


def _foreign(path: Path) -> bool:
    """Return whether an ELF file differs from this Python's in word size, byte order or machine (bytes 4, 5, 18, 19)."""

    def kind(file: Path) -> bytes:
        with file.open("rb") as stream:
            head = stream.read(20)
        return head[4:6] + head[18:20] if head.startswith(b"\x7fELF") else b""

    # A shell takes over what the kernel refuses to start, so its error message says nothing.
    return bool(kind(path)) and kind(path) != kind(Path("/proc/self/exe"))


def _beside(path: Path) -> list[Path]:
    """Return the shared libraries in the binary's directory, each file once, symbolic links left out."""
    return sorted(file for file in path.parent.glob("*.so*") if file.is_file() and not file.is_symlink())


def _ldd(files: list[Path], library_path: str) -> str:
    try:
        done = process.run(["ldd", *map(str, files)], env=_environment(library_path), timeout_s=PROBE_S)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace")


def _library_path(path: Path) -> str:
    """Return our LD_LIBRARY_PATH when the binary or a plug-in beside it (ggml-cuda) needs it, else nothing."""
    ours = os.environ.get("LD_LIBRARY_PATH", "")
    files = [path, *_beside(path)]
    return ours if ours and _ldd(files, "").count("not found") > _ldd(files, ours).count("not found") else ""


def _digest(path: Path, library_path: str) -> str:
    """Return the sha256 over names and contents of `_files`."""
    total = hashlib.sha256()
    for file in _files(path, library_path):
        total.update(f"{_content(file, _stamp(file))}  {file.name}\n".encode())
    return total.hexdigest()


def _files(path: Path, library_path: str) -> tuple[Path, ...]:
    """Return the binary, the libraries beside it, and llama.cpp's own elsewhere."""
    linked = (Path(part) for part in _ldd([path], library_path).split() if part.startswith("/"))
    own = {file.resolve() for file in linked if _OWN_LIBRARY.search(str(file)) and file.is_file()}
    return tuple(sorted({path, *_beside(path), *own}, key=lambda file: (file.name, file)))


def _stamp(file: Path) -> tuple[int, ...]:
    """Return what changes when a file is written to or replaced; nobody can set the time of its last change back."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=256)
def _content(file: Path, _state: tuple[int, ...]) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
