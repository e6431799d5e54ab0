"""Two attempts -> is the pair valid, what did it come to, which checks flipped. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from agent_ab.divergence.request_diff import as_sent, differences, explain_first, odd_requests
from agent_ab.gate.observations import ATTACHED
from agent_ab.model import (
    AgentEnd,
    Arm,
    Attempt,
    Exchange,
    ExchangeLog,
    Flip,
    Json,
    Outcome,
    Pair,
    PairOutcome,
    ProofLine,
    ServerFacts,
)
from agent_ab.pair import conditions
from agent_ab.pair.metrics import measure
from agent_ab.pair.variable import ANYTHING, differ, first_digest, named, one_variable, same_world


def prove(baseline: Attempt, candidate: Attempt, variable: str) -> tuple[ProofLine, ...]:
    """Return the proof that the pair is valid, line by line (docs/how-it-works.md); any line not ok voids the pair."""
    arms = (baseline, candidate)
    broken = [f"{a.arm}: {a.invalid_reason}" for a in arms if a.outcome is Outcome.INVALID]
    lines = [ProofLine("apparatus", not broken, "; ".join(broken) or "both attempts ran to their end")]
    if all(a.server for a in arms):
        lines += [one_variable(baseline, candidate, variable), _arms_applied(arms)]
        if _attached(arms):
            lines[1:] = [replace(line, unproven=True, detail=f"as far as is told: {line.detail}") for line in lines[1:]]
            lines += _nobody_proved(arms)
    if all(a.manifest_sha256 for a in arms):
        lines.append(_same_start(baseline, candidate))
    if all(a.log for a in arms):
        lines += [_same_first_request(baseline, candidate, variable), _no_reuse(arms)]
    lines.append(_same_world(baseline, candidate, variable))
    lines.append(_complete_evidence(arms))
    return tuple(lines)


def outcome(baseline: Attempt, candidate: Attempt, proof: Iterable[ProofLine]) -> PairOutcome:
    """Return what the pair came to."""
    if not all(line.ok for line in proof) or Outcome.INVALID in (baseline.outcome, candidate.outcome):
        return PairOutcome.VOID
    match baseline.outcome, candidate.outcome:
        case Outcome.PASS, Outcome.PASS:
            return PairOutcome.BOTH_PASS
        case Outcome.PASS, _:
            return PairOutcome.BROKEN
        case _, Outcome.PASS:
            return PairOutcome.FIXED
        case _:
            return PairOutcome.BOTH_FAIL


def flips(baseline: Attempt, candidate: Attempt) -> tuple[Flip, ...]:
    """Return the checks whose verdicts differ, in the task's order."""
    theirs = {c.id: c.status for c in candidate.scored}
    return tuple(
        Flip(check.id, check.status, theirs[check.id])
        for check in baseline.scored
        if check.id in theirs and theirs[check.id] is not check.status
    )


def judge(pair: Pair) -> Pair:
    """Return `pair` with its proof, outcome, flips and findings worked out from its two attempts."""
    proof = prove(pair.baseline, pair.candidate, pair.variable)
    return replace(
        pair,
        proven=pair.proven and not any(line.unproven for line in proof),
        proof=proof,
        outcome=outcome(pair.baseline, pair.candidate, proof),
        flips=flips(pair.baseline, pair.candidate),
        findings=(
            *_about_the_agent(pair.baseline),
            *_findings(pair.baseline),
            *_findings(pair.candidate),
            *conditions.differences(pair.baseline.machine, pair.candidate.machine),
        ),
    )


def _arms_applied(arms: tuple[Attempt, Attempt]) -> ProofLine:
    facts: list[tuple[Arm, ServerFacts]] = [(a.arm, a.server) for a in arms if a.server]
    faults = [fault for attempt in arms for fault in _contradictions(attempt)]
    if not faults:
        faults = _other_models(arms)
    detail = "; ".join([*faults, *(f"{arm}: {server.proof}" for arm, server in facts)])
    return ProofLine("arms applied", all(server.speculation_proven for _, server in facts) and not faults, detail)


def _contradictions(attempt: Attempt) -> Iterable[str]:
    """Yield what an attempt showed against its arm: a server without speculation drafts nothing, at any time."""
    if attempt.server is None or attempt.server.spec_type != "none":
        return
    drafted = sum(e.timings.draft_n or 0 for e in attempt.log.exchanges if e.timings) if attempt.log else 0
    drafted = max(drafted, attempt.drafting.drafted if attempt.drafting else 0)
    if drafted:
        yield f"{attempt.arm}: {drafted} tokens were drafted during the attempt, and its speculation is none"


def _other_models(arms: tuple[Attempt, Attempt]) -> list[str]:
    """Return that the first replies to equal requests name different models, unless the arms differ in the model."""
    first = [a.log.exchanges[0] if a.log and a.log.exchanges else None for a in arms]
    servers = [a.server for a in arms]
    left, right = first
    if left is None or right is None or left.agent_sha256 != right.agent_sha256 or not left.model or not right.model:
        return []
    same = servers[0] and servers[1] and servers[0].model_sha256 == servers[1].model_sha256
    if left.model == right.model or not same or any(server and server.unproven for server in servers):
        return []
    return [f"the replies name the model {_short(left.model)} and {_short(right.model)}"]


def _attached(arms: tuple[Attempt, Attempt]) -> bool:
    """Return whether somebody else started a server of the pair."""
    return any(a.server and a.server.unproven for a in arms)


def _nobody_proved(arms: tuple[Attempt, Attempt]) -> Iterable[ProofLine]:
    for attempt in arms:
        if attempt.server and attempt.server.unproven:
            detail = f"of the {attempt.arm}'s server nobody proved {'; '.join(attempt.server.unproven)}"
            yield ProofLine(ATTACHED, True, detail, unproven=True)


def _same_start(baseline: Attempt, candidate: Attempt) -> ProofLine:
    same = (baseline.fixture_commit, baseline.manifest_sha256) == (candidate.fixture_commit, candidate.manifest_sha256)
    if not same:
        return ProofLine(
            "same start", False, f"manifests {baseline.manifest_sha256[:12]} and {candidate.manifest_sha256[:12]}"
        )
    return ProofLine(
        "same start", True, f"commit {baseline.fixture_commit[:12]}, manifest {baseline.manifest_sha256[:12]}"
    )


def _same_first_request(baseline: Attempt, candidate: Attempt, variable: str) -> ProofLine:
    name = "same first request"
    assert baseline.log and candidate.log
    for attempt in (baseline, candidate):
        assert attempt.log
        refused = [r for r in attempt.log.refused if r.reason == "identity"]
        if refused:
            asked = _explained(_first_sent(baseline), _first_sent(candidate)) or f": POST {refused[0].path}"
            return ProofLine(name, False, f"the proxy refused {attempt.arm}'s at once, it asks something else{asked}")
    calls = [a.log.exchanges[0] if a.log and a.log.exchanges else None for a in (baseline, candidate)]
    left, right = calls
    if left is None or right is None:
        silent = [a.arm.value for a, call in zip((baseline, candidate), calls, strict=True) if call is None]
        return ProofLine(name, True, f"no model call at all in: {', '.join(silent)}")
    if left.path != right.path and ANYTHING not in named(variable).request:
        return ProofLine(name, False, f"POST {left.path} and POST {right.path}")
    if keys := named(variable).request:
        return _same_but_for(keys, left, right, variable, differ(baseline, candidate))
    if left.agent_sha256 != right.agent_sha256:
        detail = _explained(_first_sent(baseline), _first_sent(candidate))
        return ProofLine(name, False, f"sha256 {left.agent_sha256[:12]} and {right.agent_sha256[:12]}{detail}")
    # The name that an attached server has for its model is written over the agent's.
    ours = tuple({"model"} & {*left.pinned, *right.pinned})
    arrived = [first_digest(e.request, ours) if ours else e.server_sha256 for e in (left, right)]
    if arrived[0] != arrived[1]:
        return ProofLine(name, False, "the agent asked the same, but different bytes reached the servers")
    return ProofLine(
        name, True, f"POST {left.path}, sha256 {left.agent_sha256} left both agents, {left.server_sha256[:12]} arrived"
    )


def _same_but_for(
    keys: tuple[str, ...], left: Exchange, right: Exchange, variable: str, must_differ: bool
) -> ProofLine:
    """Compare two first requests as they reached the servers, without the `keys` that the variable changes."""
    name = "same first request"
    if ANYTHING in keys:
        detail = _explained(as_sent(left.request, left.pinned), as_sent(right.request, right.pinned))
        return ProofLine(name, True, f"not compared: the requests are {variable}'s own{detail}")
    changed = {k: (left.request.get(k), right.request.get(k)) for k in keys}
    told = [f"{k} ({_short(one)}, {_short(two)})" for k, (one, two) in changed.items() if one != two]
    if must_differ and not told:
        return ProofLine(name, False, f"{variable} differs in the settings and in no request: no arm")
    one, two = (first_digest(e.request, keys) for e in (left, right))
    without = f"without {', '.join(told or keys)}"
    if one == two:
        return ProofLine(name, True, f"sha256 {one} {without}, the variable itself")
    rest = ({k: v for k, v in as_sent(e.request, e.pinned).items() if k not in keys} for e in (left, right))
    return ProofLine(name, False, f"sha256 {one[:12]} and {two[:12]} {without}{_explained(*rest)}")


def _first_sent(attempt: Attempt) -> Json:
    """Return the first request as the agent sent it: the refused one, or the recorded one without the proxy's pins."""
    assert attempt.log
    for refused in attempt.log.refused:
        if refused.reason == "identity" and refused.request is not None:
            return refused.request
    first = attempt.log.exchanges[0] if attempt.log.exchanges else None
    return as_sent(first.request, first.pinned) if first else None


def _explained(left: Json, right: Json) -> str:
    found = explain_first(left, right)
    if found is None:
        return ""
    return f": {found.path} is {_short(found.left)} and {_short(found.right)} ({found.cause})"


def _short(value: Json) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _no_reuse(arms: tuple[Attempt, Attempt]) -> ProofLine:
    faults: list[str] = []
    for attempt in arms:
        assert attempt.log
        for e in attempt.log.exchanges:
            if e.timings and e.timings.cache_n:
                faults.append(f"{attempt.arm} exchange {e.index}: {e.timings.cache_n} cached tokens")
            if e.concurrent:
                faults.append(f"{attempt.arm} exchange {e.index}: another request was open")
        # What a model wrote cannot have run before its first reply: the agent program itself asks twice at once.
        if any(refused.reason == "concurrent-first" for refused in attempt.log.refused):
            faults.append(f"{attempt.arm}: the agent asked again before its first reply had ended")
    counts = " and ".join(str(len(a.log.exchanges)) for a in arms if a.log)
    if _attached(arms):
        untold = sum(e.timings is None for a in arms if a.log for e in a.log.exchanges)
        told = "; ".join(faults[:3]) or f"no cached token is reported in {counts} exchanges, {untold} report nothing"
        return ProofLine("no reuse", True, f"as far as is told: {told}", unproven=True)
    return ProofLine("no reuse", not faults, "; ".join(faults[:3]) or f"cache_n is 0 in all of {counts} exchanges")


def _same_world(baseline: Attempt, candidate: Attempt, variable: str) -> ProofLine:
    leaf = next(differences(same_world(baseline.world, variable), same_world(candidate.world, variable)), None)
    if leaf:
        return ProofLine("same world", False, f"{leaf.path}: {_short(leaf.left)} and {_short(leaf.right)}")
    return ProofLine("same world", True, f"sandbox {baseline.world.get('sandbox', {}).get('kind', '?')}, equal limits")


def _complete_evidence(arms: tuple[Attempt, Attempt]) -> ProofLine:
    missing = [str(a.arm) for a in arms if a.outcome is not Outcome.INVALID and not a.evidence]
    count = sum(len(a.evidence) for a in arms)
    return ProofLine(
        "complete evidence", not missing, f"missing in: {', '.join(missing)}" if missing else f"{count} files, hashed"
    )


def _about_the_agent(attempt: Attempt) -> Iterable[str]:
    """Give what a reader must know of the agent, which is the same in both arms."""
    agent = attempt.world.get("agent") or {}
    if agent.get("clock"):
        yield f"the agent's clock was pinned: each of its processes began at {agent['clock']} UTC"
    if agent.get("remark"):
        yield str(agent["remark"])


def _findings(attempt: Attempt) -> Iterable[str]:
    if attempt.outcome is Outcome.INVALID:
        return
    metrics = measure(attempt)
    speculating = attempt.server is not None and attempt.server.spec_type != "none"
    if not metrics.turns:
        yield f"{attempt.arm}: no model call at all"
    elif speculating and not metrics.drafted:
        yield f"{attempt.arm}: nothing was drafted during the attempt"
    if attempt.agent and attempt.agent.end is not AgentEnd.COMPLETED:
        yield f"{attempt.arm}: the agent's end was: {attempt.agent.end}" + (
            f" ({attempt.agent.note})" if attempt.agent.note else ""
        )
    if attempt.agent and attempt.agent.output_cut:
        yield f"{attempt.arm}: the agent printed more than is kept, its transcript was cut"
    if metrics.http_errors:
        yield f"{attempt.arm}: {metrics.http_errors} of {metrics.turns} requests answered with an HTTP error"
    if metrics.broken_streams:
        yield f"{attempt.arm}: {metrics.broken_streams} replies broke off"
    if metrics.budget_stops:
        yield f"{attempt.arm}: {metrics.budget_stops} generations hit the response budget"
    if attempt.log:
        yield from (f"{attempt.arm}: {words}" for words in _about_the_log(attempt.log))
    if attempt.patch and not attempt.patch.edited_production:
        yield f"{attempt.arm}: no production code was edited"


def _about_the_log(log: ExchangeLog) -> Iterable[str]:
    for odd in odd_requests(log):
        yield f"exchange {odd.exchange} is a {odd.oddity} request: {odd.detail}"
    if log.bodies is not None:
        held = f"the first {log.bodies} of {len(log.exchanges)} exchanges"
        yield f"its exchange log is enormous; only {held} were compared word by word"
    yield from log.remarks
    beside = sum(r.reason.startswith("concurrent") for r in log.refused)
    if beside:
        yield f"the proxy refused {beside} requests because another one was open"
    if any(r.reason == "limit" for r in log.refused):
        yield "its evidence reached the limit, and the proxy passed nothing on after that"
    refused = [r for r in log.refused if r.reason in ("path", "unreadable")]
    if refused:
        yield f"the proxy refused {len(refused)} requests (first: {refused[0].method} {refused[0].path})"
