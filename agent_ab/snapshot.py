"""What an attempt left: a read-only copy of the regular files, the patch, and how to get rid of the rest.

Everything below a workspace is written by code that we do not trust. Names are looked at with `lstat` before they are
opened, opened relative to their directory and never through a link; the workspace's own `.git` is not looked at.
"""

import hashlib
import os
import stat
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path, PurePosixPath

from agent_ab.model import FileDigest, Patch, Task
from agent_ab.workspace import EPOCH, Checkout, PlacedFile, blob_id, diff_trees, pack_tree

MAX_FILES = 20_000
MAX_ENTRIES = 100_000
"""Names looked at, whatever they are."""
MAX_FILE_BYTES = 32_000_000
MAX_TOTAL_BYTES = 256_000_000
MAX_DEPTH = 64
MAX_PATH_BYTES = 1024
MAX_PATCH_BYTES = 8_000_000
SHOWN = 5
"""Examples per kind of thing left out; the rest is a count."""

_LINK = 0o120000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The frozen workspace."""

    files: tuple[FileDigest, ...]
    """In the order of their paths; a link inside the workspace has mode 0o120000 and its target as content."""
    blobs: tuple[bytes, ...]
    """git's ids of the files' contents, in the same order."""
    flags: tuple[str, ...]
    """What was left out, in words."""


def freeze(workspace: Path, target: Path, archive: Path) -> Snapshot:
    """Copy what `workspace` holds into the new directory `target`, read-only, and into the tar file `archive`.

    Kept are regular files and links that stay inside. Left out: compiled files, every `.git`, and, flagged, links out,
    devices, FIFOs, sockets, and what exceeds the caps. The same workspace gives the same bytes of `archive`. Each file is
    read once.
    """
    target.mkdir(mode=0o755)
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as tar:
        collector = _Collector(target, tar)
        root = _open_anyway(workspace, None, directory=True)
        if root is None:
            collector.flag("the workspace", "is no directory any more")
        else:
            try:
                collector.directory(root, "", 0)
            finally:
                os.close(root)
        collector.links_inside()
    collector.lock_directories()
    kept = sorted(collector.kept, key=lambda one: os.fsencode(one[0].path))
    return Snapshot(tuple(file for file, _ in kept), tuple(blob for _, blob in kept), collector.flags())


class _Collector:
    """Walks an untrusted tree and copies what may be kept. Paths are relative; odd bytes are surrogate escapes."""

    def __init__(self, target: Path, tar: tarfile.TarFile) -> None:
        self._target, self._tar = target, tar
        self._left_out: dict[str, list[str]] = defaultdict(list)
        self._links: list[tuple[str, str]] = []
        self._directories = {"."}
        self._seen = 0
        self._bytes = 0
        self.kept: list[tuple[FileDigest, bytes]] = []
        """Files with git's ids of their contents."""

    def flag(self, name: str, why: str) -> None:
        self._left_out[why].append(_printable(name))

    def flags(self) -> tuple[str, ...]:
        lines = []
        for why, names in self._left_out.items():
            lines += [f"{name} {why}" for name in names[:SHOWN]]
            if len(names) > SHOWN:
                lines.append(f"{len(names) - SHOWN} more {why}")
        return tuple(lines)

    def directory(self, fd: int, path: str, depth: int) -> None:
        inner: list[tuple[str, str]] = []
        for name in sorted(os.listdir(fd), key=os.fsencode):
            where = f"{path}/{name}" if path else name
            if name == "__pycache__" or name.endswith(".pyc") or where == ".git":
                continue
            self._seen += 1
            if self._seen > MAX_ENTRIES:
                self.flag(where, f"and what follows: left out, more than {MAX_ENTRIES} names")
                return
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if name.lower() == ".git":
                self.flag(where, "left out: git's own data inside the workspace")
            elif len(os.fsencode(where)) > MAX_PATH_BYTES:
                self.flag(where, f"left out: its path is longer than {MAX_PATH_BYTES} bytes")
            elif stat.S_ISDIR(mode):
                inner.append((name, where))
            elif stat.S_ISLNK(mode):
                self._links.append((where, os.readlink(name, dir_fd=fd)))
            elif stat.S_ISREG(mode):
                self._file(fd, name, where)
            else:
                self.flag(where, f"left out: {_kind(mode)}")
        # After the files, so that no directory can crowd them out.
        for name, where in inner:
            self._subdirectory(fd, name, where, depth + 1)

    def _subdirectory(self, parent: int, name: str, where: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self.flag(where, f"left out: more than {MAX_DEPTH} directories deep")
            return
        fd = _open_anyway(name, parent, directory=True)
        if fd is None:
            self.flag(where, "left out: it cannot be read")
            return
        try:
            (self._target / where).mkdir(mode=0o755)
            self._directories.add(where)
            self.directory(fd, where, depth)
        finally:
            os.close(fd)

    def _file(self, parent: int, name: str, where: str) -> None:
        if len(self.kept) >= MAX_FILES:
            self.flag(where, f"left out: more than {MAX_FILES} files")
            return
        fd = _open_anyway(name, parent, directory=False)
        if fd is None:
            self.flag(where, "left out: it cannot be read")
            return
        with os.fdopen(fd, "rb") as source:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                self.flag(where, f"left out: {_kind(seen.st_mode)}")
                return
            if seen.st_size > MAX_FILE_BYTES or self._bytes + seen.st_size > MAX_TOTAL_BYTES:
                self.flag(where, f"left out: more than {MAX_FILE_BYTES} bytes, or {MAX_TOTAL_BYTES} in all")
                return
            data = source.read(MAX_FILE_BYTES)
        self._bytes += len(data)
        mode = 0o755 if seen.st_mode & 0o100 else 0o644
        with (self._target / where).open("xb") as sink:
            sink.write(data)
            sink.flush()
            os.fchmod(sink.fileno(), mode & 0o555)
            os.utime(sink.fileno(), (EPOCH, EPOCH))
        self._keep(where, data, mode)

    def _keep(self, where: str, data: bytes, mode: int) -> None:
        info = tarfile.TarInfo(where)
        info.mtime = EPOCH
        if mode == _LINK:
            info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, os.fsdecode(data)
            self._tar.addfile(info)
        else:
            info.mode, info.size = mode, len(data)
            self._tar.addfile(info, BytesIO(data))
        digest = FileDigest(where, hashlib.sha256(data).hexdigest(), len(data), mode)
        self.kept.append((digest, blob_id(data)))

    def links_inside(self) -> None:
        """Keep the links that lead, without another link on the way, to something that was kept."""
        kept = {file.path for file, _ in self.kept} | self._directories
        for where, to in self._links:
            end = os.path.normpath(f"{PurePosixPath(where).parent}/{to}")
            if to.startswith("/") or end not in kept:
                self.flag(where, "left out: a link that leads out of the workspace or nowhere")
                continue
            (self._target / where).symlink_to(to)
            os.utime(self._target / where, (EPOCH, EPOCH), follow_symlinks=False)
            self._keep(where, os.fsencode(to), _LINK)
            self.flag(where, f"is a link to {_printable(to)}")

    def lock_directories(self) -> None:
        """Pin the directories' times and make them read-only, when nothing more is written into them."""
        for name in self._directories:
            os.utime(self._target / name, (EPOCH, EPOCH))
            (self._target / name).chmod(0o555)


def _open_anyway(name: str | Path, parent: int | None, *, directory: bool) -> int | None:
    """Open without following a link; what its owner may not read is made readable first. None when that fails."""
    flags = _OPEN | (os.O_DIRECTORY if directory else 0)
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        pass
    except OSError:
        return None
    try:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISLNK(mode):
            # chmod cannot be told not to follow a link; the handle's name in /proc leads to this very file.
            Path(f"/proc/self/fd/{handle}").chmod(0o700 if directory else 0o600 | mode & 0o100)
        return os.open(name, flags, dir_fd=parent)
    except OSError:
        return None
    finally:
        os.close(handle)


def diff(task: Task, trusted_git: Path, checkout: Checkout, snapshot_dir: Path, taken: Snapshot) -> Patch:
    """Return what differs between the fixture and the snapshot in `snapshot_dir`, as `git apply` takes it.

    The snapshot is written into our own repository and compared there, so that neither the workspace's repository nor
    any ignore or attribute file has a say. Raises ApparatusError when git fails.
    """
    kept = zip(taken.files, taken.blobs, strict=True)
    tree = pack_tree(
        trusted_git, (PlacedFile(os.fsencode(f.path), _git_mode(f), blob) for f, blob in kept), snapshot_dir
    )
    found = {file.path: (_git_mode(file), file.sha256) for file in taken.files}
    start = {file.path: (0o100000 | file.mode, file.sha256) for file in checkout.manifest}
    changed = sorted(path for path in start | found if start.get(path) != found.get(path))
    flags = []
    done = diff_trees(trusted_git, ("--binary", checkout.commit, tree), MAX_PATCH_BYTES)
    text = _utf8(done.stdout)
    if text is None and not done.truncated:
        attributes = trusted_git / "info" / "attributes"
        attributes.write_text("* -text -filter -ident -working-tree-encoding -diff\n")
        done = diff_trees(trusted_git, ("--binary", checkout.commit, tree), MAX_PATCH_BYTES)
        text = _utf8(done.stdout)
        flags.append("a changed file is not UTF-8; the patch is in git's binary form")
    if done.truncated:
        flags.append(f"the patch was cut at {MAX_PATCH_BYTES} bytes; the snapshot has everything")
    return Patch(
        text=done.stdout.decode("utf-8", "replace") if text is None else text,
        files=tuple(_printable(path) for path in changed),
        edited_production=any(fnmatchcase(path, glob) for path in changed for glob in task.production),
        flags=tuple(flags),
    )


def _git_mode(file: FileDigest) -> int:
    return file.mode if file.mode == _LINK else 0o100000 | file.mode


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def remove(path: Path) -> None:
    """Delete a tree, however deep, long-named or locked its parts are; nothing there is fine.

    Goes down and up by one open directory, so that neither paths nor the stack nor the number of open files grow.
    """
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
    except FileNotFoundError:
        return
    path.chmod(0o700)
    here = os.open(path, _OPEN | os.O_DIRECTORY)
    try:
        way: list[str] = []
        left = [_empty_but_directories(here)]
        while left[-1] or way:
            if left[-1]:
                name = left[-1].pop()
                # Known to be a directory, and nobody else is at work here any more.
                os.chmod(name, 0o700, dir_fd=here)
                here = _step(here, name)
                way.append(name)
                left.append(_empty_but_directories(here))
            else:
                here = _step(here, "..")
                left.pop()
                os.rmdir(way.pop(), dir_fd=here)
    finally:
        os.close(here)
    path.rmdir()


def _step(here: int, name: str) -> int:
    there = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=here)
    os.close(here)
    return there


def _empty_but_directories(here: int) -> list[str]:
    directories = []
    for name in os.listdir(here):
        if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            directories.append(name)
        else:
            os.unlink(name, dir_fd=here)
    return directories


def _kind(mode: int) -> str:
    names = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return names.get(stat.S_IFMT(mode), "not a regular file")


def _printable(name: str) -> str:
    """Return a name as text that any encoding can hold, on one line, shortened."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return text if len(text) <= 200 else f"{text[:150]}...({len(text)} characters)"
