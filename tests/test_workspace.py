import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab import workspace
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Task
from agent_ab.workspace import EPOCH, Checkout, GitFile
from tests.small_task import small_task


def recorded(task: Task, scratch: Path) -> Task:
    """Return `task` with the fixture's values that a checkout names."""
    with pytest.raises(UserError) as caught:
        workspace.checkout(task, scratch / "w", scratch / "t.git")
    words = str(caught.value).split('"')
    return replace(task, fixture_commit=words[1], fixture_manifest=words[3])


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "first").mkdir()
    return recorded(small_task(tmp_path / "tasks"), tmp_path / "first")


def checkout(task: Task, scratch: Path) -> Checkout:
    scratch.mkdir()
    return workspace.checkout(task, scratch / "w", scratch / "t.git")


def git(directory: Path, *words: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *words], cwd=directory, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def tree(root: Path) -> dict[str, tuple[int, float, bytes]]:
    return {
        path.relative_to(root).as_posix(): (
            stat.S_IMODE(path.stat().st_mode),
            path.stat().st_mtime,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


def test_the_commit_id_is_a_constant_of_the_fixture(task: Task) -> None:
    assert task.fixture_commit == "69dd32802f3529527b4696d9bdd2c0736afadcd1"


def test_git_itself_comes_to_the_same_commit_id(task: Task, tmp_path: Path) -> None:
    checkout(task, tmp_path / "s")
    own = tmp_path / "s" / "w"
    shutil.rmtree(own / ".git")
    git(own, "init", "-q", "-b", "main")
    git(own, "-c", "core.autocrlf=false", "add", "-A")
    who, when = workspace.IDENTITY.rstrip(">").split(" <"), f"@{EPOCH} +0000"
    env = {"GIT_AUTHOR_NAME": who[0], "GIT_AUTHOR_EMAIL": who[1], "GIT_AUTHOR_DATE": when}
    env |= {"GIT_COMMITTER_NAME": who[0], "GIT_COMMITTER_EMAIL": who[1], "GIT_COMMITTER_DATE": when}
    command = ["git", "commit", "-q", "-m", "Start"]
    subprocess.run(command, cwd=own, env=env | {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}, check=True)
    assert git(own, "rev-parse", "HEAD").strip() == task.fixture_commit


def test_a_fixture_that_changed_is_refused_and_both_values_are_named(task: Task, tmp_path: Path) -> None:
    (task.root / "fixture" / "app.py").write_text("def double(x):\n    return 1\n")
    with pytest.raises(UserError, match=r'task\.toml.*commit = "[0-9a-f]{40}", manifest = "[0-9a-f]{64}"'):
        checkout(task, tmp_path / "s")


def test_two_checkouts_are_equal_byte_by_byte_git_data_modes_and_times_included(task: Task, tmp_path: Path) -> None:
    checkout(task, tmp_path / "a")
    checkout(task, tmp_path / "b")
    first = tree(tmp_path / "a" / "w")
    assert first == tree(tmp_path / "b" / "w")
    assert {mtime for _, mtime, _ in first.values()} == {EPOCH}
    assert (tmp_path / "a" / "w").stat().st_mtime == EPOCH
    assert (first["app.py"][0], first["run.sh"][0], first["data"][0]) == (0o644, 0o755, 0o755)


def test_umask_and_the_users_git_have_no_say(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "templates" / "hooks").mkdir(parents=True)
    (home / "templates" / "hooks" / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (home / ".gitconfig").write_text(
        f"[core]\n\tautocrlf = true\n\tfilemode = false\n[i18n]\n\tcommitEncoding = latin1\n[init]\n\tdefaultBranch = x\n"
        f"\ttemplateDir = {home}/templates\n[user]\n\tname = somebody\n"
    )
    reference = checkout(task, tmp_path / "a")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    old = os.umask(0o077)
    try:
        assert checkout(task, tmp_path / "b") == reference
    finally:
        os.umask(old)
    assert tree(tmp_path / "a" / "w") == tree(tmp_path / "b" / "w")


def test_an_attribute_file_in_the_fixture_converts_nothing(tmp_path: Path) -> None:
    task = small_task(tmp_path / "tasks")
    (task.root / "fixture" / ".gitattributes").write_text("* text eol=crlf ident filter=x\n")
    (task.root / "fixture" / "app.py").write_text("# $Id$\r\n")
    (tmp_path / "first").mkdir()
    task = recorded(task, tmp_path / "first")
    checkout(task, tmp_path / "s")
    blob = git(tmp_path / "s" / "w", "cat-file", "blob", "HEAD:app.py")
    assert blob == "# $Id$\n" or blob == "# $Id$\r\n"
    assert (tmp_path / "s" / "w" / "app.py").read_bytes() == b"# $Id$\r\n"


def test_the_workspace_has_one_commit_and_no_trace_of_another(task: Task, tmp_path: Path) -> None:
    start = checkout(task, tmp_path / "s")
    own = tmp_path / "s" / "w"
    assert git(own, "rev-list", "--all") == start.commit + "\n" == task.fixture_commit + "\n"
    assert git(own, "status", "--porcelain") == ""
    assert git(own, "branch", "--show-current") == "main\n"
    assert git(own, "tag") == git(own, "remote") == git(own, "reflog") == git(own, "stash", "list") == ""
    assert not (own / ".git" / "hooks").exists()
    assert git(own, "fsck", "--unreachable", "--no-reflogs") == ""
    objects = git(own, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").split("\n")
    texts = [git(own, "cat-file", "blob", line.split()[1]) for line in objects if line.startswith("blob")]
    assert not any("x + x" in text for text in texts)


def test_the_agent_can_use_git_in_the_workspace(task: Task, tmp_path: Path) -> None:
    checkout(task, tmp_path / "s")
    own = tmp_path / "s" / "w"
    (own / "app.py").write_text("def double(x):\n    return x + x\n")
    assert "return x + x" in git(own, "diff")
    git(own, "commit", "-q", "-am", "work")
    assert git(own, "log", "--format=%an") == "agent\nagent-ab\n"


def test_the_trusted_repository_is_whole_and_untouched_by_the_agents_commits(task: Task, tmp_path: Path) -> None:
    start = checkout(task, tmp_path / "s")
    own = tmp_path / "s" / "w"
    (own / "app.py").write_text("x = 1\n")
    git(own, "commit", "-q", "-am", "work")
    assert git(tmp_path / "s", "--git-dir=t.git", "rev-list", "--all") == start.commit + "\n"
    git(tmp_path / "s", "--git-dir=t.git", "fsck", "--strict")


def test_compiled_files_and_git_data_of_the_fixture_are_left_behind(task: Task, tmp_path: Path) -> None:
    for name in ("__pycache__/app.pyc", ".git/config"):
        path = task.root / "fixture" / name
        path.parent.mkdir()
        path.write_bytes(b"x")
    assert checkout(task, tmp_path / "s").commit == task.fixture_commit


def test_the_reference_and_a_mutant_are_laid_over_the_fixture(task: Task, tmp_path: Path) -> None:
    mutant = tmp_path / "number.patch"
    mutant.write_text(
        "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n def double(x):\n-    return x + x\n+    return x\n"
    )
    workspace.lay(task, tmp_path / "start")
    workspace.lay(task, tmp_path / "solved", solved=True)
    workspace.lay(task, tmp_path / "mutant", mutant=mutant)
    last_lines = [
        (tmp_path / name / "app.py").read_text().split("return ")[1] for name in ("start", "solved", "mutant")
    ]
    assert last_lines == ["0\n", "x + x\n", "x\n"]
    assert (tmp_path / "mutant" / "data" / "lines.txt").read_bytes() == b"one\r\ntwo"


def test_a_mutant_that_does_not_apply_is_refused(task: Task, tmp_path: Path) -> None:
    mutant = tmp_path / "number.patch"
    mutant.write_text("--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-nothing like it\n+x\n")
    with pytest.raises(UserError, match=r"number\.patch: does not apply"):
        workspace.lay(task, tmp_path / "mutant", mutant=mutant)


def test_trees_are_sorted_as_git_sorts_them(tmp_path: Path) -> None:
    names = [b"a", b"a.b", b"a/b", b"a0", b"ab/c", b"ab-c"]
    files = [GitFile(name, 0o100644, name) for name in names if name != b"a"]
    workspace.create_repository(tmp_path / "t.git", files)
    git(tmp_path, "--git-dir=t.git", "fsck", "--strict")
    assert len(git(tmp_path, "--git-dir=t.git", "ls-tree", "-r", "main").splitlines()) == len(files)


def test_a_git_that_fails_is_broken_apparatus(tmp_path: Path) -> None:
    commit = workspace.create_repository(tmp_path / "t.git", [])
    with pytest.raises(ApparatusError, match="git diff failed"):
        workspace.diff_trees(tmp_path / "t.git", (commit, "f" * 40), 1000)
