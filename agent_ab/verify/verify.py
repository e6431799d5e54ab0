"""Is a task worth its verdicts? Its starting code, its reference and every mutant go through the real checks path."""

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from agent_ab import checks, process, sandbox, snapshot, tasks, workspace
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.judging import Stopped
from agent_ab.model import Event, Observer, Task
from agent_ab.verify.rules import Evidence, Finding, Kind, Limits, PublicTests, Variant, VariantRun, judge

PUBLIC_TESTS_S = 120.0
"""Time limit of one run of the public tests."""
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class TaskVerification:
    """What was seen of one task, and every fault found."""

    task: Task
    evidence: Evidence
    findings: tuple[Finding, ...]
    repeat: int
    duration_s: float

    @property
    def ok(self) -> bool:
        """Return whether the task's verdicts can be trusted."""
        return not self.findings


def verify(
    task: Task,
    settings: Sandbox,
    *,
    repeat: int = 1,
    workers: int | None = None,
    observer: Observer,
    limits: Limits | None = None,
) -> TaskVerification:
    """Judge every variant of `task` `repeat` times, `workers` variants at a time (default: the machine's cores).

    Raises UserError for a task whose judge does not load, ApparatusError when a box cannot be started.
    """
    sandbox.require(settings.kind)
    checks.items(task)
    begin = time.monotonic()
    room = Path(tempfile.mkdtemp(prefix="agent-ab-verify-"))
    # The box's user must be able to reach what is mounted, and nobody to list it.
    room.chmod(0o711)
    try:
        changed, history = _start(task, room)
        bench = _Bench(task, settings, repeat, room)
        evidence = Evidence(
            task=task,
            runs=bench.play_all(variants(task), workers or len(os.sched_getaffinity(0)), observer),
            known_text=_known_text(task),
            fixture_paths=tuple(p.relative_to(task.root / "fixture").as_posix() for p in _files(task, "fixture")),
            fixture_changed=changed,
            history=history,
        )
    finally:
        snapshot.remove(room)
    return TaskVerification(task, evidence, judge(evidence, limits or Limits()), repeat, time.monotonic() - begin)


def variants(task: Task) -> tuple[Variant, ...]:
    """Return every state of the code that a verification judges."""
    patches = sorted((task.root / "mutants").glob("*.patch"))
    return (Variant(Kind.START), Variant(Kind.REFERENCE), *(Variant(Kind.MUTANT, patch.stem) for patch in patches))


def foreign_history(git_dir: Path, fixture: Path, solution: Path) -> tuple[str, ...]:
    """Return, a sentence each, what a workspace's repository holds beside one commit of the fixture.

    The repository must be one that we made and nobody has touched: git is run on it.
    """
    listed = _git(git_dir, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
    objects = [(kind, name) for kind, name in (line.split() for line in listed)]
    found = []
    commits = sum(kind == "commit" for kind, _ in objects)
    if commits != 1:
        found.append(f"the repository holds {commits} commits, not one")
    refs = _git(git_dir, "for-each-ref", "--format=%(refname)")
    if refs != ["refs/heads/main"]:
        found.append(f"the repository's references are {', '.join(refs) or 'none'}, not one branch main")
    if any(path.is_file() for path in (git_dir / "logs").rglob("*")):
        found.append("the repository has a reflog")
    blobs = {name for kind, name in objects if kind == "blob"}
    start = {path.relative_to(fixture): _blob(path) for path in tasks.files(fixture)}
    if blobs - set(start.values()):
        found.append(f"the repository holds {len(blobs - set(start.values()))} files that are not the fixture's")
    for path in tasks.files(solution):
        name, blob = path.relative_to(solution), _blob(path)
        if blob in blobs and start.get(name) != blob:
            found.append(f"the repository holds the content of solution/{name.as_posix()}")
    return tuple(found)


def _start(task: Task, room: Path) -> tuple[str, tuple[str, ...]]:
    """Return why the fixture is not the recorded one, or what its repository holds too much."""
    target = room / "start"
    try:
        workspace.checkout(task, target, room / "start.git")
    except UserError as error:
        return str(error), ()
    return "", foreign_history(target / ".git", task.root / "fixture", task.root / "solution")


@dataclass(frozen=True, slots=True)
class _Bench:
    """What all variants of one verification share."""

    task: Task
    settings: Sandbox
    repeat: int
    room: Path

    def play_all(self, todo: tuple[Variant, ...], workers: int, observer: Observer) -> tuple[VariantRun, ...]:
        """Run `todo`, `workers` at a time; whatever ends it early ends them all."""
        begin = time.monotonic()
        stop = threading.Event()
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._play, variant, self.room / str(n), stop) for n, variant in enumerate(todo)]
            pending: set[Future[VariantRun]] = set(futures)
            try:
                while pending:
                    done, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    message = f"{self.task.id}: {len(todo) - len(pending)} of {len(todo)} variants judged"
                    observer(Event(None, None, message, elapsed_s=time.monotonic() - begin))
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
        return tuple(future.result() for future in futures)

    def _play(self, variant: Variant, room: Path, stop: threading.Event) -> VariantRun:
        def tick(_elapsed_s: float) -> None:
            if stop.is_set():
                raise Stopped

        tick(0.0)
        begin = time.monotonic()
        room.mkdir(mode=0o711)
        try:
            frozen = room / "snapshot"
            broken = self._build(variant, room / "workspace", frozen)
            if broken:
                return VariantRun(variant, (), None, broken)
            judged = [checks.run(self.task, frozen, self.settings, workers=1, tick=tick) for _ in range(self.repeat)]
            tests = self._public_tests(room / "workspace", tick)
        finally:
            snapshot.remove(room)
        return VariantRun(variant, tuple(judged), tests, duration_s=time.monotonic() - begin)

    def _build(self, variant: Variant, tree: Path, frozen: Path) -> str:
        """Write the variant's files and freeze them. Returns why a mutant cannot be built."""
        patch = self.task.root / "mutants" / f"{variant.mutant}.patch" if variant.kind is Kind.MUTANT else None
        try:
            workspace.lay(self.task, tree, solved=variant.kind is Kind.REFERENCE, mutant=patch)
        except UserError as error:
            return str(error)
        snapshot.freeze(tree, frozen, frozen.with_suffix(".tar"))
        return ""

    def _public_tests(self, tree: Path, tick: Callable[[float], None]) -> PublicTests:
        box = sandbox.Box(self.settings, (sandbox.Mount(tree, "/workspace", writable=True),))
        box.own()
        argv = self.task.public_tests
        done = box.run(argv, cwd=tree, env={}, timeout_s=PUBLIC_TESTS_S, tick=tick)
        if done.timed_out:
            return PublicTests(False, f"not done within {PUBLIC_TESTS_S:g} s")
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        if done.exit_code == 0 and "Ran 0 tests" in said:
            return PublicTests(False, f"{' '.join(argv)} found no test")
        return PublicTests(done.exit_code == 0, _telling_line(said) or f"exit status {done.exit_code}")


def _telling_line(said: str) -> str:
    """Return the line of a test run's output that names the first failure, or its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith(("FAIL:", "ERROR:"))), lines[-1] if lines else "")[:200]


def _known_text(task: Task) -> str:
    files = [task.root / "driver.py", *_files(task, "fixture"), *_files(task, "solution")]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def _files(task: Task, layer: str) -> list[Path]:
    return tasks.files(task.root / layer)


def _blob(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest()


def _git(git_dir: Path, *arguments: str) -> list[str]:
    argv = ["git", f"--git-dir={git_dir}", *arguments]
    done = process.run(argv, env=workspace.GIT_ENVIRONMENT, timeout_s=workspace.GIT_TIMEOUT_S, cap_bytes=16_000_000)
    if done.exit_code or done.truncated:
        raise ApparatusError("workspace", f"git {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace").splitlines()
