"""A pair is rebuilt from its files and judged again, whatever its record claims."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.model import Arm, Outcome, PairOutcome
from agent_ab.paths import RunPaths
from agent_ab.schedule import block_seed, digest
from agent_ab.store import evidence
from tests.builders import attempt
from tests.run_files import RUN, pair_of, plan_of, played, write_pair


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    store, runs_dir = played(tmp_path)
    store.close()
    return RunPaths(runs_dir / RUN)


def only(run: RunPaths) -> str:
    (pair_id,) = evidence.pair_ids(run)
    return pair_id


def edit_record(run: RunPaths, change: Callable[[Any], None]) -> None:
    path = run.pair_json(only(run))
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_a_pair_comes_out_of_its_evidence_as_it_was_recorded(run: RunPaths) -> None:
    derived = evidence.load_pair(run, only(run))
    assert derived == evidence.recorded_pair(run, only(run))
    assert (derived.outcome, len(derived.flips)) == (PairOutcome.BROKEN, 9)
    assert evidence.disagreements(evidence.recorded_pair(run, only(run)), derived) == ()
    assert evidence.against_plan(json.loads(run.plan.read_text()), derived) == ()


def test_a_prettier_record_does_not_change_what_the_evidence_comes_to(run: RunPaths) -> None:
    def prettify(data: Any) -> None:
        data["outcome"], data["flips"] = "BOTH_PASS", []
        data["candidate"]["outcome"] = "PASS"
        for check in data["candidate"]["checks"]:
            check["status"] = "pass"

    edit_record(run, prettify)
    derived = evidence.load_pair(run, only(run))
    assert derived.outcome is PairOutcome.BROKEN
    told = evidence.disagreements(evidence.recorded_pair(run, only(run)), derived)
    assert "recorded as BOTH_PASS, the evidence comes to BROKEN" in told[0]
    assert sum("is recorded as pass, the evidence says fail" in line for line in told) == 9
    assert "other flips are recorded" in told[-1]


def test_a_failed_attempt_cannot_be_recorded_away_as_invalid(run: RunPaths) -> None:
    def void(data: Any) -> None:
        data["outcome"] = "VOID"
        data["candidate"] |= {"outcome": "INVALID", "invalid_reason": "the dog ate it"}

    edit_record(run, void)
    derived = evidence.load_pair(run, only(run))
    assert derived.outcome is PairOutcome.BROKEN and derived.candidate.invalid_reason == ""
    told = evidence.disagreements(evidence.recorded_pair(run, only(run)), derived)
    assert "recorded as VOID, the evidence comes to BROKEN" in told[0]
    assert "candidate: recorded as INVALID, the evidence comes to FAIL" in told[1]


def test_the_proof_is_made_again(run: RunPaths) -> None:
    edit_record(run, lambda data: data["candidate"].update(manifest_sha256="0" * 64))
    derived = evidence.load_pair(run, only(run))
    assert derived.outcome is PairOutcome.VOID
    assert [line.name for line in derived.proof if not line.ok] == ["same start"]


@pytest.mark.parametrize("name", ["checks.json", "exchanges.jsonl", "patch.diff", "settings.json", "snapshot.tar"])
def test_a_changed_file_is_named(run: RunPaths, name: str) -> None:
    path = run.attempt(only(run), Arm.CANDIDATE).root / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ApparatusError, match=f"{name} was changed"):
        evidence.load_pair(run, only(run))


def test_a_missing_file_and_an_extra_one_are_named(run: RunPaths) -> None:
    root = run.attempt(only(run), Arm.BASELINE).root
    (root / "more.txt").write_text("more")
    with pytest.raises(ApparatusError, match=r"more\.txt: is not among the recorded evidence"):
        evidence.load_pair(run, only(run))
    (root / "more.txt").unlink()
    (root / "patch.diff").unlink()
    with pytest.raises(ApparatusError, match=r"patch\.diff is missing"):
        evidence.load_pair(run, only(run))


def test_a_file_that_became_a_link_is_missing(run: RunPaths) -> None:
    path = run.attempt(only(run), Arm.BASELINE).patch
    elsewhere = run.root / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(ApparatusError, match=r"patch\.diff is missing"):
        evidence.load_pair(run, only(run))


def test_a_recorded_name_that_leads_out_of_the_attempt_is_not_followed(run: RunPaths) -> None:
    edit_record(run, lambda data: data["baseline"]["evidence"][0].update(path="../../run.json"))
    with pytest.raises(ApparatusError, match=r"run\.json is missing"):
        evidence.load_pair(run, only(run))


def test_an_attempt_that_broke_has_no_checks_and_needs_none(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / RUN)
    broke = attempt(
        Arm.CANDIDATE, outcome=Outcome.INVALID, checks=(), log=None, patch=None, invalid_reason="server: gone"
    )
    written = write_pair(run, replace(pair_of(), candidate=replace(broke, server=None, agent=None)))
    derived = evidence.load_pair(run, written.id)
    assert derived.outcome is PairOutcome.VOID and derived.candidate.outcome is Outcome.INVALID
    assert evidence.disagreements(written, derived) == ()


def test_a_record_of_too_many_values_is_refused_before_it_is_parsed(run: RunPaths) -> None:
    (pair_id,) = evidence.pair_ids(run)
    run.pair_json(pair_id).write_bytes(b"[" + b"[]," * 10_000_000 + b"1]")
    with pytest.raises(ApparatusError, match=r"pair\.json: holds more than 10,000,000 values"):
        evidence.recorded_pair(run, pair_id)


def test_a_record_under_another_name_is_refused(run: RunPaths) -> None:
    edit_record(run, lambda data: data.update(id="another"))
    with pytest.raises(ApparatusError, match=r"says that it is 20260101-000000/another"):
        evidence.load_pair(run, only(run))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 7}, "not among the planned pairs"),
        ({"variable": "server.context"}, "its variable is 'server.context'"),
        ({"first_arm": Arm.CANDIDATE}, "not among the planned pairs"),
    ],
)
def test_what_was_not_planned_is_said(change: dict[str, Any], words: str) -> None:
    (told,) = evidence.against_plan(plan_of(pair_of()), replace(pair_of(), **change))
    assert words in told


def test_another_setting_or_engine_than_planned_is_said() -> None:
    made = pair_of()
    plan = plan_of(made) | {"engines": {"candidate": "0" * 64}}
    plan["profile"]["server"]["context"] = 4096
    told = evidence.against_plan(plan, made)
    assert f"{made.name} baseline: setting server.context is 8192, planned is 4096" in told
    assert any("another llama-server than planned" in line for line in told)


def test_a_grid_has_its_own_blocks_and_those_that_its_plan_settles() -> None:
    plan = plan_of() | {
        "grid": {"tasks": ["transfer-repair"], "seeds": [{"seed": 4242, "first": "baseline"}], "repeats": 1},
    }
    del plan["pairs"]
    assert evidence.against_plan(plan, pair_of()) == ()
    added = replace(pair_of(block_seed(digest(plan), 3)), block=3)
    assert evidence.against_plan(plan, replace(added, first_arm=Arm.CANDIDATE)) == ()
    for other in (replace(added, block=4), replace(pair_of(), repeat=1), replace(pair_of(), task="another")):
        assert "not among the planned pairs" in evidence.against_plan(plan, other)[0]


def test_the_model_of_each_task_is_the_planned_one() -> None:
    made = pair_of()
    plan = plan_of(made) | {"models": {"baseline": {"transfer-repair": "0" * 64}}}
    (told,) = evidence.against_plan(plan, made)
    assert "another model than planned" in told
