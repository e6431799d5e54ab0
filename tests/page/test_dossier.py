"""All that the page shows of one pair."""

import base64
from dataclasses import replace
from pathlib import Path

from agent_ab.divergence import aftermath, divergence, parting, reply_diff
from agent_ab.exchanges import read_log
from agent_ab.model import Arm, CheckStatus, Pair, Patch
from agent_ab.pair.pair import judge
from agent_ab.report.page import dossier
from agent_ab.report.page.lines import numbered
from tests.builders import attempt, check, pair
from tests.page.runs import played

GOLDEN = Path(__file__).parent.parent / "golden" / "parting"


def recorded_pair() -> Pair:
    """Return a pair with the recorded conversations of the known-bad control."""
    logs = {arm: read_log(GOLDEN / f"known-bad-{arm}.jsonl") for arm in Arm}
    failed = attempt(
        Arm.CANDIDATE, checks=(check("atomicity", CheckStatus.FAIL), check("odd", CheckStatus.FAIL, False))
    )
    made = judge(
        pair(
            attempt(Arm.BASELINE, checks=(check("atomicity"), check("odd", scored=False)), log=logs[Arm.BASELINE]),
            replace(failed, log=logs[Arm.CANDIDATE], patch=Patch("", (), False)),
        )
    )
    found = divergence.between(made.baseline, made.candidate, reply_diff.recorded({}))
    after = aftermath.follow(made.baseline, made.candidate, found.raw.common)
    return replace(made, divergence=parting.to_json(found), aftermath=aftermath.to_json(after))


def test_packed_data_come_out_again_and_are_the_same_bytes_every_time() -> None:
    data = {"text": "</script> \u2028 naïve", "n": [1, None, True]}
    packed = dossier.pack(7, data, "whole")
    assert dossier.unpack(packed) == data and dossier.pack(7, dict(reversed(data.items())), "whole") == packed
    assert "<" not in packed.packed and base64.b64decode(packed.packed)[:2] == b"\x1f\x8b"


def test_a_patch_that_is_no_text_can_be_packed() -> None:
    assert dossier.unpack(dossier.pack(1, {"patch": "a\udcffb"}, "whole")) == {"patch": "a?b"}


def test_the_database_alone_knows_checks_proof_price_and_patches() -> None:
    (n,) = numbered([played(0, candidate=9)])
    data = dossier.recorded(n, (), "runs/x")
    broken = data["checks"][-1]
    assert (broken["id"], broken["flip"], broken["candidate"]["status"]) == ("check-9", "broken", "fail")
    assert "evidence" not in broken["candidate"] and "turns" not in data
    assert data["parting"]["kind"] == "identical" and data["href"] == "runs/x"
    assert ["wall time", "1 min 40 s", "80.0 s"] in data["arms"]
    assert data["patches"]["baseline"]["files"] == ["wallet/transfers.py"] and data["proof"][0][1] is True


def test_the_evidence_adds_both_conversations_what_is_common_once() -> None:
    made = recorded_pair()
    (n,) = numbered([made])
    data = dossier.with_evidence(dossier.recorded(n, (), "x"), made)
    common = data["parting"]["common"]
    assert [turn["common"] for turn in data["turns"][: common + 1]] == [True] * common + [False]
    assert all(turn["candidate"] is None for turn in data["turns"][:common])
    parted = data["turns"][common]
    assert parted["exchange"] == data["parting"]["exchange"] and parted["baseline"] and parted["candidate"]
    assert data["aftermath"][0][0] == "turns after it (in all)"


def test_only_checks_that_failed_somewhere_bring_their_inputs() -> None:
    made = recorded_pair()
    made = replace(made, baseline=replace(made.baseline, checks=(*made.baseline.checks, check("fine"))))
    made = replace(made, candidate=replace(made.candidate, checks=(*made.candidate.checks, check("fine"))))
    (n,) = numbered([made])
    checks = {c["id"]: c for c in dossier.with_evidence(dossier.recorded(n, (), "x"), made)["checks"]}
    assert checks["atomicity"]["candidate"]["evidence"] == '{"reply": 1}'
    assert checks["odd"]["flip"] == "" and not checks["odd"]["scored"]
    assert "evidence" not in checks["fine"]["baseline"]


def test_long_text_loses_its_middle_and_says_how_much() -> None:
    short = dossier.shortened("a" * 60 + "b" * 60, 30, "patch.diff")
    assert short.startswith("a" * 20 + "\n[... 90 characters left out; patch.diff has them ...]\n") and short.endswith(
        "b" * 10
    )
    assert dossier.shortened("same", 4) == "same"
