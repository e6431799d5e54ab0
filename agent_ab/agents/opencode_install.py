"""Find OpenCode, or install the version that was tried from npm into the user's cache.

<cache>/agents/
  opencode-<version>-<platform>/   the program and manifest.json; appears in one rename
  opencode-<version>-<platform>.lock
"""

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from agent_ab import process
from agent_ab.engine.build_steps import cpu_features
from agent_ab.engine.engine import cache_dir
from agent_ab.errors import UserError
from agent_ab.files import locked
from agent_ab.model import Event, Observer

TRIED = "1.18.33"
"""The version that this adapter was written against and is tested with; npm is asked for it when none is named."""
PROGRAM, MANIFEST = "opencode", "manifest.json"
INSTALL_S = 1800.0
PROBE_S = 120.0
"""Time limit of `--version`; reading 185 MB from a cold disk takes seconds."""
SAY_EVERY_S = 0.5

_PLATFORMS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "x86_64"): "darwin-x64",
    ("Darwin", "arm64"): "darwin-arm64",
}
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


@dataclass(frozen=True, slots=True)
class OpenCode:
    """An OpenCode that can be run by itself: one program file, no Node."""

    binary: Path
    version: str
    sha256: str
    source: str
    """Where it was found: `agent.binary`, `PATH`, `npm` (our cache)."""


def find(binary: str, version: str, observer: Observer) -> OpenCode:
    """Return the profile's OpenCode, the one on PATH, or our own, installed from npm when it is not there.

    `version` is the one that must run; empty: any. Raises UserError.
    """
    if binary:
        try:
            found = probe(Path(shutil.which(binary) or binary).expanduser(), "agent.binary")
        except UserError as error:
            raise UserError(f"agent.binary: {error}") from None
        if version not in ("", found.version):
            raise UserError(f"agent.version: {found.binary} is OpenCode {found.version}, not {version}")
        return found
    on_path = shutil.which(PROGRAM)
    if on_path:
        try:
            found = probe(Path(on_path), "PATH")
        except UserError as error:
            observer(Event(None, None, f"passing over the opencode on PATH: {error}"))
        else:
            if version in ("", found.version):
                return found
            observer(Event(None, None, f"passing over the opencode on PATH: it is {found.version}, not {version}"))
    return ensure(cache_dir(), version or TRIED, observer)


def probe(path: Path, source: str) -> OpenCode:
    """Ask an OpenCode for its version, once per state of its file, and hash it. Raises UserError."""
    if not path.is_file():
        raise UserError(f"no such file: {path}")
    program = _program(path.resolve())
    if not os.access(program, os.X_OK):
        raise UserError(f"not executable: {program}")
    return _probe(program, source, _stamp(program))


@functools.lru_cache(maxsize=16)
def _probe(program: Path, source: str, _stamp: tuple[int, ...]) -> OpenCode:
    with tempfile.TemporaryDirectory(prefix="agent-ab-opencode-") as home:
        try:
            done = process.run(
                [str(program), "--version"], env={"PATH": "/usr/bin:/bin", "HOME": home}, timeout_s=PROBE_S
            )
        except OSError as error:
            raise UserError(f"{program} cannot be started: {error.strerror}") from None
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.exit_code != 0 or not _VERSION.fullmatch(said):
        last = (done.stderr.decode("utf-8", "replace").strip() or said).splitlines()[-1:]
        raise UserError(f"{program} --version does not answer as OpenCode does: {last[0][:200] if last else 'silence'}")
    return OpenCode(program, said, _sha256(program), source)


def _program(path: Path) -> Path:
    """Return the program itself when `path` is npm's start script, which needs Node and its neighbours."""
    with path.open("rb") as file:
        first = file.readline(200)
    if not (first.startswith(b"#!") and b"node" in first):
        return path
    for folder in path.parents:
        for package in _packages():
            program = folder / "node_modules" / package / "bin" / PROGRAM
            if program.is_file():
                return program
    raise UserError(f"{path} is npm's start script, without the program beside it; name the program in agent.binary")


def _packages() -> tuple[str, ...]:
    """Return the npm packages whose program runs here, the best first. Raises UserError."""
    name = _PLATFORMS.get((platform.system(), platform.machine()))
    if name is None:
        raise UserError(f"OpenCode has no program for {platform.system()} on {platform.machine()}")
    plain, baseline = f"opencode-{name}", f"opencode-{name}-baseline"
    if name == "linux-x64":
        return (plain, baseline) if "avx2" in cpu_features() else (baseline,)
    return (plain,)


def ensure(cache: Path, version: str, observer: Observer) -> OpenCode:
    """Return OpenCode `version` from `cache`, installed from npm first when it is not there, whole. Raises UserError."""
    package = _packages()[0]
    folder = cache / "agents" / f"opencode-{version}-{package.removeprefix('opencode-')}"
    try:
        found = _installed(folder)
        if found is None:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder.with_name(f"{folder.name}.lock"), "installs OpenCode", observer):
                found = _installed(folder) or _install(folder, package, version, observer)
    except OSError as error:
        problem = error.strerror or str(error)
        raise UserError(f"cannot keep OpenCode in {cache}: {problem}; AGENT_AB_CACHE names another directory") from None
    return found


def _installed(folder: Path) -> OpenCode | None:
    """Return what an earlier installation left, if it is whole; the file is hashed again only when it looks touched."""
    program = folder / PROGRAM
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version, sha256 = str(manifest["version"]), str(manifest["sha256"])
        whole = manifest["stamp"] == list(_stamp(program)) or sha256 == _sha256(program)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return OpenCode(program, version, sha256, "npm") if whole else None


def _install(folder: Path, package: str, version: str, observer: Observer) -> OpenCode:
    if folder.exists():
        observer(Event(None, None, f"the OpenCode in {folder} is damaged: installing it again"))
        shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="npm-") as name:
        staging = Path(name)
        _npm(staging, f"{package}@{version}", observer)
        found = probe(staging / "node_modules" / package / "bin" / PROGRAM, "npm")
        ready = staging / "ready"
        ready.mkdir()
        found.binary.rename(ready / PROGRAM)
        stamp = _stamp(ready / PROGRAM)
        manifest = {"package": package, "version": found.version, "sha256": found.sha256, "stamp": stamp}
        (ready / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        ready.chmod(0o755)
        ready.rename(folder)
    observer(Event(None, None, f"OpenCode {found.version} is ready: {folder / PROGRAM}"))
    return OpenCode(folder / PROGRAM, found.version, found.sha256, "npm")


def _npm(folder: Path, package: str, observer: Observer) -> None:
    """Let npm, as the user has set it up, put `package` into `folder`. Raises UserError with npm's last lines."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(
            f"installing OpenCode needs npm, not found on PATH: apt install npm (or name an existing opencode in"
            f" agent.binary; this adapter was tried with {TRIED})"
        )
    message, begin = f"installing {package} with npm (60 MB, once)", time.monotonic()
    said = 0.0
    observer(Event(None, None, message))

    def tick(elapsed_s: float) -> None:
        nonlocal said
        if elapsed_s > said + SAY_EVERY_S:
            said = elapsed_s
            observer(Event(None, None, message, elapsed_s=time.monotonic() - begin))

    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier"]
    done = process.run(
        [npm, "install", "--prefix", str(folder), *options, "--loglevel", "error", package],
        env=os.environ,
        cwd=folder,
        timeout_s=INSTALL_S,
        tick=tick,
    )
    if done.timed_out:
        raise UserError(f"npm did not install {package} within {INSTALL_S / 60:.0f} minutes")
    if done.exit_code != 0:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        last = " | ".join(line.strip()[:200] for line in lines[-3:]) or f"exit status {done.exit_code}"
        raise UserError(f"npm could not install {package}: {last}")


def _sha256(path: Path) -> str:
    """Return the sha256 of a file, taken once per state of it."""
    return _sha256_of(path, _stamp(path))


@functools.lru_cache(maxsize=16)
def _sha256_of(path: Path, _stamp: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
