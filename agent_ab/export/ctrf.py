"""A run as a CTRF report (Common Test Report Format), which CI services and their plug-ins read. Pure.

A test case is one check in one pair. `failed` is what the candidate broke and nothing else: a check that fails in both
arms is `other`, since it says nothing against the candidate, and a VOID pair's checks are `skipped`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from agent_ab import __version__
from agent_ab.model import Attempt, CheckCount, CheckResult, CheckStatus, Json, Pair
from agent_ab.verdict.verdict import Decision, Verdict
from agent_ab.wording import visible

SPEC_VERSION = "0.1.0"
STATUSES = ("passed", "failed", "skipped", "pending", "other")
_DECIDED = {Decision.ADOPT: "passed", Decision.REJECT: "failed", Decision.INVALID: "failed"}


def report(run_id: str, pairs: Iterable[Pair], verdict: Verdict | None = None) -> Json:
    """Return a run as a CTRF document; the verdict is a test case of its own."""
    tests: list[dict[str, Json]] = []
    moments: list[int] = []
    for pair in pairs:
        tests += _cases(pair)
        for attempt in (pair.baseline, pair.candidate):
            moments += _span(attempt)
    if verdict is not None:
        tests.append(_verdict_case(run_id, verdict))
    counts = Counter(test["status"] for test in tests)
    start, stop = (min(moments), max(moments)) if moments else (0, 0)
    summary = {"tests": len(tests), **{status: counts[status] for status in STATUSES}, "start": start, "stop": stop}
    return {
        "reportFormat": "CTRF",
        "specVersion": SPEC_VERSION,
        "generatedBy": f"agent_ab {__version__}",
        "results": {"tool": {"name": "agent_ab", "version": __version__}, "summary": summary, "tests": tests},
    }


def _cases(pair: Pair) -> Iterator[dict[str, Json]]:
    theirs = {check.id: check for check in pair.candidate.scored}
    mine = {check.id: check for check in pair.baseline.scored}
    for check_id in mine | theirs:
        yield _case(pair, check_id, mine.get(check_id), theirs.get(check_id))
    if pair.baseline.counted and pair.candidate.counted:
        yield _case_of_number(pair, pair.baseline.counted, pair.candidate.counted)


def _case_of_number(pair: Pair, mine: CheckCount, theirs: CheckCount) -> dict[str, Json]:
    """Return the one case of a pair whose checks are not known one by one."""
    told = f"{mine.passed} of {mine.scored} checks passed in the baseline, {theirs.passed} of {theirs.scored} in the candidate"
    status = "failed" if theirs.passed < mine.passed else "passed" if theirs.passed == theirs.scored else "other"
    return _case(pair, "number of checks", None, None) | {
        "status": status,
        "message": told,
    }


def _case(pair: Pair, check_id: str, mine: CheckResult | None, theirs: CheckResult | None) -> dict[str, Json]:
    status, message = _judged(pair, mine, theirs)
    case: dict[str, Json] = {
        "name": f"{check_id} ({pair.id})",
        "status": status,
        "duration": round(1000 * (theirs.duration_s if theirs else 0.0)),
        "suite": [pair.task, pair.id],
        "labels": {
            "run": pair.run,
            "pair": pair.id,
            "seed": pair.seed,
            "outcome": pair.outcome.value,
            "baseline": mine.status.value if mine else "absent",
            "candidate": theirs.status.value if theirs else "absent",
        },
    }
    return case | ({"message": message} if message else {})


def _judged(pair: Pair, mine: CheckResult | None, theirs: CheckResult | None) -> tuple[str, str]:
    if not pair.valid:
        return "skipped", visible("; ".join(f"{line.name}: {line.detail}" for line in pair.proof if not line.ok))
    if mine is None or theirs is None:
        return "other", "one arm lacks this check"
    if theirs.status is CheckStatus.PASS:
        return "passed", ""
    if mine.status is CheckStatus.PASS:
        return "failed", visible(f"passed in the baseline, failed in the candidate: {theirs.reason}")
    return "other", visible(f"failed in both arms: {theirs.reason}")


def _verdict_case(run_id: str, verdict: Verdict) -> dict[str, Json]:
    return {
        "name": f"verdict: {verdict.decision}",
        "status": _DECIDED.get(verdict.decision, "other"),
        "duration": 0,
        "suite": ["verdict"],
        "message": visible(" ".join(_sentences(verdict.reasons))),
        "labels": {"run": run_id, "exit_status": verdict.exit_status},
    }


def _sentences(reasons: Sequence[str]) -> Iterator[str]:
    return (reason if reason.endswith(".") else f"{reason}." for reason in reasons)


def _span(attempt: Attempt) -> tuple[int, ...]:
    """Return when an attempt began and ended, in milliseconds since 1970; nothing when it does not say."""
    try:
        start = datetime.fromisoformat(attempt.started_at).timestamp()
    except ValueError:
        return ()
    return round(1000 * start), round(1000 * (start + attempt.duration_s))
