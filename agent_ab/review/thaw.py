"""An attempt's snapshot.tar laid out again as the checks saw it, so that they can be run once more."""

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from agent_ab import snapshot
from agent_ab.errors import ApparatusError

STEP = "snapshot"


@contextmanager
def thawed(archive: Path, target: Path) -> Iterator[Path]:
    """Unpack an attempt's snapshot.tar into the new directory `target`, read-only as the checks saw it; remove it after.

    Kept are regular files and links that stay inside. Raises ApparatusError for anything else, and above the caps that
    a snapshot is taken with.
    """
    target.mkdir(mode=0o755)
    try:
        _thaw(archive, target)
        yield target
    finally:
        snapshot.remove(target)


def _thaw(archive: Path, target: Path) -> None:
    try:
        with tarfile.open(archive, "r:", encoding="utf-8", errors="surrogateescape") as tar:
            links, total = [], 0
            for count, member in enumerate(tar, start=1):
                total += member.size
                if count > snapshot.MAX_FILES + snapshot.MAX_ENTRIES or total > snapshot.MAX_TOTAL_BYTES:
                    _refuse(archive, "it holds more than a snapshot may")
                fault = _tar_name_fault(member.name)
                if fault or not (member.isreg() or member.issym()):
                    _refuse(archive, f"{member.name!a}: {fault or 'neither a regular file nor a link'}")
                if member.issym():
                    links.append(member)
                else:
                    _thaw_file(tar, member, target)
        # Last, so that no file can be written through one.
        for link in links:
            _thaw_link(archive, link, target)
    except (tarfile.TarError, OSError, ValueError) as error:
        _refuse(archive, f"it cannot be unpacked: {error}")
    for directory, _, names in os.walk(target, topdown=False):
        for name in names:
            path = Path(directory) / name
            if not path.is_symlink():
                path.chmod(0o555 if path.stat().st_mode & 0o100 else 0o444)
        Path(directory).chmod(0o555)


def _tar_name_fault(name: str) -> str:
    """Like `name_fault`, but a workspace may hold whatever names its file system takes."""
    parts = name.split("/")
    return "a name that leads out" if "\0" in name or any(part in ("", ".", "..") for part in parts) else ""


def _thaw_file(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None
    path = target / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, path.open("xb") as sink:
        shutil.copyfileobj(source, sink)
        os.fchmod(sink.fileno(), 0o755 if member.mode & 0o100 else 0o644)


def _thaw_link(archive: Path, link: tarfile.TarInfo, target: Path) -> None:
    end = os.path.normpath(f"{Path(link.name).parent}/{link.linkname}")
    if link.linkname.startswith("/") or end == ".." or end.startswith("../"):
        _refuse(archive, f"{link.name!a}: a link that leads out")
    path = target / link.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(link.linkname)


def _refuse(archive: Path, why: str) -> NoReturn:
    raise ApparatusError(STEP, f"{archive} is refused: {why}")
