"""A finished run on disk and in a database, as if it had been played: for tests of what reads evidence."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agent_ab.model import Arm, Attempt, CheckResult, Exchange, FileDigest, Outcome, Pair
from agent_ab.nested import flatten
from agent_ab.pair.pair import judge
from agent_ab.paths import AttemptPaths, RunPaths
from agent_ab.store.rows import pair_to_json
from agent_ab.store.store import Store
from tests.builders import attempt, pair

RUN = "20260101-000000"
SETTINGS: dict[Arm, Any] = {
    Arm.BASELINE: {"server": {"context": 8192, "speculation": {"type": "none"}}, "sandbox": {"kind": "none"}},
    Arm.CANDIDATE: {"server": {"context": 8192, "speculation": {"type": "draft-mtp"}}, "sandbox": {"kind": "none"}},
}
Files = Mapping[str, str]
_RESULTS: TypeAdapter[tuple[CheckResult, ...]] = TypeAdapter(tuple[CheckResult, ...])


def exchange_line(exchange: Exchange) -> str:
    """Return an exchange as the proxy logs it."""
    fields = asdict(exchange) | {"kind": "exchange", "truncated": False}
    fields["tool_calls"] = list(exchange.tool_calls)
    if exchange.timings:
        fields["timings"] = {k: v for k, v in asdict(exchange.timings).items() if v is not None}
    return json.dumps(fields)


def write_log(path: Path, exchanges: Sequence[Exchange]) -> None:
    """Write a whole exchange log."""
    start = {"kind": "start", "format": 1, "mitmproxy": "11.0.2", "started_at": "2026-01-02T03:04:05.678+00:00"}
    end = {"kind": "end", "exchanges": len(exchanges), "refused": 0, "models": 0}
    lines = [json.dumps(start), *map(exchange_line, exchanges), json.dumps(end)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_snapshot(path: Path, files: Files) -> None:
    """Write a snapshot archive of `files`."""
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


def write_attempt(paths: AttemptPaths, made: Attempt, snapshot: Files | None = None) -> Attempt:
    """Write the files of one attempt and return it with their digests, its settings those of the files."""
    paths.root.mkdir(parents=True)
    paths.settings.write_text(json.dumps(SETTINGS[made.arm]), encoding="utf-8")
    if made.log is not None:
        write_log(paths.exchanges, made.log.exchanges)
    if made.outcome is not Outcome.INVALID:
        paths.agent_log.write_text("what the agent said\n", encoding="utf-8")
        paths.patch.write_text(made.patch.text if made.patch else "", encoding="utf-8")
        paths.checks.write_bytes(_RESULTS.dump_json(made.checks))
        write_snapshot(paths.snapshot, snapshot or {"app.py": "print('hello')\n"})
    evidence = tuple(
        FileDigest(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
        for path in sorted(paths.root.iterdir())
    )
    return replace(made, evidence=evidence, settings=flatten(SETTINGS[made.arm]))


def plan_of(*pairs: Pair) -> Any:
    """Return the plan of a run of `pairs`."""
    shared = {"server": {"context": 8192}}
    arms = {arm.value: {"server": {"speculation": SETTINGS[arm]["server"]["speculation"]}} for arm in Arm}
    planned = [{"task": p.task, "seed": p.seed, "repeat": p.repeat, "first_arm": p.first_arm.value} for p in pairs]
    return {"version": "0.1.0", "profile": {"variable": "server.speculation", **shared, **arms}, "pairs": planned}


def write_pair(run: RunPaths, made: Pair, snapshots: Mapping[Arm, Files] | None = None) -> Pair:
    """Write a pair's files below `run` and return it, judged, as its pair.json says."""
    arms = {arm: write_attempt(run.attempt(made.id, arm), made.attempt(arm), (snapshots or {}).get(arm)) for arm in Arm}
    judged = judge(replace(made, baseline=arms[Arm.BASELINE], candidate=arms[Arm.CANDIDATE]))
    run.pair_json(made.id).write_text(json.dumps(pair_to_json(judged)), encoding="utf-8")
    return judged


def pair_of(seed: int = 4242, passed: tuple[int, int] = (10, 1)) -> Pair:
    """Return a pair whose arms pass so many of ten checks."""
    made = pair(attempt(Arm.BASELINE, passed[0]), attempt(Arm.CANDIDATE, passed[1]))
    return replace(made, run=RUN, id=f"{made.task}-{seed}-0", seed=seed)


def played(tmp_path: Path, *pairs: Pair, snapshots: Mapping[Arm, Files] | None = None) -> tuple[Store, Path]:
    """Write a run of `pairs` (by default one, 10 checks to 1) below `tmp_path`. Return its open database and runs/."""
    pairs = pairs or (pair_of(),)
    run = RunPaths(tmp_path / "runs" / RUN)
    run.root.mkdir(parents=True)
    plan = plan_of(*pairs)
    run.plan.write_text(json.dumps(plan), encoding="utf-8")
    store = Store(tmp_path / "runs.db")
    store.save_run(RUN, "cpu-demo", "0.1.0", plan)
    for made in pairs:
        store.save_pair(write_pair(run, made, snapshots))
    store.end_run(RUN, "finished")
    return store, tmp_path / "runs"
