"""Stored snapshots are judged again by the checks of today; the first results stay."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.model import Arm, PairOutcome, RunKind
from agent_ab.review import regrade
from tests.command import here
from tests.conftest import ignore
from tests.judged_again import PAIR, double_pair, played_double
from tests.run_files import RUN

STRICTER = """from agent_ab.judging import Candidate, check, expect


@check("number", rule="Twice a number is the number plus itself.")
def number(candidate: Candidate) -> None:
    expect(candidate.call(2129), 4259, "double(2129)")


@check("zero", rule="Twice nothing is nothing.")
def zero(candidate: Candidate) -> None:
    expect(candidate.call(0), 0, "double(0)")
"""


def test_what_changed_is_said_and_the_first_results_stay(tmp_path: Path) -> None:
    store, runs_dir, tasks_dir = played_double(tmp_path)
    (tasks_dir / "double" / "checks.py").write_text(STRICTER)
    with closing(store):
        (found,) = regrade.regrade(store, RUN, runs_dir, tasks_dir, ignore)
        assert [(c.arm, c.check_id, c.before, c.after) for c in found.changed] == [
            (Arm.BASELINE, "number", "pass", "fail"),
            (Arm.BASELINE, "chance", "pass", "absent"),
            (Arm.BASELINE, "zero", "absent", "pass"),
            (Arm.CANDIDATE, "chance", "fail", "absent"),
            (Arm.CANDIDATE, "zero", "absent", "pass"),
        ]
        assert (found.pair.outcome, found.outcome) == (PairOutcome.BROKEN, PairOutcome.BOTH_FAIL)
        stored = store.load_pair(f"{RUN}/{PAIR}")
    assert stored.outcome is PairOutcome.BROKEN
    assert [c.status for c in stored.baseline.checks] == [c.status for c in double_pair().baseline.checks]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        kept = connection.execute("select arm, json_array_length(results) from regrade order by id").fetchall()
    assert kept == [("baseline", 2), ("candidate", 2)]


def test_the_command_prints_what_changed(tmp_path: Path) -> None:
    store, _, tasks_dir = played_double(tmp_path)
    store.close()
    (tasks_dir / "double" / "checks.py").write_text(STRICTER)
    done = here(tmp_path, "regrade", "--tasks-dir", tasks_dir)
    assert done.status == 0
    assert f"{PAIR}  BROKEN -> BOTH_FAIL" in done.stdout
    assert "baseline   number: pass -> fail: double(2129)" in done.stdout
    assert "1 pair judged again, 5 verdicts changed; the first results stay" in done.stdout


def test_what_has_no_snapshots_is_the_users_mistake(tmp_path: Path) -> None:
    store, _, tasks_dir = played_double(tmp_path)
    with closing(store):
        store.save_run("imported", "published", "0.1.0", {}, kind=RunKind.IMPORT)
        with pytest.raises(UserError, match="is imported"):
            list(regrade.regrade(store, "imported", tmp_path, tasks_dir, ignore))
        with pytest.raises(UserError, match="--runs-dir names where it is"):
            list(regrade.regrade(store, RUN, tmp_path / "nowhere", tasks_dir, ignore))
