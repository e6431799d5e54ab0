"""A run in which everything that others write tries to break out of the report."""

from dataclasses import replace

from agent_ab.divergence import divergence, parting, reply_diff
from agent_ab.model import (
    AgentEnd,
    AgentRun,
    Arm,
    Attempt,
    CheckResult,
    CheckStatus,
    ExchangeLog,
    FileDigest,
    Json,
    Pair,
    Patch,
)
from agent_ab.pair.pair import judge
from agent_ab.report.page import dossier
from agent_ab.report.page.compose import Subject
from agent_ab.report.page.contents import Dossier, RunFacts
from agent_ab.report.page.lines import numbered
from tests.builders import attempt, exchange, pair

MARKUP = (
    "</script><script>window.taken=1</script><img src=x onerror=window.taken=1>\"'><svg onload=window.taken=1>"
    "</textarea></style><!-- {{ 7*7 }} ${7*7} <a href=javascript:window.taken=1>x</a>"
)
TERMINAL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\u202etxt.exe\u2066"
COMMANDS = "\n::error file=a.py,line=1::boom\n##[command]rm -rf\n  ::set-output name=x::y"
SHEET = '=HYPERLINK("http://evil","x")\t@SUM(1)|cmd'
TABLE = "| a | b |\n|---|---|\n[x](javascript:alert(1)) ![x](http://evil/x.png) `code` <b>html</b> @everyone"
ODD = "\ud800\x00\ufeff"
EVIL = MARKUP + TERMINAL + COMMANDS + SHEET + TABLE + ODD
STATE: dict[str, Json] = {"load": 0.1, "cpu_mhz": None, "temperature_c": None, "memory_free_mib": 900, "gpus": []}


def subject() -> Subject:
    """Return a run of one broken pair whose every text is hostile."""
    run = RunFacts(
        id="20260101-000000",
        created_at="2026-01-01T00:00:00+00:00",
        status="finished",
        note=EVIL,
        kind="suite",
        profile=f"profile {EVIL}",
        version="0.1.0",
        plan={"tasks": {EVIL: EVIL}, "source": {EVIL: EVIL}},
        plan_sha256="a" * 64,
        policy_sha256=None,
    )
    return Subject(run, (hostile_pair(),), None, db=f"runs{EVIL}.db")


def dossiers(found: Subject) -> tuple[Dossier, ...]:
    """Return the pairs' data, evidence included."""
    every = numbered(found.pairs)
    return tuple(
        dossier.pack(n.number, dossier.with_evidence(dossier.recorded(n, (), f"runs/{EVIL}"), n.pair), "whole")
        for n in every
    )


def hostile_pair() -> Pair:
    """Return a pair whose checks, conversations, patches, paths and endings are hostile."""
    made = pair(_attempt(Arm.BASELINE, CheckStatus.PASS), _attempt(Arm.CANDIDATE, CheckStatus.FAIL))
    judged = judge(replace(made, task=f"task {EVIL}", variable=f"server.{EVIL}"))
    found = divergence.between(judged.baseline, judged.candidate, reply_diff.recorded({}))
    return replace(judged, divergence=parting.to_json(found), findings=(EVIL, *judged.findings))


def _attempt(arm: Arm, status: CheckStatus) -> Attempt:
    words = f"{arm} {EVIL}"
    call = {"function": {"name": EVIL, "arguments": '{"command": "' + "</script>" + '"}'}}
    log = ExchangeLog(
        (
            exchange(0, request={"messages": [{"role": "user", "content": EVIL}]}, content=EVIL, tool_calls=(call,)),
            exchange(
                1,
                request={"messages": [{"role": EVIL, "content": EVIL}, {"role": "tool", "content": EVIL}]},
                content=words,
                reasoning=words,
                finish_reason=EVIL,
            ),
        ),
        (),
    )
    check = CheckResult(f"check {EVIL}", status, f"because {words}", EVIL, True, 0.1, {"reply": EVIL, EVIL: [EVIL]})
    lines = "".join(f"+{line}\n" for line in words.splitlines())
    patch = Patch(f"diff --git a/{MARKUP} b/{MARKUP}\n@@ -1 +1 @@\n{lines}", (EVIL,), True, (EVIL,))
    return attempt(
        arm,
        checks=(check,),
        log=log,
        patch=patch,
        agent=AgentRun(AgentEnd.CRASHED, 1, 10.0, 120.0, EVIL),
        world={EVIL: EVIL, "agent": {"version": EVIL}},
        machine={"is": {"cpu": words, "cores": 2}, "start": STATE, "end": STATE, "peak": {}, "throttled": [EVIL]},
        settings={"server.context": 8192, f"server.{EVIL}": words},
        evidence=(FileDigest(f"{MARKUP}.diff", "d" * 64, 4),),
    )
