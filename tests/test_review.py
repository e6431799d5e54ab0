"""Flips are looked at, marked, and a check that is suspected of chance is run again."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.model import Arm
from agent_ab.review import marks, review
from agent_ab.review.marks import MarkKind
from agent_ab.store.store import Store
from tests.command import ROOT, here
from tests.conftest import ignore
from tests.judged_again import PAIR, played_double
from tests.run_files import RUN


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Store, Path, Path]]:
    store, runs_dir, tasks_dir = played_double(tmp_path)
    yield store, runs_dir, tasks_dir
    store.close()


def test_every_flip_comes_with_its_evidence(made: tuple[Store, Path, Path]) -> None:
    store, runs_dir, _ = made
    found = list(review.flips(store, RUN, runs_dir))
    assert [(flip.pair.id, flip.check_id, flip.broken) for flip in found] == [
        (PAIR, "number", True),
        (PAIR, "chance", True),
    ]
    assert found[0].verdicts[Arm.CANDIDATE].evidence == {"reply": 1}
    assert review.data(found[0])["mark"] is None


def test_a_flip_is_shown_though_its_evidence_is_gone(made: tuple[Store, Path, Path], tmp_path: Path) -> None:
    found = list(review.flips(made[0], RUN, tmp_path / "nowhere"))
    assert [flip.verdicts[Arm.CANDIDATE].evidence for flip in found] == [None, None]


def test_a_mark_stands_beside_its_flip(made: tuple[Store, Path, Path]) -> None:
    store, runs_dir, _ = made
    review.mark(store, review.find(store, RUN, PAIR, "number", runs_dir), MarkKind.REAL, "it returns 0")
    standing = review.find(store, RUN, PAIR, "number", runs_dir).mark
    assert standing is not None and (standing.kind, standing.note) == (MarkKind.REAL, "it returns 0")


def test_a_check_that_agrees_with_itself_is_not_quarantined(made: tuple[Store, Path, Path]) -> None:
    store, runs_dir, tasks_dir = made
    stood = review.rerun(store, review.find(store, RUN, PAIR, "number", runs_dir), "", runs_dir, tasks_dir, ignore)
    assert stood.reruns == {"baseline": ("pass",) * 3, "candidate": ("fail",) * 3}
    assert not stood.quarantined


def test_a_check_that_disagrees_with_itself_is_quarantined(made: tuple[Store, Path, Path]) -> None:
    store, runs_dir, tasks_dir = made
    stood = review.rerun(store, review.find(store, RUN, PAIR, "chance", runs_dir), "", runs_dir, tasks_dir, ignore)
    assert stood.reruns == {"baseline": ("pass", "fail", "pass"), "candidate": ("fail", "pass", "fail")}
    assert stood.quarantined
    assert marks.quarantined(store, RUN) == {("double", "chance")}


def test_a_changed_snapshot_is_not_judged(made: tuple[Store, Path, Path]) -> None:
    store, runs_dir, tasks_dir = made
    flip = review.find(store, RUN, PAIR, "number", runs_dir)
    with (runs_dir / RUN / PAIR / "candidate" / "snapshot.tar").open("r+b") as file:
        file.seek(600)
        file.write(b"!")
    with pytest.raises(ApparatusError, match=r"snapshot\.tar was changed"):
        review.rerun(store, flip, "", runs_dir, tasks_dir, ignore)
    assert marks.history(store, RUN) == ()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pair", PAIR], "--pair, --check and --mark go together"),
        (["--pair", "doble-4242-0", "--check", "number", "--mark", "real"], "did you mean double-4242-0?"),
        (["--pair", PAIR, "--check", "nummer", "--mark", "real"], "did you mean number?"),
        (["--pair", PAIR, "--check", "number", "--mark", "odd"], "there are: real, flaky check, environment"),
        ([], "there is no terminal; use --list"),
        (["20260101-999999"], "no run '20260101-999999'"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    made: tuple[Store, Path, Path], tmp_path: Path, words: list[str], told: str
) -> None:
    done = here(tmp_path, "review", *words)
    assert done.status == 2 and told in done.error


def test_scripts_mark_and_list_without_a_terminal(made: tuple[Store, Path, Path], tmp_path: Path) -> None:
    tasks_dir = made[2]
    words = ("--pair", PAIR, "--check", "chance", "--mark", "flaky", "--note", "seen before", "--tasks-dir", tasks_dir)
    assert "quarantined in both arms" in " ".join(here(tmp_path, "review", *words).stdout.split())
    listed = here(tmp_path, "review", "--list", "--json").data
    assert [(flip["check"], flip["mark"] and flip["mark"]["quarantined"]) for flip in listed] == [
        ("number", None),
        ("chance", True),
    ]
    assert "flaky check" in here(tmp_path, "review", "--list").stdout


def test_a_person_steps_through_the_flips(made: tuple[Store, Path, Path], tmp_path: Path) -> None:
    terminal, ours = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "agent_ab", "review"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        stdin=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(ours)
    os.write(terminal, b"s\nb\nr\nit returns 0\nq\n")
    said, _ = done.communicate(timeout=60)
    os.close(terminal)
    assert done.returncode == 0, said
    assert said.count("number  double-4242-0  broken  1 of 2") == 2
    with closing(Store(tmp_path / "runs.db")) as store:
        assert [(m.check_id, m.kind, m.note) for m in marks.history(store, RUN)] == [
            ("number", MarkKind.REAL, "it returns 0")
        ]
