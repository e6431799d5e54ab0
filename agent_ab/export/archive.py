"""Archives that come from elsewhere: written so that equal contents give equal bytes, unpacked so that nothing escapes.

An archive is a zip file of regular files, each compressed by itself, so that damage is told by the file it hit. Its last
bytes are a seal, the sha256 of everything before: it finds the changed byte that no file's digest covers (a header, a
padding bit). The seal proves nothing against someone who writes it anew; the digests of the contents do (docs/bundles.md).
"""

import hashlib
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, NoReturn

from agent_ab.errors import ApparatusError

STEP = "archive"
CHUNK = 1 << 20
NAME_BYTES = 1024
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip file can name."""
_SEAL = b"sha256:"
_SEAL_BYTES = len(_SEAL) + 64
_REGULAR = stat.S_IFREG | 0o644
_LOCAL_HEADER = 30
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f\\:]")
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
    OverflowError,
)
"""What zipfile raises over bytes that are not a zip file of ours."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an archive may unpack to."""

    files: int = 200_000
    file_bytes: int = 2 << 30
    total_bytes: int = 16 << 30


@dataclass(frozen=True, slots=True)
class Member:
    """One file to be archived."""

    name: str
    """POSIX path within the archive."""
    source: Path | bytes


def write(target: Path, members: Iterable[Member]) -> None:
    """Write `members` into the new zip file `target`, in their order: equal members give equal bytes. Raises OSError."""
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for member in members:
            _check_name(member.name)
            info = zipfile.ZipInfo(member.name, _EPOCH)
            info.create_system, info.external_attr, info.compress_type = 3, _REGULAR << 16, zipfile.ZIP_DEFLATED
            if isinstance(member.source, bytes):
                archive.writestr(info, member.source)
                continue
            info.file_size = member.source.stat().st_size
            with member.source.open("rb") as source, archive.open(info, "w") as sink:
                shutil.copyfileobj(source, sink, CHUNK)
        archive.comment = _SEAL + b"0" * 64
    with target.open("r+b") as file:
        seal = _digest_but_seal(file)
        file.seek(-_SEAL_BYTES, os.SEEK_END)
        file.write(_SEAL + seal.encode())


def sealed(archive: Path) -> bool:
    """Return whether no byte of `archive` was changed since it was written, seals written anew aside."""
    with archive.open("rb") as file:
        if file.seek(0, os.SEEK_END) < _SEAL_BYTES:
            return False
        seal = _digest_but_seal(file)
        file.seek(-_SEAL_BYTES, os.SEEK_END)
        return file.read() == _SEAL + seal.encode()


def sizes(archive: Path) -> Mapping[str, int]:
    """Return what a zip file says that it holds, unjudged: names with unpacked bytes. Raises ApparatusError."""
    with _opened(archive) as opened:
        return {member.filename: member.file_size for member in opened.infolist()}


def unpack(
    archive: Path, target: Path, limits: Limits | None = None, only: Container[str] | None = None
) -> Mapping[str, str]:
    """Unpack a zip file, or of it what `only` names, below `target`; return which files could not be read, and why.

    Names, kinds and sizes of all members are judged before the first is written. Raises ApparatusError for an archive
    with `..`, absolute or doubled names, links, devices, encryption, overlaps, or more than the limits.
    """
    damaged: dict[str, str] = {}
    with _opened(archive) as opened:
        members = opened.infolist()
        _judge(archive, members, limits or Limits(), target)
        for member in members:
            if only is not None and member.filename not in only:
                continue
            path = target / member.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with opened.open(member) as source, path.open("xb") as sink:
                    _copy(source, sink, member.file_size)
            except _DAMAGE as error:
                path.unlink(missing_ok=True)
                damaged[member.filename] = "its checksum is another" if "CRC-32" in str(error) else str(error)
    return damaged


def _opened(archive: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(archive)
    except _DAMAGE as error:
        _refuse(archive, f"its directory is damaged: {error}")


def _judge(archive: Path, members: list[zipfile.ZipInfo], limits: Limits, target: Path) -> None:
    if len(members) > limits.files:
        _refuse(archive, f"it holds {len(members)} files, more than {limits.files}")
    names: set[str] = set()
    directories: set[str] = set()
    for member in members:
        fault = _fault(member, limits)
        if fault:
            _refuse(archive, f"{shown(member.orig_filename)}: {fault}")
        if member.filename in names:
            _refuse(archive, f"{shown(member.filename)}: it is there twice")
        names.add(member.filename)
        parts = member.filename.split("/")
        directories |= {"/".join(parts[:end]) for end in range(1, len(parts))}
    both = names & directories
    if both:
        _refuse(archive, f"{shown(min(both))}: a file and a directory at once")
    total = sum(member.file_size for member in members)
    if total > limits.total_bytes:
        _refuse(archive, f"it unpacks to {total} bytes, more than {limits.total_bytes}")
    free = shutil.disk_usage(target).free
    if total > free:
        _refuse(archive, f"it unpacks to {total} bytes, {free} are free")
    placed = sorted(members, key=lambda member: member.header_offset)
    for before, after in pairwise(placed):
        if before.header_offset + _LOCAL_HEADER + before.compress_size > after.header_offset:
            _refuse(archive, f"{shown(before.filename)} and {shown(after.filename)} overlap")


def _fault(member: zipfile.ZipInfo, limits: Limits) -> str:
    """Return why a member is refused, or an empty string."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if name_fault(member.orig_filename):
        return name_fault(member.orig_filename)
    if member.filename != member.orig_filename or member.is_dir():
        return "not the name of a regular file"
    if kind not in (0, stat.S_IFREG):
        return f"{_KINDS.get(kind, 'not a regular file')}, and only regular files are unpacked"
    if member.flag_bits & 0x1:
        return "encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "compressed in an unknown way"
    if member.file_size > limits.file_bytes:
        return f"unpacks to {member.file_size} bytes, more than {limits.file_bytes}"
    return ""


_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def name_fault(name: str) -> str:
    """Return why a name from outside may not become a path, or an empty string."""
    if not name or name.startswith("/"):
        return "an absolute or empty name"
    if _BAD_NAME.search(name) or len(os.fsencode(name)) > NAME_BYTES:
        return "a name with a backslash, a colon or a control character, or too long a one"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "a name with an empty, `.` or `..` part"
    return ""


def _check_name(name: str) -> None:
    fault = name_fault(name)
    if fault:
        raise ApparatusError(STEP, f"{shown(name)}: {fault}")


def _copy(source: IO[bytes], sink: IO[bytes], size: int) -> None:
    """Copy `size` bytes, and find out here when there are fewer or more than the directory says."""
    left = size
    while chunk := source.read(min(CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise ValueError("it holds more than its declared size")
        sink.write(chunk)
    if left:
        raise ValueError("it holds less than its declared size")


def _digest_but_seal(file: IO[bytes]) -> str:
    left = file.seek(0, os.SEEK_END) - _SEAL_BYTES
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0 and (chunk := file.read(min(CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def shown(name: str) -> str:
    """Return an untrusted name as it can be shown."""
    return ascii(name if len(name) <= 200 else f"{name[:197]}...")


def _refuse(archive: Path, why: str) -> NoReturn:
    raise ApparatusError(STEP, f"{archive} is refused: {why}")
