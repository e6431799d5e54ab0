"""Claims about the code base, kept true."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.markup import RE_TAGS as TAG

from agent_ab import cli

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    p for p in (ROOT / "agent_ab").rglob("*.py") if p.name != "__init__.py" and "migrations" not in p.parts
)
LINES = 400
FUNCTION_LINES = 60
# One file that can be carried into any box, and one vocabulary.
LONGER = {"agent_ab/agents/builtin_agent.py": 850, "agent_ab/model.py": 500}


def test_importing_the_package_prints_nothing_and_touches_no_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", "import agent_ab, agent_ab.cli"],
        capture_output=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


def imported_by_tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def names_of_its_test(module: Path) -> set[str]:
    """`bench/stats.py` has test_bench_stats.py; test_stats.py would do where no other module is called `stats`."""
    stems = [other.stem for other in MODULES]
    folders = module.relative_to(ROOT / "agent_ab").parts[:-1]
    alone = {f"test_{module.stem}"} if not folders or stems.count(module.stem) == 1 else set()
    return (
        alone
        | {f"test_{folder}" for folder in folders if folder == module.stem}
        | {"_".join(("test", *folders, module.stem))}
    )


def test_every_module_is_tested_by_name_by_import_or_with_its_package() -> None:
    tests, imported = {p.stem for p in (ROOT / "tests").rglob("test_*.py")}, imported_by_tests()
    packages = {"cli"} if {"test_cli", "test_command"} <= tests else set()
    untested = [
        module.relative_to(ROOT).as_posix()
        for module in MODULES
        if not names_of_its_test(module) & tests
        and ".".join(module.relative_to(ROOT).with_suffix("").parts) not in imported
        and module.parent.name not in packages
        and module.stem != "__main__"
    ]
    assert untested == []


@pytest.mark.parametrize(
    "module", [*MODULES, *sorted((ROOT / "proxy").glob("*.py"))], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_files_and_functions_stay_readable(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGER.get(module.relative_to(ROOT).as_posix(), LINES)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            # A command's options, one a line, are its signature: its work begins below.
            first = node.body[0].lineno if module.parent.name == "cli" else node.lineno
            assert (node.end_lineno or 0) - first < FUNCTION_LINES, node.name


def each_command() -> list[tuple[str, Any]]:
    """Return every command and group with its words."""
    found: list[tuple[str, Any]] = []

    def walk(command: Any, words: tuple[str, ...]) -> None:
        found.append((" ".join(words), command))
        for name, sub in getattr(command, "commands", {}).items():
            walk(sub, (*words, name))

    walk(typer.main.get_command(cli.app), ("agent-ab",))
    return found


@pytest.mark.parametrize(("name", "command"), each_command(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_command_has_help_and_is_in_the_readme(name: str, command: Any) -> None:
    assert command.help.strip()
    assert name in (ROOT / "README.md").read_text(encoding="utf-8")


def swallowed(text: str) -> list[str]:
    """Return what rich takes for markup in a help text, and so does not show."""
    return [whole for whole, escapes, _ in TAG.findall(text) if len(escapes) % 2 == 0]


@pytest.mark.parametrize(("name", "command"), each_command(), ids=lambda v: v if isinstance(v, str) else "")
def test_help_shows_every_bracketed_word(name: str, command: Any) -> None:
    texts = [command.help, command.epilog, *(getattr(option, "help", None) for option in command.params)]
    assert not [word for text in texts for word in swallowed(text or "")], name


def test_a_bracketed_word_is_swallowed_unless_it_is_escaped() -> None:
    assert swallowed("a [table.NAME] b") == ["[table.NAME]"] and not swallowed(r"a \[table.NAME] b, at [1, 2]")


def test_no_file_names_a_registry_or_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    words = ("pypi" + ".org", "registry.npmjs" + ".org", "files.python" + "hosted")
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and path.suffix != ".npz":
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not [word for word in words if word in text], name
