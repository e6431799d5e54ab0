"""Small builders of the vocabulary's nouns, so that a test names only what it is about."""

from dataclasses import replace
from typing import Any

from agent_ab.model import (
    AgentEnd,
    AgentRun,
    Arm,
    Attempt,
    CheckResult,
    CheckStatus,
    Exchange,
    ExchangeLog,
    FileDigest,
    Outcome,
    Pair,
    PairOutcome,
    Patch,
    ServerFacts,
    Timings,
)


def timings(**changes: Any) -> Timings:
    return replace(Timings(prompt_n=100, prompt_ms=50.0, predicted_n=20, predicted_ms=200.0, cache_n=0), **changes)


def exchange(index: int = 0, **changes: Any) -> Exchange:
    made = Exchange(
        index=index,
        path="/v1/chat/completions",
        agent_sha256=f"a{index:063d}",
        server_sha256=f"b{index:063d}",
        request={"messages": [{"role": "user", "content": "fix it"}]},
        pinned={"seed": 4242},
        status=200,
        content="done",
        reasoning="",
        tool_calls=(),
        finish_reason="stop",
        usage=None,
        timings=timings(),
        error=None,
        started_s=float(index),
        first_byte_s=index + 0.05,
        last_byte_s=index + 0.25,
        concurrent=False,
        streamed=True,
    )
    return replace(made, **changes)


def server(arm: Arm, **changes: Any) -> ServerFacts:
    speculation = ("none",) if arm is Arm.BASELINE else ("draft-mtp", "--spec-draft-n-max", "3")
    made = ServerFacts(
        argv=("llama-server", "-m", "model.gguf", "-c", "8192", "--spec-type", *speculation),
        environment={"PATH": "/usr/bin:/bin"},
        binary_sha256="bin",
        build="b1",
        model_sha256="model",
        chat_template_sha256="template",
        props={"n_ctx": 8192},
        omitted_flags=(),
        spec_type=speculation[0],
        draft_n=None if arm is Arm.BASELINE else 12,
        draft_n_accepted=None if arm is Arm.BASELINE else 9,
        slots_speculative=arm is Arm.CANDIDATE,
        log_line="",
        speculation_proven=True,
        proof="nothing drafted" if arm is Arm.BASELINE else "12 tokens drafted",
    )
    return replace(made, **changes)


def check(check_id: str, status: CheckStatus = CheckStatus.PASS, scored: bool = True) -> CheckResult:
    return CheckResult(check_id, status, "as the rule says", "It works.", scored, 0.1, {"reply": 1})


def checks(passed: int, of: int = 10) -> tuple[CheckResult, ...]:
    return tuple(check(f"check-{i}", CheckStatus.PASS if i < passed else CheckStatus.FAIL) for i in range(of))


def attempt(arm: Arm, passed: int = 10, **changes: Any) -> Attempt:
    speculation = {"server.speculation.type": "none" if arm is Arm.BASELINE else "draft-mtp"}
    made = Attempt(
        arm=arm,
        outcome=Outcome.PASS if passed == 10 else Outcome.FAIL,
        position=0 if arm is Arm.BASELINE else 1,
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=12.0,
        invalid_reason="",
        fixture_commit="c" * 40,
        manifest_sha256="m" * 64,
        server=server(arm),
        agent=AgentRun(AgentEnd.COMPLETED, 0, 10.0, 120.0),
        log=ExchangeLog((exchange(0), exchange(1)), ()),
        patch=Patch("diff", ("wallet/transfers.py",), True),
        checks=checks(passed),
        world={"sandbox": {"kind": "bwrap"}, "workspace": "/workspace"},
        evidence=(FileDigest("patch.diff", "d" * 64, 4),),
        settings={"server.context": 8192, **speculation},
    )
    return replace(made, **changes)


def pair(baseline: Attempt | None = None, candidate: Attempt | None = None) -> Pair:
    return Pair(
        run="20260101-000000",
        id="transfer-repair-4242-0",
        task="transfer-repair",
        seed=4242,
        repeat=0,
        first_arm=Arm.BASELINE,
        variable="server.speculation",
        baseline=baseline or attempt(Arm.BASELINE),
        candidate=candidate or attempt(Arm.CANDIDATE),
        proof=(),
        outcome=PairOutcome.VOID,
        flips=(),
        findings=(),
    )
