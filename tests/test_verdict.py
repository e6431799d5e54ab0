"""The verdict's nouns and its data."""

import json
from dataclasses import fields

from agent_ab.gate.gate import Rules, judge
from agent_ab.gate.policy import Policy
from agent_ab.verdict.verdict import EXIT_STATUS, SCHEMA, Decision, Verdict, to_json
from tests.verdicts import pair, run

POLICY = Policy()


def test_every_decision_has_its_own_exit_status_and_two_is_left_to_mistakes() -> None:
    assert {decision.value: EXIT_STATUS[decision] for decision in Decision} == {
        "ADOPT": 0,
        "REJECT": 1,
        "INCONCLUSIVE": 3,
        "INVALID": 4,
    }


def test_a_verdict_as_data_holds_every_field_and_only_numbers_that_json_knows() -> None:
    observations = [pair(n, 10, 10 - n % 2) for n in range(12)]
    verdict = judge(run(observations), observations, Rules(POLICY, POLICY))
    data = json.loads(json.dumps(to_json(verdict), allow_nan=False))
    assert data.keys() == {f.name for f in fields(Verdict)} - {"decision"} | {"schema", "verdict", "exit_status"}
    assert (data["schema"], data["verdict"], data["exit_status"]) == (SCHEMA, "INCONCLUSIVE", 3)
    assert data["policy"] == POLICY.to_json()


def test_evidence_beyond_all_bounds_is_still_a_number_that_json_knows() -> None:
    observations = [pair(n, 10, 0) for n in range(4000)]
    verdict = judge(run(observations), observations, Rules(POLICY, POLICY))
    assert verdict.evidence and verdict.evidence.harm > 1e290
    json.dumps(to_json(verdict), allow_nan=False)
