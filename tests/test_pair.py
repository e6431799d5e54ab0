"""Which pairs are valid, what they come to, and what flipped."""

from dataclasses import replace
from typing import Any

import pytest

from agent_ab.model import AgentEnd, AgentRun, Arm, Drafting, ExchangeLog, Outcome, Pair, PairOutcome, RefusedRequest
from agent_ab.pair.pair import flips, judge
from tests.builders import attempt, check, checks, exchange, pair, server, timings

BASELINE, CANDIDATE = Arm.BASELINE, Arm.CANDIDATE


def faults(judged: Pair) -> list[str]:
    return [line.name for line in judged.proof if not line.ok]


@pytest.mark.parametrize(
    ("baseline", "candidate", "outcome"),
    [
        (10, 10, PairOutcome.BOTH_PASS),
        (1, 1, PairOutcome.BOTH_FAIL),
        (1, 10, PairOutcome.FIXED),
        (10, 1, PairOutcome.BROKEN),
    ],
)
def test_outcome_follows_from_the_two_attempts(baseline: int, candidate: int, outcome: PairOutcome) -> None:
    judged = judge(pair(attempt(BASELINE, baseline), attempt(CANDIDATE, candidate)))
    assert judged.outcome is outcome
    assert faults(judged) == []
    assert len(judged.flips) == abs(baseline - candidate)


def test_an_invalid_attempt_voids_the_pair_and_says_which_arm_broke() -> None:
    broken = attempt(CANDIDATE, outcome=Outcome.INVALID, invalid_reason="server: died", evidence=())
    judged = judge(pair(candidate=broken))
    assert judged.outcome is PairOutcome.VOID
    assert "candidate: server: died" in judged.proof[0].detail


def test_another_first_request_voids_the_pair_and_names_the_json_path() -> None:
    other = exchange(0, agent_sha256="x" * 64, request={"messages": [{"role": "user", "content": "else"}]})
    judged = judge(pair(candidate=attempt(CANDIDATE, log=ExchangeLog((other,), ()))))
    assert judged.outcome is PairOutcome.VOID
    assert faults(judged) == ["same first request"]
    line = next(line for line in judged.proof if not line.ok)
    assert "$.messages[0].content" in line.detail


def test_a_refused_first_request_voids_the_pair() -> None:
    refused = RefusedRequest("POST", "/v1/chat/completions", "identity", "x" * 64)
    judged = judge(pair(candidate=attempt(CANDIDATE, log=ExchangeLog((), (refused,)))))
    assert judged.outcome is PairOutcome.VOID
    assert faults(judged) == ["same first request"]


def test_no_model_call_at_all_is_the_arms_own_result_and_is_flagged() -> None:
    judged = judge(pair(candidate=attempt(CANDIDATE, 1, log=ExchangeLog((), ()))))
    assert judged.outcome is PairOutcome.BROKEN
    assert "candidate: no model call at all" in judged.findings


@pytest.mark.parametrize(
    "drift",
    [
        {"binary_sha256": "other"},
        {"model_sha256": "other"},
        {"chat_template_sha256": "other"},
        {"environment": {"PATH": "/usr/bin:/bin", "LLAMA_ARG_CTX_SIZE": "1"}},
        {"props": {"n_ctx": 4096}},
        {"omitted_flags": ("--fit",)},
        {"argv": ("llama-server", "-m", "model.gguf", "-c", "4096", "--spec-type", "draft-mtp")},
    ],
    ids=lambda drift: next(iter(drift)),
)
def test_drift_outside_the_declared_variable_voids_the_pair(drift: dict[str, object]) -> None:
    judged = judge(pair(candidate=attempt(CANDIDATE, server=replace(server(CANDIDATE), **drift))))  # type: ignore[arg-type]
    assert faults(judged) == ["one variable"]


def test_drift_in_the_settings_voids_the_pair_even_when_the_command_lines_agree() -> None:
    drifted = attempt(CANDIDATE)
    drifted = replace(drifted, settings={**drifted.settings, "agent.max_turns": 3})
    assert faults(judge(pair(candidate=drifted))) == ["one variable"]


def test_an_arm_that_was_not_applied_voids_the_pair() -> None:
    unproven = replace(server(CANDIDATE), speculation_proven=False, proof="nothing drafted")
    assert faults(judge(pair(candidate=attempt(CANDIDATE, server=unproven)))) == ["arms applied"]


def test_another_start_voids_the_pair() -> None:
    assert faults(judge(pair(candidate=attempt(CANDIDATE, manifest_sha256="other")))) == ["same start"]


def test_cached_tokens_and_concurrent_requests_void_the_pair() -> None:
    cached = ExchangeLog((exchange(0), exchange(1, timings=timings(cache_n=5))), ())
    assert faults(judge(pair(candidate=attempt(CANDIDATE, log=cached)))) == ["no reuse"]
    crowded = ExchangeLog((exchange(0), exchange(1, concurrent=True)), ())
    assert faults(judge(pair(candidate=attempt(CANDIDATE, log=crowded)))) == ["no reuse"]


def test_the_agents_own_second_request_before_any_reply_voids_and_a_later_one_is_a_finding() -> None:
    early = RefusedRequest("POST", "/v1/chat/completions", "concurrent-first", "x" * 64)
    judged = judge(pair(candidate=attempt(CANDIDATE, log=ExchangeLog((exchange(0),), (early,)))))
    assert faults(judged) == ["no reuse"]
    late = RefusedRequest("POST", "/v1/chat/completions", "concurrent", "x" * 64)
    judged = judge(pair(candidate=attempt(CANDIDATE, log=ExchangeLog((exchange(0),), (late,)))))
    assert faults(judged) == []
    assert "candidate: the proxy refused 1 requests because another one was open" in judged.findings


def test_the_same_bytes_to_another_path_void_the_pair() -> None:
    other = exchange(0, path="/v1/completions")
    judged = judge(pair(candidate=attempt(CANDIDATE, log=ExchangeLog((other,), ()))))
    assert faults(judged) == ["same first request"]
    line = next(line for line in judged.proof if not line.ok)
    assert line.detail == "POST /v1/chat/completions and POST /v1/completions"


def test_a_log_of_the_server_that_says_otherwise_is_a_finding() -> None:
    log = ExchangeLog((exchange(0),), (), remarks=("the server's log shows 2 requests, the proxy passed on 1",))
    judged = judge(pair(candidate=attempt(CANDIDATE, log=log)))
    assert faults(judged) == []
    assert any("shows 2 requests" in finding for finding in judged.findings)


@pytest.mark.parametrize("where", ["replies", "counters"])
def test_drafting_in_an_arm_without_speculation_voids_the_pair(where: str) -> None:
    drafts = timings(draft_n=300, draft_n_accepted=294) if where == "replies" else timings()
    counted = None if where == "replies" else Drafting(100, 300, 294)
    log = ExchangeLog((exchange(0, timings=drafts),), ())
    judged = judge(pair(attempt(BASELINE, log=log, drafting=counted)))
    assert judged.outcome is PairOutcome.VOID and faults(judged) == ["arms applied"]
    line = next(line for line in judged.proof if not line.ok)
    assert "baseline: 300 tokens were drafted during the attempt, and its speculation is none" in line.detail


def test_another_model_name_in_a_reply_voids_the_pair() -> None:
    arms = [attempt(arm, log=ExchangeLog((exchange(0, model=name),), ())) for arm, name in zip(Arm, "ab", strict=True)]
    judged = judge(pair(*arms))
    assert faults(judged) == ["arms applied"]
    assert "the replies name the model 'a' and 'b'" in next(line for line in judged.proof if not line.ok).detail


def test_another_world_voids_the_pair_and_names_what_differs() -> None:
    judged = judge(pair(candidate=attempt(CANDIDATE, world={"sandbox": {"kind": "none"}, "workspace": "/workspace"})))
    line = next(line for line in judged.proof if not line.ok)
    assert (line.name, "$.sandbox.kind" in line.detail) == ("same world", True)


def test_missing_evidence_voids_the_pair() -> None:
    assert faults(judge(pair(candidate=attempt(CANDIDATE, evidence=())))) == ["complete evidence"]


def test_a_timeout_is_a_finding_and_not_a_fault() -> None:
    cut = attempt(BASELINE, agent=AgentRun(AgentEnd.TIMEOUT, None, 480.1, 480.0))
    judged = judge(pair(baseline=cut))
    assert judged.outcome is PairOutcome.BOTH_PASS
    assert "baseline: the agent's end was: timeout" in judged.findings


def test_a_candidate_that_drafted_nothing_is_flagged() -> None:
    assert "candidate: nothing was drafted during the attempt" in judge(pair()).findings


def test_probes_never_flip() -> None:
    baseline = attempt(BASELINE, checks=(*checks(10), check("probe", scored=False)))
    assert flips(baseline, attempt(CANDIDATE)) == ()


def attached(**changes: Any) -> Pair:
    """Return a pair whose candidate's server somebody else started."""
    facts = server(CANDIDATE, unproven=("which program serves", "its command line"))
    return judge(pair(attempt(BASELINE), attempt(CANDIDATE, server=facts, **changes)))


def test_a_pair_with_an_attached_server_counts_and_is_not_proven() -> None:
    judged = attached()
    assert judged.valid and not judged.proven
    unproven = {line.name: line.detail for line in judged.proof if line.unproven}
    assert list(unproven) == ["one variable", "arms applied", "attached server", "no reuse"]
    assert unproven["attached server"] == (
        "of the candidate's server nobody proved which program serves; its command line"
    )
    assert all(line.ok for line in judged.proof)
    assert judge(pair(attempt(BASELINE), attempt(CANDIDATE))).proven


def test_an_attached_servers_cached_tokens_are_told_and_void_nothing() -> None:
    log = ExchangeLog((exchange(timings=timings(cache_n=7)),), ())
    line = next(line for line in attached(log=log).proof if line.name == "no reuse")
    assert line.ok and line.unproven and "candidate exchange 0: 7 cached tokens" in line.detail


def test_an_attached_server_that_contradicts_the_profile_voids_the_pair() -> None:
    facts = server(CANDIDATE, unproven=("all of it",), speculation_proven=False)
    assert not judge(pair(attempt(BASELINE), attempt(CANDIDATE, server=facts))).valid


def test_the_name_that_a_server_has_for_its_model_is_no_other_request() -> None:
    logs = []
    for name in ("one", "two"):
        pinned = {"seed": 4242, "model": name}
        request: dict[str, Any] = {"model": name, "messages": [], "seed": 4242}
        logs.append(ExchangeLog((exchange(request=request, pinned=pinned, server_sha256=name * 20),), ()))
    arms = (attempt(BASELINE, log=logs[0]), attempt(CANDIDATE, log=logs[1]))
    line = next(line for line in judge(pair(*arms)).proof if line.name == "same first request")
    assert line.ok
