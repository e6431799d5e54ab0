"""Build llama-server once into the user's cache: one build at a time, resumed when broken off, whole or not there.

<cache>/engines/
  <name>/              llama-server, its shared libraries, manifest.json; appears in one rename
  <name>.building/     sdist, source, object files: what a broken-off build left for the next one
  <name>.lock  <name>.log
"""

import errno
import hashlib
import json
import shutil
import time
from pathlib import Path

from agent_ab import process
from agent_ab.engine import build_steps
from agent_ab.engine.build_steps import TARGET, Recipe, Shop
from agent_ab.errors import UserError
from agent_ab.files import locked
from agent_ab.model import Event, Observer

MANIFEST = "manifest.json"


def ensure(cache: Path, observer: Observer) -> Path:
    """Return our own llama-server of this machine, building it first when the cache has none that is whole.

    Raises UserError: a tool is missing, the cache cannot be written, the disk is full, a step failed.
    """
    recipe = build_steps.plan()
    engines = cache / "engines"
    final = engines / recipe.name
    if whole(final):
        return final / TARGET
    try:
        engines.mkdir(parents=True, exist_ok=True)
        with locked(engines / f"{recipe.name}.lock", "builds llama-server", observer) as lock_fd:
            if not whole(final):
                _build(engines, recipe, observer, lock_fd)
    except OSError as error:
        raise UserError(_explain(error, cache)) from None
    return final / TARGET


def present(cache: Path) -> bool:
    """Return whether the cache holds a whole build that fits this machine."""
    return whole(cache / "engines" / build_steps.plan().name)


def whole(folder: Path) -> bool:
    """Return whether every file of a build is as its manifest says."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return TARGET in manifest["files"] and manifest["files"] == _digests(folder)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _build(engines: Path, recipe: Recipe, observer: Observer, lock_fd: int) -> None:
    final, root, log = (engines / f"{recipe.name}{end}" for end in ("", ".building", ".log"))
    if final.exists():
        observer(Event(None, None, f"the build in {final} is damaged: building it again"))
        shutil.rmtree(final)
    root.mkdir(exist_ok=True)
    build_steps.require_tools()
    build_steps.require_space(root, build_steps.CUDA_BUILD_BYTES if recipe.gpus else build_steps.CPU_BUILD_BYTES)
    shop = Shop(root, log, observer, time.monotonic(), lock_fd)
    shop.say(f"building llama-server once (7 minutes on 2 cores), {build_steps.kind(recipe)}; the log: {log}")
    archive = build_steps.download(shop)
    source = build_steps.unpack(shop, archive)
    results = build_steps.compile_server(shop, source, recipe)
    _install(results, root / "installing", final, recipe, archive)
    shutil.rmtree(root)
    shop.say(f"llama-server is ready: {final / TARGET}")


def _install(results: Path, staging: Path, final: Path, recipe: Recipe, archive: Path) -> None:
    """Copy the results, run them once, write the manifest, and let the directory appear in one rename."""
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    for file in (results / TARGET, *results.glob("*.so*")):
        shutil.copy2(file, staging / file.name, follow_symlinks=False)
    tried = process.run(
        [str(staging / TARGET), "--version"], env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, timeout_s=60.0
    )
    if tried.exit_code != 0:
        raise UserError(f"the llama-server just built does not run: status {tried.exit_code}, {tried.stderr[-300:]!r}")
    manifest = {
        "version": recipe.version,
        "flags": recipe.flags,
        "cpu": recipe.cpu,
        "gpus": recipe.gpus,
        "sdist_sha256": _sha256(archive),
        "files": _digests(staging),
    }
    (staging / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    staging.rename(final)


def _digests(folder: Path) -> dict[str, str]:
    """Return name -> sha256, or `-> target` for a symbolic link, of everything but the manifest."""
    return {
        file.name: f"-> {file.readlink()}" if file.is_symlink() else _sha256(file)
        for file in sorted(folder.iterdir())
        if file.name != MANIFEST
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _explain(error: OSError, cache: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {cache} is full: make room or set AGENT_AB_CACHE, then start again; the build continues"
    return f"cannot build llama-server in {cache}: {error.strerror or error}; AGENT_AB_CACHE names another directory"
