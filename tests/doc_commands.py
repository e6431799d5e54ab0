"""Find every command that a page of documentation gives, and say what is wrong with one. See test_docs.py."""

import contextlib
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

from agent_ab import cli, tasks
from agent_ab.bench import methods
from agent_ab.cli.app import USAGE_ERROR
from agent_ab.config import load_profile
from agent_ab.errors import UserError
from agent_ab.suite import sweep
from tests.command import ROOT

PROGRAMS = (
    *("agent-ab", ".venv/bin/agent-ab", "make", "python", "python3", ".venv/bin/python", "pip", ".venv/bin/pip"),
    *("apt", "sudo", "curl", "npm", "git", "cp", "inspect", "nvidia-smi"),
)
"""What a line or a piece of inline code begins with when it is a command."""
PLACEHOLDERS = {
    "PROFILE": "scripted-solve",
    "P": "scripted-solve",
    "TASK": "transfer-repair",
    "T": "transfer-repair",
    "ID": "transfer-repair",
    "N": "3",
    "H": "8",
    "DIR": ".",
    "FILE": "a-file",
}
"""What stands for a name that the reader chooses; PAIR and RUN are names of the recorded runs."""

_VARIABLE = re.compile(r"^(\w+)=(\S+) ")
_YAML_RUN = re.compile(r"^ *- run: (?:>\n((?: {10,}.*\n)+)|(.*)\n)", re.MULTILINE)


def commands(text: str) -> list[str]:
    """Return every command of a Markdown page, in order: of its blocks, of the workflows in it, and inside its sentences."""
    found: list[str] = []
    prose: list[str] = []
    fence: str | None = None
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fence = None if fence is not None else line.strip("` ")
            prose.append("")
        elif fence in ("", "sh", "bash", "console") or (fence is None and line.startswith("    ")):
            found += _split(line.strip())
            prose.append("")
        elif fence is None:
            prose.append(line)
    for match in _YAML_RUN.finditer(text):
        found += _split(" ".join((match[1] or match[2]).split()))
    for code in re.findall(r"`([^`]+)`", re.sub(r"\n\n+", "`\0`", "\n".join(prose)).replace("`\0`", "\n\n")):
        found += _split(" ".join(code.split())) if "\n\n" not in code else []
    return list(dict.fromkeys(found))


def _split(line: str) -> Iterator[str]:
    # An explanation follows after `#` or after several blanks; what a command writes to is not its own.
    line = re.split(r"\s#|\s{2,}|\s>\s", line)[0]
    for part in re.split(r"\s&&\s|\s\|\|\s", line):
        program = _bare(part).partition(" ")
        if program[0] in PROGRAMS and program[2]:
            yield part.strip()


def _bare(command: str) -> str:
    while match := _VARIABLE.match(command):
        command = command[match.end() :]
    return command.strip()


def words(command: str, names: dict[str, str]) -> list[str]:
    """Return a command's words after its program, placeholders filled in and brackets of what may be left out taken off."""
    text = re.sub(r"\[([A-Z]+) or [A-Z]+\]", r"\1", _bare(command))
    text = re.sub(r"\[((?:--|[A-Z])[^\]]*)\]", r"\1", text)
    known = PLACEHOLDERS | names
    return [re.sub(r"^[A-Z]+(?=$|/)", lambda m: known.get(m[0], m[0]), word) for word in shlex.split(text)[1:]]


def is_ours(command: str) -> bool:
    """Say whether it is a call of agent-ab."""
    return _bare(command).split()[0].endswith("agent-ab")


def fault(command: str, place: Path, names: dict[str, str]) -> str:
    """Return what is wrong with `command`, typed in `place`, without running it; empty: nothing."""
    try:
        for name in re.findall(r"\b(AGENT_AB_\w+)=", command):
            if name not in _source():
                return f"{command}: no variable {name}"
        program, rest = _bare(command).split()[0].rpartition("/")[2], words(command, names)
        match program:
            case "agent-ab":
                _parse(rest, place)
            case "make":
                _make(rest, place)
            case "pip":
                _extras(command)
            case "python" | "python3" if rest[0] != "-m":
                (ROOT / rest[0]).resolve(strict=True)
            case "cp":
                (ROOT / rest[0]).resolve(strict=True)
    except (UserError, ValueError, OSError) as error:
        return f"{command}: {error}"
    except USAGE_ERROR as error:
        return f"{command}: {error.format_message()}"
    return ""


def _parse(rest: list[str], place: Path) -> None:
    command: Any = typer.main.get_command(cli.app)
    if rest == ["--version"]:
        return
    while hasattr(command, "commands"):
        name, *rest = rest
        if name not in command.commands:
            raise ValueError(f"no command {name}")
        command = command.commands[name]
    if not rest:
        # A mere name in a sentence or a table: what it needs is told elsewhere.
        return
    given = command.make_context("agent-ab", rest).params
    with contextlib.chdir(place):
        _exists(given)


def _exists(given: dict[str, Any]) -> None:
    profile = load_profile(given["profile"], ROOT / "profiles") if given.get("profile") else None
    tasks_given = given.get("tasks") or given.get("task") or ""
    for task in [*tasks_given.split(","), *(given.get("names") or ())]:
        if task:
            tasks.load(task, ROOT / "tasks")
    for seed in (str(given.get("seeds") or "")).split(","):
        int(seed or 0)
    if given.get("policy"):
        Path(given["policy"]).resolve(strict=True)
    if profile and given.get("method_names"):
        methods.parse(given["method_names"], profile)
    if profile and given.get("setting"):
        sweep.parse(given["setting"], profile)


def _make(rest: list[str], place: Path) -> None:
    known = set(re.findall(r"^(\w+) +\?=", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for word in rest:
        if "=" in word and word.partition("=")[0] not in known:
            raise ValueError(f"the Makefile asks for no {word.partition('=')[0]}")
    # The make that runs the tests hands its own variables down.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "ARGS")}
    done = subprocess.run(["make", "-n", *rest], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    for line in done.stdout.splitlines():
        if line.startswith(".venv/bin/agent-ab "):
            _parse(shlex.split(line)[1:], place)


def _extras(command: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in re.findall(r"\[(\w+)\]", command):
        if extra not in project["optional-dependencies"]:
            raise ValueError(f"no extra {extra}")


@cache
def _source() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "agent_ab").rglob("*.py"))
