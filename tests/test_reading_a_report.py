"""Every command of docs/reading-a-report.md does what it says."""

import shutil
from pathlib import Path

import pytest

from tests.command import ROOT, agent_ab

DOC = (ROOT / "docs" / "reading-a-report.md").read_text(encoding="utf-8")
COMMANDS = [line.split()[1:] for line in DOC.splitlines() if line.startswith("    agent-ab ")]


@pytest.fixture(scope="module")
def place(recorded_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reader")
    shutil.copytree(recorded_runs / "runs", made / "runs")
    shutil.copy(recorded_runs / "runs.db", made)
    return made


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_documentation_works(place: Path, words: list[str]) -> None:
    done = agent_ab(place, *words, env={"TMPDIR": str(place)})
    assert done.status == 0 and done.stdout, done.stderr


def test_every_plot_of_the_page_is_explained() -> None:
    for name in ("wall time of each pair", "time ratio", "where the time goes", "speed and acceptance", "evidence"):
        assert f"| {name}" in DOC
