import tomllib
from pathlib import Path

import pytest

from agent_ab import tasks, workspace
from agent_ab.errors import ApparatusError, UserError
from tests.small_task import small_task, task_directory


def test_a_task_is_loaded_from_any_directory(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    assert (task.id, task.title, task.production) == ("double", "Double", ("app.py",))
    assert task.instruction.startswith("Twice nothing")
    assert task.root == tmp_path / "double"
    assert tasks.names(tmp_path) == ["double"]


def test_an_unknown_task_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    task_directory(tmp_path)
    with pytest.raises(UserError, match=r"no task 'duoble'.*did you mean double"):
        tasks.load("duoble", tmp_path)


def test_a_path_is_not_a_task_name(tmp_path: Path) -> None:
    task_directory(tmp_path / "inner")
    with pytest.raises(UserError, match="no task"):
        tasks.load("inner/double", tmp_path)


def test_a_missing_tasks_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tasks directory .*nowhere; name one with --tasks-dir"):
        tasks.names(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["instruction.md", "driver.py", "checks.py"])
def test_a_missing_part_is_named(tmp_path: Path, name: str) -> None:
    (task_directory(tmp_path) / name).unlink()
    with pytest.raises(UserError, match=f"task 'double' has no {name}"):
        tasks.load("double", tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "Double"', "", "key 'title'"),
        ("check_timeout_s = 10.0", "check_timeout_s = -1", "key 'check_timeout_s'"),
        ("check_timeout_s", "chek_timeout_s", "unknown key 'chek_timeout_s'; did you mean check_timeout_s"),
        ("[fixture]", "[fixture", "not valid TOML"),
        ("[fixture]", "[fixture]\ntree = 1", "key 'fixture.tree'"),
        ('title = "Double"', 'title = "Double"\nimport_path = "../x"', "key 'import_path'"),
        ('title = "Double"', 'title = "Double"\nimport_path = "/x"', "key 'import_path'"),
    ],
)
def test_a_mistake_in_the_task_file_is_one_clear_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = task_directory(tmp_path) / "task.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=message) as caught:
        tasks.load("double", tmp_path)
    assert "task.toml" in str(caught.value)
    assert "\n" not in str(caught.value).replace("\n(", "(")


def test_an_instruction_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (task_directory(tmp_path) / "instruction.md").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"instruction\.md: cannot be read as UTF-8"):
        tasks.load("double", tmp_path)


def test_the_digest_sees_content_names_and_modes_but_not_compiled_files(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    seen = {tasks.digest(task)}
    (task.root / "__pycache__").mkdir()
    (task.root / "__pycache__" / "checks.pyc").write_bytes(b"x")
    assert {tasks.digest(task)} == seen
    (task.root / "fixture" / "app.py").chmod(0o755)
    seen.add(tasks.digest(task))
    (task.root / "fixture" / "app.py").write_text("# another\n")
    seen.add(tasks.digest(task))
    (task.root / "fixture" / "app.py").rename(task.root / "fixture" / "b.py")
    seen.add(tasks.digest(task))
    assert len(seen) == 4


BUILT_IN = Path(__file__).parent.parent / "tasks"


@pytest.mark.parametrize("name", ["transfer-repair"])
def test_the_scripted_conversation_comes_to_the_reference_solution(name: str, tmp_path: Path) -> None:
    task = tasks.load(name, BUILT_IN)
    workspace.lay(task, tmp_path / "played")
    workspace.lay(task, tmp_path / "solved", solved=True)
    turns = tomllib.loads((task.root / "scripts" / "solve.toml").read_text(encoding="utf-8"))["turns"]
    for call in (turn["call"] for turn in turns if "call" in turn):
        path = tmp_path / "played" / call["arguments"].get("path", "")
        if call["name"] == "write":
            source = call.get("content_from")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((task.root / source).read_text() if source else call["arguments"]["content"])
        elif call["name"] == "edit":
            text = path.read_text()
            assert text.count(call["arguments"]["old"]) == 1
            path.write_text(text.replace(call["arguments"]["old"], call["arguments"]["new"]))
    assert "call" not in turns[-1]
    assert workspace.manifest_of(tmp_path / "played") == workspace.manifest_of(tmp_path / "solved")


def test_a_runs_copy_of_a_task_does_not_see_what_is_edited_meanwhile(tmp_path: Path) -> None:
    task_directory(tmp_path)
    copy = tasks.private(tasks.load("double", tmp_path))
    assert copy.sha256 == tasks.digest(tasks.load("double", tmp_path))
    (tmp_path / "double" / "checks.py").write_text("edited")
    assert "edited" not in (copy.root / "checks.py").read_text()
    tasks.require_same(copy)


def test_a_runs_copy_of_a_task_that_was_changed_is_broken_apparatus(tmp_path: Path) -> None:
    task_directory(tmp_path)
    copy = tasks.private(tasks.load("double", tmp_path))
    (copy.root / "checks.py").write_text("edited")
    with pytest.raises(ApparatusError, match="the run's copy of task 'double' was changed"):
        tasks.require_same(copy)
