"""Task directories: found, read strictly, and identified by a digest of everything in them."""

import atexit
import hashlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from agent_ab.config import Strict, nearest
from agent_ab.errors import ApparatusError, UserError
from agent_ab.files import text_of
from agent_ab.model import Task
from agent_ab.reading import TOML_BYTES, explain, toml

NEEDED = ("task.toml", "instruction.md", "driver.py", "checks.py", "fixture", "solution")
"""What a task directory must hold; docs/writing-tasks.md says what each is."""


class _Fixture(Strict):
    commit: str = ""
    """The commit id that the fixture comes to; `checkout` names it when it is not this one."""
    manifest: str = ""
    """sha256 over the fixture's files, likewise."""


class _TaskFile(Strict):
    title: str = Field(min_length=1)
    import_path: str = "."
    production: Annotated[tuple[str, ...], Field(min_length=1)]
    public_tests: Annotated[tuple[str, ...], Field(min_length=1)]
    check_timeout_s: float = Field(10.0, gt=0, le=600)
    starting_passes: str = Field(min_length=1)
    fixture: _Fixture = _Fixture()


def names(tasks_dir: Path) -> list[str]:
    """Return the ids of the tasks in `tasks_dir`, sorted. Raises UserError when there is no such directory."""
    if not tasks_dir.is_dir():
        raise UserError(f"no tasks directory {tasks_dir}; name one with --tasks-dir")
    return sorted(path.parent.name for path in tasks_dir.glob("*/task.toml"))


def load(task_id: str, tasks_dir: Path) -> Task:
    """Read the task `task_id` of `tasks_dir`. Raises UserError naming the file and the key."""
    known = names(tasks_dir)
    if task_id not in known:
        raise UserError(f"no task {task_id!r} in {tasks_dir}{nearest(task_id, known)}")
    root = (tasks_dir / task_id).resolve()
    for name in NEEDED:
        if not (root / name).exists():
            raise UserError(f"task {task_id!r} has no {name} ({root / name})")
    file = _read(root / "task.toml")
    if Path(file.import_path).is_absolute() or ".." in Path(file.import_path).parts:
        raise UserError(f"{root / 'task.toml'}: key 'import_path': must lie inside the workspace")
    return Task(
        id=task_id,
        title=file.title,
        root=root,
        instruction=_text(root / "instruction.md"),
        fixture_commit=file.fixture.commit,
        fixture_manifest=file.fixture.manifest,
        import_path=file.import_path,
        production=file.production,
        public_tests=file.public_tests,
        check_timeout_s=file.check_timeout_s,
        starting_passes=file.starting_passes,
    )


def digest(task: Task) -> str:
    """Return the sha256 over path, executable bit and content of every file of the task, compiled files left out."""
    whole = hashlib.sha256()
    for path in files(task.root):
        name = path.relative_to(task.root).as_posix()
        bit = "x" if path.stat().st_mode & 0o100 else "-"
        whole.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()} {bit} {name}\n".encode())
    return whole.hexdigest()


def private(task: Task) -> Task:
    """Return a copy of `task` that nobody edits while a run is played; it is gone when the program ends."""
    place = Path(tempfile.mkdtemp(prefix="agent-ab-task-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    root = place / task.id
    shutil.copytree(task.root, root, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".git"))
    copy = replace(task, root=root)
    return replace(copy, sha256=digest(copy))


def require_same(task: Task) -> None:
    """Raise ApparatusError when a private copy is not as it was made; the user's own directory is his to change."""
    if task.sha256 and digest(task) != task.sha256:
        raise ApparatusError(
            "task", f"the run's copy of task {task.id!r} was changed while the run was played", task.root
        )


def files(root: Path) -> list[Path]:
    """Return the regular files below `root`, sorted by name, without git's own and compiled ones."""
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and path.suffix != ".pyc"
        and not {"__pycache__", ".git"} & set(path.relative_to(root).parts)
    )


def _read(path: Path) -> _TaskFile:
    data = toml(_text(path), str(path))
    for key in data:
        if key not in _TaskFile.model_fields:
            raise UserError(f"{path}: unknown key {key!r}{nearest(key, sorted(_TaskFile.model_fields))}")
    try:
        return _TaskFile.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error)}") from None


def _text(path: Path) -> str:
    try:
        return text_of(path, TOML_BYTES)
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text: {error}") from None
