"""The crash test: kill -9 a suite at random moments, again and again, and compare what it comes to with a quiet run's.

    python -m tests.chaos --kills 50 --seed 1

Real parts: llama-server with a scripted model, mitmproxy, bubblewrap, the built-in agent; tasks of two checks, so that a
pair takes seconds. A suite that was killed is started again with the same command until it is finished, then another
one is begun, until there were enough kills. Exit status 1 when anything differs or anything is left behind.
"""

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from agent_ab.errors import ApparatusError
from agent_ab.model import Json
from agent_ab.paths import RunPaths
from agent_ab.session.orphans import PREFIX
from agent_ab.store import evidence
from tests.command import ROOT
from tests.small_suite import SmallSuite, small_suite

TABLES = ("run", "pair", "attempt", "check_result", "exchange", "evidence")
GONE_S = 10.0
SETTLED = """select p.task, p.seed, p.repeat, p.block, p.outcome, p.attempted, p.first_arm,
    (select group_concat(arm || check_id || status) from
        (select arm, check_id, status from check_result c where c.run_id = p.run_id and c.pair_id = p.id
         order by arm, check_id))
    from pair p order by 1, 2, 3"""


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    suites: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    """Where the kills hit, by what the half-finished pair had on the disk."""
    orphans: int = 0
    """Processes that were still there when the next start began, which must end them."""
    recovered: int = 0
    """Pairs that were finished but not yet in the database."""
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Arena:
    """Where one suite is played, and how."""

    suite: SmallSuite
    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """Return the directory of its database and its evidence."""
        return self.root / self.name

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the suite, or go on with it."""
        scratch = self.root / "tmp"
        for folder in (self.folder, scratch):
            folder.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
        log = (self.folder / "stderr.txt").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "agent_ab", *self.suite.words()],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def said(self) -> str:
        """Return what all its starts have said."""
        return (self.folder / "stderr.txt").read_text(errors="replace")


def killed(arena: Arena, delay_s: float, tally: Tally) -> bool:
    """Start the suite and kill it after `delay_s`; return False when it ended before."""
    running = arena.start()
    try:
        status = running.wait(delay_s)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        running.wait()
        tally.kills += 1
        tally.moments[moment(arena.folder)] += 1
        return True
    if status:
        tally.faults.append(f"{arena.name}: the suite ended with status {status}: {arena.said()[-500:]}")
    return False


def moment(folder: Path) -> str:
    """Return in which part of the work a killed suite was, by what it has left on the disk."""
    with closing(sqlite3.connect(folder / "runs.db")) as connection:
        try:
            saved = {name for (name,) in connection.execute("select id from pair")}
        except sqlite3.OperationalError:
            return "starting"
    for pair in sorted((folder / "runs").glob("*/*/")):
        if pair.name in saved:
            continue
        if (pair / "pair.json").exists():
            return "saving"
        arms = sorted(pair.iterdir(), key=lambda arm: arm.stat().st_mtime_ns)
        if not arms:
            return "between attempts"
        for file, name in (
            ("checks.json", "after the checks"),
            ("snapshot.tar", "checks"),
            ("tokens.json", "snapshot"),
        ):
            if (arms[-1] / file).exists():
                return name
        return "agent" if (arms[-1] / "agent.log").exists() else "server and proxy"
    return "starting"


def settled(folder: Path) -> list[Json]:
    """Return what a database comes to: each pair, how often it was tried, its outcome, every check's verdict."""
    with closing(sqlite3.connect(folder / "runs.db")) as connection:
        return connection.execute(SETTLED).fetchall()


def faults(folder: Path, quiet: Path) -> Iterator[str]:
    """Yield every way in which the suite in `folder` is not what the quiet one is."""
    if settled(folder) != settled(quiet):
        yield f"other pairs or outcomes: {settled(folder)} instead of {settled(quiet)}"
    with closing(sqlite3.connect(folder / "runs.db")) as mine, closing(sqlite3.connect(quiet / "runs.db")) as theirs:
        for table in TABLES:
            counts = [c.execute(f"select count(*) from {table}").fetchone()[0] for c in (mine, theirs)]
            if counts[0] != counts[1]:
                yield f"{counts[0]} rows in {table} instead of {counts[1]}"
        if orphans := mine.execute("pragma foreign_key_check").fetchall():
            yield f"rows without a parent: {orphans[:3]}"
        if (integrity := mine.execute("pragma integrity_check").fetchone()[0]) != "ok":
            yield f"integrity: {integrity}"
        status = mine.execute("select distinct status from run").fetchall()
        if status != [("finished",)]:
            yield f"the run is {status}"
        saved = {f"{run}/{pair}" for run, pair in mine.execute("select run_id, id from pair")}
    on_disk = {f"{path.parent.name}/{path.name}" for path in (folder / "runs").glob("*/*/")}
    if on_disk != saved:
        yield f"directories without a row, or rows without a directory: {on_disk ^ saved}"
    for name in sorted(saved & on_disk):
        run, _, pair = name.partition("/")
        try:
            evidence.load_pair(RunPaths(folder / "runs" / run), pair)
        except ApparatusError as error:
            yield f"damaged evidence: {error}"


def processes(scratch: Path) -> list[int]:
    """Return the processes that work in `scratch`, found as nobody else looks for them: by all that they have open."""
    mark = os.fsencode(scratch) + b"/"
    found = []
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        for name in ("cmdline", "environ", "mountinfo", "maps"):
            try:
                told = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
            if mark in told:
                found.append(pid)
                break
    return found


def surviving(scratch: Path) -> list[int]:
    """Return the processes that still work in `scratch` when the kernel has had its time to end them."""
    deadline = time.monotonic() + GONE_S
    while (left := processes(scratch)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def left_behind(arena: Arena) -> Iterator[str]:
    """Yield what is still there after a suite has ended."""
    if left := surviving(arena.root / "tmp"):
        yield f"{len(left)} processes are left: {[psutil.Process(pid).cmdline()[:3] for pid in left]}"
    if files := [path.name for path in (arena.root / "tmp").iterdir() if path.name.startswith(PREFIX)]:
        yield f"temporary directories are left: {files}"


def play_quietly(arena: Arena) -> float:
    """Play a suite undisturbed, and return how long it took."""
    begin = time.monotonic()
    if arena.start().wait():
        sys.exit(f"the quiet run failed:\n{arena.said()}")
    return time.monotonic() - begin


def play_under_fire(arena: Arena, dice: random.Random, longest_s: float, most: int, tally: Tally) -> None:
    """Play a suite to its end, killing it up to `most` times."""
    tally.suites += 1
    kills = 0
    while killed(arena, dice.uniform(0.1, longest_s) if kills < most else 3600.0, tally):
        kills += 1
        tally.orphans += len(processes(arena.root / "tmp"))
    tally.recovered += arena.said().count("was finished but not in the database")


def main() -> int:
    """Run the crash test; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=2, help="tasks a suite; two seeds each")
    asked = parser.parse_args()
    dice, tally = random.Random(asked.seed), Tally()
    # Short, because a unix socket's path is short.
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o755)
        suite = small_suite(root / "given", asked.tasks)
        quiet = Arena(suite, root, "quiet")
        took_s = play_quietly(quiet)
        longest_s = 1.5 * took_s / (2 * asked.tasks) + 2
        sys.stdout.write(f"quiet: {2 * asked.tasks} pairs in {took_s:.0f} s; seed {asked.seed}\n")
        while tally.kills < asked.kills:
            arena = Arena(suite, root, f"fire-{tally.suites}")
            play_under_fire(arena, dice, longest_s, asked.kills - tally.kills, tally)
            tally.faults += [
                f"{arena.name}: {fault}" for fault in (*left_behind(arena), *faults(arena.folder, quiet.folder))
            ]
            sys.stdout.write(f"{arena.name}: {tally.kills} kills by now, {len(tally.faults)} faults\n")
            sys.stdout.flush()
            shutil.rmtree(arena.folder)
    where = ", ".join(f"{count} {name}" for name, count in tally.moments.most_common())
    sys.stdout.write(
        f"{tally.kills} kills in {tally.suites} suites ({where});\n"
        f"{tally.orphans} processes outlived a kill and were ended by the next start;"
        f" {tally.recovered} finished pairs were recovered\n"
    )
    sys.stdout.write(
        "".join(f"FAULT {fault}\n" for fault in tally.faults) or "same pairs, same outcomes, nothing left\n"
    )
    return bool(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
