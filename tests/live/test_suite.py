"""A suite on real parts: stopped and gone on with, played on long-lived servers, and left in order when it is cut off."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import chaos
from tests.command import ROOT, agent_ab
from tests.fakes import wrap
from tests.small_suite import SEEDS, small_suite


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the command a temporary directory of its own, and fail when a process or a file stays in it."""
    root = Path(f"/tmp/suite-{os.getpid()}-{abs(hash(tmp_path)) % 10**8}")
    root.mkdir(mode=0o755)
    monkeypatch.setenv("TMPDIR", str(root))
    try:
        yield root
        assert chaos.surviving(root) == []
        assert [path.name for path in root.iterdir()] == []
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "runs.db")) as connection:
        return connection.execute(query).fetchall()


def outcomes(folder: Path) -> list[tuple[str, str]]:
    return rows(folder, "select id, outcome from pair order by saved_at")


@contextmanager
def running(cwd: Path, words: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "agent_ab", *words]
    with subprocess.Popen(argv, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True) as popen:
        try:
            yield popen
        finally:
            popen.kill()


def test_a_suite_stops_at_a_blocks_end_and_the_same_command_goes_on(tmp_path: Path, scratch: Path) -> None:
    given = small_suite(tmp_path, 1)
    first, second = (f"tiny-{seed}-0" for seed in SEEDS)
    stopped = agent_ab(tmp_path, *given.words("--max-hours", "0", "--json"))
    assert stopped.status == 0, stopped.stderr
    assert (stopped.data["status"], stopped.data["done"], stopped.data["outcomes"]) == ("stopped", 1, {"BOTH_PASS": 1})
    assert "--max-hours" in stopped.data["note"]

    changed = agent_ab(tmp_path, *given.words("--repeats", "2"))
    assert changed.status == 2 and "grid.repeats: 1 -> 2" in changed.error

    before = rows(tmp_path, "select saved_at from pair")
    finished = agent_ab(tmp_path, *given.words("--json"))
    assert finished.status == 0 and "goes on: 1 of 2 pairs done" in finished.stderr
    assert outcomes(tmp_path) == [(first, "BOTH_PASS"), (second, "BOTH_PASS")]
    assert rows(tmp_path, "select saved_at from pair order by saved_at")[:1] == before
    assert rows(tmp_path, "select first_arm, block from pair order by block") == [
        (order, block) for block, order in enumerate(arm_orders())
    ]
    machine = rows(tmp_path, "select json_extract(body, '$.machine.peak.server_rss_mib') from attempt")
    assert all(rss > 1 for (rss,) in machine)

    again = agent_ab(tmp_path, *given.words("--json"))
    assert again.status == 0 and "is finished; --new" in again.stderr and len(outcomes(tmp_path)) == 2
    run = finished.data["run"]
    assert [r["run"] for r in agent_ab(tmp_path, "runs", "--json").data] == [run]
    assert f"{run}/{second}" in agent_ab(tmp_path, "show", run).stdout


def arm_orders() -> list[str]:
    from agent_ab.config import load_seeds

    seeds = load_seeds(ROOT / "seeds.toml")
    return [seeds.first_arm(seed).value for seed in SEEDS]


@pytest.mark.parametrize("life", ["per-task", pytest.param("per-run", marks=pytest.mark.long)])
def test_long_lived_servers_serve_in_recorded_positions_and_the_first_pair_is_played_again_last(
    tmp_path: Path, scratch: Path, life: str
) -> None:
    changes = {'variable = "server.speculation"': f'variable = "server.speculation"\nserver_life = "{life}"'}
    given = small_suite(tmp_path, 1, changes)
    done = agent_ab(tmp_path, *given.words("--json", "--agent", "oracle"))
    assert done.status == 0, done.stderr
    first, second = (f"tiny-{seed}-0" for seed in SEEDS)
    played = rows(
        tmp_path,
        "select p.id, max(life_position), min(life_position) from pair p join attempt a on a.pair_id = p.id"
        " group by p.id order by saved_at",
    )
    per_task = [(first, 0, 0), (f"{first}-again", 1, 1), (second, 0, 0), (f"{second}-again", 1, 1)]
    per_run = [(first, 0, 0), (second, 1, 1), (f"{first}-again", 2, 2)]
    assert played == (per_task if life == "per-task" else per_run)
    assert (done.data["pairs"], done.data["done"]) == (2, 2)
    logs = sorted(path.name for path in (tmp_path / "runs" / done.data["run"] / "lives").iterdir())
    both = ["baseline.log", "candidate.log"]
    assert logs == [f"{n}-{name}" for n in range(2 if life == "per-task" else 1) for name in both]


def test_a_long_lived_server_is_replaced_when_the_next_task_has_another_model(tmp_path: Path, scratch: Path) -> None:
    changes = {'variable = "server.speculation"': 'variable = "server.speculation"\nserver_life = "per-run"'}
    given = small_suite(tmp_path, 2, changes)
    script = tmp_path / "tasks" / "tiny-1" / "scripts" / "solve.toml"
    script.write_text(script.read_text().replace("Both numbers", "All numbers"))
    done = agent_ab(tmp_path, *given.words("--json", "--agent", "oracle", "--seeds", str(SEEDS[0])))
    assert done.status == 0, done.stderr
    logs = tmp_path / "runs" / done.data["run"] / "lives"
    for arm in ("baseline", "candidate"):
        models = [set(re.findall(r"[\w.-]+\.gguf", (logs / f"{life}-{arm}.log").read_text())) for life in (0, 1)]
        assert models[0] and models[1] and not models[0] & models[1]
    served = rows(tmp_path, "select pair_id, life_position from attempt where arm = 'candidate' order by rowid")
    assert [position for _, position in served] == [0, 1, 0, 1]


def test_a_pair_that_the_candidates_server_breaks_is_played_again_whole_and_counted_by_arm(
    tmp_path: Path, scratch: Path
) -> None:
    given = small_suite(tmp_path, 2, {"n_min = 0\np_min = 0.0\n": ""})
    fake = wrap.llama_server(tmp_path / "bin", "drafts-nothing")
    environment = {"AGENT_AB_LLAMA_SERVER": str(fake)}
    done = agent_ab(tmp_path, *given.words("--json", "--agent", "nop"), env=environment)
    assert done.status == 4, done.stderr
    tries = [f"{task}-{SEEDS[0]}-0{tries}" for task in ("tiny", "tiny-1") for tries in ("", ".2", ".3")]
    assert outcomes(tmp_path) == [(name, "VOID") for name in tries]
    assert {void["arm"] for void in done.data["voids"]} == {"candidate"} and len(done.data["voids"]) == 6
    assert done.data["status"] == "stopped" and "in a row stayed VOID" in done.data["note"]
    shown = agent_ab(tmp_path, "show", done.data["run"]).stdout
    assert "6 VOID tries: 0 by the baseline, 6 by the candidate" in shown


def test_ctrl_c_keeps_finished_pairs_and_the_half_finished_one_starts_again(tmp_path: Path, scratch: Path) -> None:
    given = small_suite(tmp_path, 1)
    with running(tmp_path, given.words()) as popen:
        wait_for_a_second_pair(tmp_path, popen)
        popen.send_signal(signal.SIGINT)
        assert popen.wait(180) == 130
    assert len(outcomes(tmp_path)) == 1 and pair_directories(tmp_path) == [f"tiny-{SEEDS[0]}-0"]
    assert rows(tmp_path, "select status, note from run") == [("stopped", "interrupted")]


def test_ctrl_c_twice_stops_at_once_and_the_next_start_tidies_up(tmp_path: Path, scratch: Path) -> None:
    given = small_suite(tmp_path, 1)
    with running(tmp_path, given.words()) as popen:
        wait_for_a_second_pair(tmp_path, popen)
        popen.send_signal(signal.SIGINT)
        # Another one, because two of a kind may become one on their way.
        popen.send_signal(signal.SIGTERM)
        assert popen.wait(180) == 130
        assert popen.stderr is not None and "interrupted twice" in popen.stderr.read()
    assert chaos.surviving(scratch) == []
    finished = agent_ab(tmp_path, *given.words())
    assert finished.status == 0, finished.stderr
    assert [outcome for _, outcome in outcomes(tmp_path)] == ["BOTH_PASS"] * 2


def wait_for_a_second_pair(folder: Path, popen: "subprocess.Popen[str]") -> None:
    """Wait until one pair is saved and the second one's agent works."""
    while popen.poll() is None:
        if list((folder / "runs").glob(f"*/*-{SEEDS[1]}-*/*/agent.log")):
            return
        time.sleep(0.01)
    pytest.fail(f"the suite ended too early: {popen.stderr.read() if popen.stderr else ''}")


def pair_directories(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "runs").glob("*/*/"))


def test_kill_9_at_random_moments_costs_no_finished_pair_and_leaves_nothing() -> None:
    argv = [sys.executable, "-m", "tests.chaos", "--kills", "3", "--tasks", "1", "--seed", "7"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kills" in done.stdout and "same pairs, same outcomes, nothing left" in done.stdout
