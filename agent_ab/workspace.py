"""Fixture -> clean workspace, the same bytes, modes, times and commit id on every machine.

Objects are written by GitPython's own object store (gitdb), not by `git add` and `git commit`: no configuration,
template, hook, attribute or git version has a say in what a commit id comes to.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

# Without a git program, GitPython's import fails with a page of advice; `require_git` says it in a line.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

from git.index.fun import write_cache
from git.index.typ import BaseIndexEntry, IndexEntry
from gitdb import IStream, LooseObjectDB, OStream
from gitdb.pack import PackEntity

from agent_ab import process, tasks
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import FileDigest, Task

EPOCH = 1704067200
"""2024-01-01 UTC: the time of the commit and of every file and directory of a workspace."""
IDENTITY = "agent-ab <agent-ab@localhost>"
GIT_TIMEOUT_S = 120.0
GIT_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}
"""The whole environment of the git that we call ourselves."""

_CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = {bare}
\tlogallrefupdates = false
"""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A workspace as it was just before the agent started."""

    commit: str
    manifest: tuple[FileDigest, ...]
    manifest_sha256: str


@dataclass(frozen=True, slots=True)
class GitFile:
    """A file on its way into the object store."""

    path: bytes
    """Relative, POSIX."""
    mode: int
    """As in a git tree: 0o100644, 0o100755, 0o120000."""
    data: bytes


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file or link on the disk, on its way into a pack."""

    path: bytes
    """Relative, POSIX."""
    mode: int
    """As in a git tree."""
    blob: bytes
    """git's id of its content; of a link of its target."""


_Node: TypeAlias = "tuple[int, bytes] | dict[bytes, _Node]"
"""In a tree that is being built: a file's mode and blob, or a directory."""


def checkout(task: Task, target: Path, trusted_git: Path) -> Checkout:
    """Build the task's workspace in `target` (with its own `.git`), and our own repository in `trusted_git`.

    Neither may exist. Raises UserError when the fixture is not what task.toml says, naming the values found.
    """
    lay(task, target)
    manifest = manifest_of(target)
    found = manifest_sha256(manifest)
    commit = create_repository(trusted_git, _git_files(target, manifest))
    if (commit, found) != (task.fixture_commit, task.fixture_manifest):
        raise UserError(
            f"{task.root / 'task.toml'}: the fixture is not the recorded one; it comes to "
            f'commit = "{commit}", manifest = "{found}" under [fixture]'
        )
    _give_own_git(trusted_git, target, manifest)
    pin_times(target)
    return Checkout(commit, manifest, found)


def require_git() -> None:
    """Raise UserError when there is no git program."""
    if shutil.which("git") is None:
        raise UserError("git is missing: apt install git")


def lay(task: Task, target: Path, *, solved: bool = False, mutant: Path | None = None) -> None:
    """Write the task's files into the new directory `target`: the fixture, the reference over it, a mutant over both.

    Modes are 644 or 755 whatever the umask. Raises UserError when `mutant` does not apply.
    """
    _directory(target)
    for layer in ("fixture", "solution") if solved or mutant else ("fixture",):
        source = task.root / layer
        for path in tasks.files(source):
            place = target / path.relative_to(source)
            for parent in reversed(place.relative_to(target).parents[:-1]):
                _directory(target / parent)
            shutil.copyfile(path, place)
            place.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    if mutant:
        # A ceiling, so that a repository around `target` does not take part.
        env = GIT_ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(target.resolve().parent)}
        argv = ["git", "apply", "--whitespace=nowarn", str(mutant.resolve())]
        done = process.run(argv, env=env, timeout_s=GIT_TIMEOUT_S, cwd=target)
        if done.exit_code:
            raise UserError(f"{mutant}: does not apply: {done.stderr.decode(errors='replace').strip()}")
    pin_times(target)


def manifest_of(root: Path) -> tuple[FileDigest, ...]:
    """Return the digest of every file below `root`, a directory that we wrote, in the order of their paths."""
    return tuple(
        FileDigest(
            path=path.relative_to(root).as_posix(),
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            size=path.stat().st_size,
            mode=0o755 if path.stat().st_mode & 0o100 else 0o644,
        )
        for path in tasks.files(root)
    )


def manifest_sha256(manifest: Iterable[FileDigest]) -> str:
    """Return the sha256 over the lines `MODE SHA256 PATH` of a manifest."""
    lines = [f"{file.mode:o} {file.sha256} {file.path}\n" for file in manifest]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def pin_times(root: Path) -> None:
    """Give every file and directory below `root`, a tree that we wrote, and `root` itself the same time."""
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            os.utime(Path(directory) / name, (EPOCH, EPOCH), follow_symlinks=False)
        os.utime(directory, (EPOCH, EPOCH))


def create_repository(git_dir: Path, files: Iterable[GitFile]) -> str:
    """Create a repository whose branch `main` has one commit with `files`. Returns the commit id."""
    for name in ("", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"):
        _directory(git_dir / name)
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    (git_dir / "config").write_text(_CONFIG.format(bare="true"))
    # Outranks a .gitattributes of the tree: nothing is filtered, converted or hidden when we compare.
    (git_dir / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding !diff !eol !merge\n")
    tree = store_tree(git_dir, files)
    stamp = f"{IDENTITY} {EPOCH} +0000"
    text = f"tree {tree}\nauthor {stamp}\ncommitter {stamp}\n\nStart\n"
    commit = _store(LooseObjectDB(git_dir / "objects"), b"commit", text.encode()).hex()
    (git_dir / "refs" / "heads" / "main").write_text(commit + "\n")
    return commit


def store_tree(git_dir: Path, files: Iterable[GitFile]) -> str:
    """Write `files` and their directories into the object store of a repository. Returns the root tree's id."""
    objects = LooseObjectDB(git_dir / "objects")
    stored = (PlacedFile(file.path, file.mode, _store(objects, b"blob", file.data)) for file in files)
    return _tree(stored, lambda data: _store(objects, b"tree", data)).hex()


def pack_tree(git_dir: Path, files: Iterable[PlacedFile], root: Path) -> str:
    """Write `files` below `root` and their directories into one pack of a repository. Returns the root tree's id.

    A pack, for a file in the object store for each of ten thousand files takes longer than all the rest. What the
    repository has is not written again.
    """
    known = LooseObjectDB(git_dir / "objects")
    blobs: dict[bytes, PlacedFile] = {}
    trees: dict[bytes, bytes] = {}

    def placed() -> Iterator[PlacedFile]:
        for file in files:
            if file.blob not in blobs and not known.has_object(file.blob):
                blobs[file.blob] = file
            yield file

    def kept(data: bytes) -> bytes:
        tree = _object_id(b"tree", data)
        trees[tree] = data
        return tree

    def objects() -> Iterator[OStream]:
        for tree, data in trees.items():
            yield OStream(tree, b"tree", len(data), BytesIO(data))
        for blob, file in blobs.items():
            path = root / os.fsdecode(file.path)
            data = os.fsencode(path.readlink()) if stat.S_ISLNK(file.mode) else path.read_bytes()
            yield OStream(blob, b"blob", len(data), BytesIO(data))

    tree = _tree(placed(), kept)
    PackEntity.create(objects(), str(git_dir / "objects" / "pack"), len(trees) + len(blobs))
    return tree.hex()


def blob_id(data: bytes) -> bytes:
    """Return git's id of a file's content."""
    return _object_id(b"blob", data)


def _object_id(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data, usedforsecurity=False).digest()


def _tree(files: Iterable[PlacedFile], store: Callable[[bytes], bytes]) -> bytes:
    """Return the id of the tree of `files`, whose directories are given to `store`."""
    root: dict[bytes, _Node] = {}
    for file in files:
        *parents, name = file.path.split(b"/")
        place = root
        for parent in parents:
            inner = place.setdefault(parent, {})
            assert isinstance(inner, dict)
            place = inner
        place[name] = (file.mode, file.blob)
    return _store_directory(store, root)


def _store_directory(store: Callable[[bytes], bytes], names: "dict[bytes, _Node]") -> bytes:
    entries: list[tuple[bytes, bytes]] = []
    for name, node in names.items():
        if isinstance(node, dict):
            # git sorts a directory as if its name ended in a slash.
            entries.append((name + b"/", b"40000 " + name + b"\0" + _store_directory(store, node)))
        else:
            entries.append((name, b"%o %s\0%s" % (node[0], name, node[1])))
    return store(b"".join(entry for _, entry in sorted(entries)))


def _store(objects: LooseObjectDB, kind: bytes, data: bytes) -> bytes:
    stored = objects.store(IStream(kind, len(data), BytesIO(data)))
    return bytes(stored.binsha)


def diff_trees(git_dir: Path, options: tuple[str, ...], cap_bytes: int) -> process.Completed:
    """Run `git diff` in our own repository, without a work tree and whatever would let content decide.

    Raises ApparatusError when git fails.
    """
    argv = ["git", f"--git-dir={git_dir}", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"]
    argv += ["-c", f"core.attributesFile={os.devnull}", "-c", "core.quotePath=true", "-c", "diff.renames=false"]
    argv += ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--no-renames", *options]
    done = process.run(argv, env=GIT_ENVIRONMENT, timeout_s=GIT_TIMEOUT_S, cwd=git_dir, cap_bytes=cap_bytes)
    if done.exit_code or done.timed_out:
        raise ApparatusError("snapshot", f"git diff failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done


def _give_own_git(trusted_git: Path, target: Path, manifest: Iterable[FileDigest]) -> None:
    own = target / ".git"
    _directory(own)
    for source, directories, names in os.walk(trusted_git):
        for name in directories:
            _directory(own / (Path(source) / name).relative_to(trusted_git))
        for name in names:
            place = own / (Path(source) / name).relative_to(trusted_git)
            shutil.copyfile(Path(source) / name, place)
            place.chmod(0o444 if place.parent.parent.name == "objects" else 0o644)
    (own / "info" / "attributes").unlink()
    (own / "config").write_text(_CONFIG.format(bare="false") + "[user]\n\tname = agent\n\temail = agent@localhost\n")
    entries = []
    for file in manifest:
        data = (target / file.path).read_bytes()
        entries.append(IndexEntry.from_base(BaseIndexEntry((0o100000 | file.mode, blob_id(data), 0, file.path))))
    with (own / "index").open("wb") as index:
        write_cache(sorted(entries, key=lambda e: os.fsencode(e.path)), index)
    (own / "index").chmod(0o644)


def _git_files(root: Path, manifest: Iterable[FileDigest]) -> list[GitFile]:
    return [GitFile(os.fsencode(f.path), 0o100000 | f.mode, (root / f.path).read_bytes()) for f in manifest]


def _directory(path: Path) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(0o755)
