"""The steps of building llama-server from the source that llama-cpp-python's sdist carries."""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent_ab import process
from agent_ab.errors import UserError
from agent_ab.model import Event, Observer

SDIST = "llama-cpp-python"
VERSION = "0.3.36"
TARGET = "llama-server"
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
"""Shared libraries that find each other by $ORIGIN: one folder that can be moved, and that the Python binding loads too."""
CUDA_FLAG = "-DGGML_CUDA=ON"
DOWNLOAD_S, CONFIGURE_S, COMPILE_S = 3600.0, 1800.0, 6 * 3600.0
LOG_BYTES = 200_000_000
GIB = 2**30
CPU_BUILD_BYTES, CUDA_BUILD_BYTES = GIB, 6 * GIB
"""Disk space to ask for; a CPU build was seen to use 0.4 GiB."""
COMPILER_BYTES = GIB
"""Memory to allow for each compiler at once; llama.cpp's largest files need about this much."""
HEARTBEAT_S = 0.5

_PERCENT = re.compile(rb"^\[\s*(\d+)%\]|^\[\s*(\d+)/(\d+)\]", re.MULTILINE)
_ERROR = re.compile(r"(?:\berror\b|Error:|ERROR:|CMake Error|No space left|Killed)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides whether a build can be used: two equal recipes give interchangeable builds."""

    version: str
    flags: tuple[str, ...]
    cpu: tuple[str, ...]
    """Machine and CPU features: a GGML_NATIVE binary dies of SIGILL on a CPU that lacks one of them."""
    gpus: tuple[str, ...]
    """Compute capabilities that CUDA code is compiled for; empty: a CPU build."""

    @property
    def name(self) -> str:
        """Return the directory name, which holds the key."""
        key = hashlib.sha256(repr((self.version, self.flags, self.cpu, self.gpus)).encode()).hexdigest()[:12]
        return f"{TARGET}-{self.version}-{'cuda' if self.gpus else 'cpu'}-{key}"


@dataclass(frozen=True, slots=True)
class Shop:
    """Where one build happens, and who hears of it."""

    root: Path
    """Kept when the build breaks, so that the next one continues."""
    log: Path
    observer: Observer
    begin: float
    lock_fd: int
    """Inherited by every child: compilers that outlive a killed parent hold the lock until they are gone."""

    def say(self, message: str) -> None:
        """Tell the observer."""
        self.observer(Event(None, None, message, elapsed_s=time.monotonic() - self.begin))

    def run(self, argv: Sequence[str], what: str, timeout_s: float) -> None:
        """Run one command with its whole output in the log. Raises UserError with the lines that matter."""
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(argv)}\n".encode())
            start = log.tell()
        progress = _Progress(self, what, start)
        self.say(what)
        done = process.run(
            argv,
            env=os.environ,
            timeout_s=timeout_s,
            cap_bytes=LOG_BYTES,
            output=self.log,
            given=process.Given(fds=(self.lock_fd,)),
            tick=progress.tick,
        )
        if done.timed_out:
            raise UserError(f"{what}: not done after {timeout_s / 60:.0f} minutes; the log: {self.log}")
        if done.exit_code != 0:
            raise UserError(f"{what}: failed: {self._blame(start)}; the log: {self.log}")

    def _blame(self, start: int) -> str:
        text = _read_from(self.log, start).decode("utf-8", "replace")
        if "No space left on device" in text or shutil.disk_usage(self.root).free < 16 * 2**20:
            return f"the disk of {self.root} is full"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        telling = [line for line in lines if _ERROR.search(line)][:3] or lines[-3:]
        return " | ".join(line[:200] for line in telling) or "it said nothing"


class _Progress:
    """Turn cmake's `[ 42%]` lines into events, at most one per HEARTBEAT_S."""

    def __init__(self, shop: Shop, what: str, offset: int) -> None:
        self._shop, self._what, self._offset = shop, what, offset
        self._percent: int | None = None
        self._next = HEARTBEAT_S

    def tick(self, elapsed_s: float) -> None:
        if elapsed_s < self._next:
            return
        self._next = elapsed_s + HEARTBEAT_S
        fresh = _read_from(self._shop.log, self._offset)
        # A line that is not complete yet is read again.
        fresh = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(fresh)
        for match in _PERCENT.finditer(fresh):
            self._percent = int(match[1]) if match[1] else 100 * int(match[2]) // max(1, int(match[3]))
        self._shop.say(self._what if self._percent is None else f"{self._what}: {self._percent} %")


def _read_from(path: Path, offset: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(offset)
        return stream.read()


def plan() -> Recipe:
    """Return the recipe for this machine: with CUDA when nvcc is there and a GPU answers, else for the CPU."""
    nvcc, gpus = _nvcc(), _gpus()
    if nvcc and gpus:
        return Recipe(VERSION, (*FLAGS, CUDA_FLAG, f"-DCMAKE_CUDA_COMPILER={nvcc}"), cpu_features(), gpus)
    return Recipe(VERSION, FLAGS, cpu_features(), ())


def kind(recipe: Recipe) -> str:
    """Return what is built, and why not with CUDA where half of what that needs is here."""
    if recipe.gpus:
        return f"with CUDA for compute capability {', '.join(recipe.gpus)}"
    if _nvcc():
        return f"for the CPU: {_nvcc()} is here but no NVIDIA GPU answers (nvidia-smi)"
    return "for the CPU" + (": an NVIDIA GPU is here but no nvcc (the CUDA toolkit has it)" if _gpus() else "")


def cpu_features() -> tuple[str, ...]:
    """Return the machine's name and its sorted CPU features, as /proc/cpuinfo lists them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return (platform.machine(), *sorted(set(line[1].split() if line else [platform.processor()])))


def _nvcc() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin") or ""


def _gpus() -> tuple[str, ...]:
    tool = shutil.which("nvidia-smi")
    if not tool:
        return ()
    argv = [tool, "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = process.run(argv, env=os.environ, timeout_s=30.0)
    except OSError:
        return ()
    lines = done.stdout.decode("utf-8", "replace").split() if done.exit_code == 0 else []
    return tuple(sorted({line for line in lines if re.fullmatch(r"\d+\.\d+", line)}))


def require_tools() -> None:
    """Raise UserError that names the Debian package of what is missing."""
    named = os.environ.get("CXX", "").split()[:1]
    wanted = {"cmake": ["cmake"], "g++": named or ["c++", "g++", "clang++"]}
    if "CMAKE_GENERATOR" not in os.environ:
        wanted["make"] = ["make"]
    for package, programs in wanted.items():
        if not any(map(shutil.which, programs)):
            raise UserError(
                f"building llama-server needs {' or '.join(programs)}, not found on PATH: apt install {package}"
                " (or name an existing llama-server in AGENT_AB_LLAMA_SERVER)"
            )
    if importlib.util.find_spec("pip") is None:
        raise UserError(f"building llama-server needs pip for {sys.executable}: apt install python3-pip")


def require_space(root: Path, needed: int) -> None:
    """Raise UserError when the disk of `root` has fewer than `needed` bytes free."""
    free = shutil.disk_usage(root).free
    if free < needed:
        raise UserError(
            f"building llama-server needs {needed / GIB:.0f} GiB, but {root} has {free / GIB:.1f} GiB free;"
            " make room or set AGENT_AB_CACHE"
        )


def download(shop: Shop) -> Path:
    """Fetch the pinned sdist with pip, once, and return its path."""
    folder, fetching = shop.root / "sdist", shop.root / "sdist.partial"
    if not folder.is_dir():
        shutil.rmtree(fetching, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", SDIST, "--progress-bar", "off"]
        requirement = f"{SDIST}=={VERSION}"
        shop.run([*pip, "--dest", str(fetching), requirement], f"downloading the source of {requirement}", DOWNLOAD_S)
        fetching.rename(folder)
    found = sorted(folder.glob("*.tar.gz"))
    if len(found) != 1:
        raise UserError(f"pip left {len(found)} archives in {folder}, not one; remove the directory and try again")
    return found[0]


def unpack(shop: Shop, archive: Path) -> Path:
    """Unpack the sdist, once, and return llama.cpp's source directory in it. Raises UserError when it is damaged."""
    folder, unpacking = shop.root / "source", shop.root / "source.partial"
    if not folder.is_dir():
        shop.say("unpacking the source")
        shutil.rmtree(unpacking, ignore_errors=True)
        try:
            with tarfile.open(archive) as tar:
                # Pythons before 3.11.4 lack the filter; the sdist is all plain files and directories anyway.
                tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                tar.extractall(unpacking, members=[member for member in tar if _harmless(member, archive)])
        except (tarfile.TarError, EOFError, OSError) as error:
            shutil.rmtree(archive.parent)
            raise UserError(f"{archive} cannot be unpacked: {error}; the next start fetches it again") from None
        unpacking.rename(folder)
    for listing in folder.glob("*/vendor/llama.cpp/CMakeLists.txt"):
        return listing.parent
    raise UserError(f"{archive} holds no vendor/llama.cpp; is it the sdist of {SDIST} {VERSION}?")


def _harmless(member: tarfile.TarInfo, archive: Path) -> bool:
    path = Path(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{archive} holds the unsafe path {member.name!r}")
    return member.isreg() or member.isdir()


def compile_server(shop: Shop, source: Path, recipe: Recipe) -> Path:
    """Configure and compile, and return the directory of the results.

    A build that was broken off continues where it stopped; when that fails, it starts afresh, once.
    """
    tree = shop.root / "build"
    resumed = tree.is_dir()
    try:
        _compile(shop, source, tree, recipe)
    except UserError:
        if not resumed:
            raise
        # A killed compiler can leave a half-written object that looks up to date.
        shop.say("the broken-off build cannot be continued: starting it afresh")
        shutil.rmtree(tree)
        _compile(shop, source, tree, recipe)
    return tree / "bin"


def _compile(shop: Shop, source: Path, tree: Path, recipe: Recipe) -> None:
    shop.run(["cmake", "-S", str(source), "-B", str(tree), *recipe.flags], "configuring llama-server", CONFIGURE_S)
    memory = psutil.virtual_memory().available // (COMPILER_BYTES * (2 if recipe.gpus else 1))
    jobs = max(1, min(len(os.sched_getaffinity(0)), memory))
    compile_ = ["cmake", "--build", str(tree), "--target", TARGET, "-j", str(jobs)]
    shop.run(compile_, f"compiling llama-server, {jobs} files at a time", COMPILE_S)
