"""What statistics see of a pair, and which faults make a run impossible to judge. Pure."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from agent_ab.model import AgentEnd, Arm, Attempt, CheckStatus, ExchangeLog, Json, Outcome, Pair, PairOutcome

SNAPSHOT = "snapshot.tar"
ATTACHED = "attached server"
"""The proof line that lists what nobody proved of a server."""
NAMES_SHOWN = 3
"""So many checks are named in a fault."""
LIMIT_SLACK, LIMIT_GRACE_S = 1.1, 40.0
"""An agent may outlive its limit by so much before it has ended (`exit_limit_s`, then SIGTERM, then SIGKILL)."""
CONTROL_KINDS = ("aa", "controls")
"""Kinds of runs that test the apparatus: in them a repeated conversation counts."""


@dataclass(frozen=True, slots=True)
class Side:
    """One arm's attempt."""

    passed: int
    scored: int
    checks: Mapping[str, bool]
    """Scored checks by id; empty when only their number is known."""
    seconds: float | None
    """Wall clock of the agent; None when it is not known."""
    censored: bool = False
    """Cut at its time limit."""
    settings: str = ""
    """sha256 of the arm's resolved settings; empty when they are not known."""
    conversation: str = ""
    """sha256 of all that the model said, in order; empty when it is not known."""
    snapshot: str = ""
    """sha256 of the frozen workspace; empty when it is not known."""

    @property
    def solved(self) -> bool:
        """Return whether every scored check passed."""
        return self.scored > 0 and self.passed == self.scored

    @property
    def share(self) -> float:
        """Return the share of checks passed. Raises ZeroDivisionError without checks."""
        return self.passed / self.scored


@dataclass(frozen=True, slots=True)
class Observation:
    """One pair as it was played."""

    pair: str
    """Its id within the run."""
    task: str
    seed: int
    repeat: int
    block: int
    first_arm: Arm | None
    """None when it is not known."""
    outcome: PairOutcome
    baseline: Side | None
    """None: this arm has no attempt."""
    candidate: Side | None
    proven: bool = True
    unproven: tuple[str, ...] = ()
    """Of a pair that is not proven: what nobody proved, a clause each; empty when that is not known."""
    broke: Arm | None = None
    """Of a VOID pair: whose attempt broke; None when both ran and the proof failed."""
    reason: str = ""
    """Of a VOID pair: why."""
    set_aside: frozenset[str] = frozenset()
    """Checks that a review has measured to disagree with themselves on one snapshot of this run."""

    @property
    def valid(self) -> bool:
        """Return whether the pair counts."""
        return self.outcome is not PairOutcome.VOID

    @property
    def slot(self) -> tuple[str, int, int]:
        """Return what was planned: task, seed and repeat; tries of one slot replace each other."""
        return self.task, self.seed, self.repeat

    @property
    def difference(self) -> float:
        """Return the candidate's share of checks passed minus the baseline's, free of rounding."""
        assert self.baseline and self.candidate
        return round(self.candidate.share - self.baseline.share, 12)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the verdict must know of the run besides its pairs."""

    id: str
    kind: str
    """`pair`, `suite`, `aa`, `controls` or `import`."""
    profile: str
    variable: str
    planned: Mapping[int, int]
    """Number of planned pairs by block; blocks added by an extension included."""
    extended: bool = False
    """Blocks were added after the plan was made."""
    running: bool = False
    """Still being played: what is VOID may yet be played again."""
    control: bool = False
    """A control arm or an A/A run: a repeated conversation counts."""
    pair_s: float | None = None
    """Mean seconds that a pair takes, apparatus included; None when it is not known."""
    faults: tuple[str, ...] = ()
    """What is wrong with the run as a whole, a sentence each."""


sort_key: Callable[[Observation], tuple[int, str, int, int, str]] = attrgetter(
    "block", "task", "seed", "repeat", "pair"
)
"""The order in which pairs count, whatever the order in which they are stored."""


def conversation_digest(log: ExchangeLog | None) -> str:
    """Return the sha256 of all that the model said, in order; empty when that is not known.

    Not of what it was asked: tools print durations, dates and ids, and if the model answers the same to them, word for
    word, nothing new was seen. Ids of tool calls are the server's dice, and left out.
    """
    if log is None:
        return ""
    digest = hashlib.sha256()
    for e in log.exchanges:
        calls = [call.get("function") if isinstance(call, dict) else call for call in e.tool_calls]
        said = [e.status, e.content, e.reasoning, calls, e.finish_reason, e.error]
        digest.update(json.dumps(said, sort_keys=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def settings_digest(settings: Mapping[str, Json]) -> str:
    """Return the sha256 of an arm's resolved settings; empty when there are none."""
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest() if settings else ""


def observe(pair: Pair, set_aside: frozenset[str] = frozenset()) -> Observation:
    """Return what statistics see of `pair`; its logs must hold the replies, as they do when read from the evidence."""
    invalid = [a for a in (pair.baseline, pair.candidate) if a.outcome is Outcome.INVALID]
    faults = [f"{line.name}: {line.detail}" for line in pair.proof if not line.ok]
    return Observation(
        pair=pair.id,
        task=pair.task,
        seed=pair.seed,
        repeat=pair.repeat,
        block=pair.block,
        first_arm=pair.first_arm,
        outcome=pair.outcome,
        baseline=_side(pair.baseline),
        candidate=_side(pair.candidate),
        proven=pair.proven,
        unproven=tuple(line.detail for line in pair.proof if line.name == ATTACHED),
        broke=who_broke([(a.arm, a.invalid_reason) for a in invalid]),
        reason=faults[0] if faults else "",
        set_aside=set_aside,
    )


def who_broke(invalid: Sequence[tuple[Arm, str]]) -> Arm | None:
    """Return the arm whose attempt broke, of the INVALID ones with their reasons: not one that was not played."""
    return next((arm for arm, reason in invalid if not reason.startswith("not played")), None)


def _side(attempt: Attempt) -> Side | None:
    if attempt.outcome is Outcome.INVALID:
        return None
    snapshot = next((f.sha256 for f in attempt.evidence if f.path == SNAPSHOT), "")
    return Side(
        passed=attempt.passed,
        scored=attempt.total,
        checks={check.id: check.status is CheckStatus.PASS for check in attempt.scored},
        seconds=attempt.agent.duration_s if attempt.agent else None,
        censored=attempt.agent is not None and attempt.agent.end is AgentEnd.TIMEOUT,
        settings=settings_digest(attempt.settings),
        conversation=conversation_digest(attempt.log),
        snapshot=snapshot,
    )


def flaky(observation: Observation) -> frozenset[str]:
    """Return the checks that gave two verdicts on this pair's snapshots though both are the same, byte for byte."""
    left, right = observation.baseline, observation.candidate
    if not left or not right or not left.snapshot or left.snapshot != right.snapshot:
        return frozenset()
    return frozenset(name for name, passed in left.checks.items() if right.checks.get(name, passed) != passed)


def without(observation: Observation, checks: Iterable[str]) -> Observation:
    """Return the observation without `checks`, in both arms alike."""
    names = frozenset(checks)
    left, right = observation.baseline, observation.candidate
    if not names or not left or not right or not names & left.checks.keys():
        return observation
    return replace(observation, baseline=_lessened(left, names), candidate=_lessened(right, names))


def _lessened(side: Side, names: frozenset[str]) -> Side:
    kept = {name: passed for name, passed in side.checks.items() if name not in names}
    return replace(side, checks=kept, passed=sum(kept.values()), scored=len(kept))


def faults(run: RunFacts, observations: Sequence[Observation]) -> tuple[str, ...]:
    """Return, a sentence each, what makes the run impossible to judge."""
    found = list(run.faults)
    valid = [o for o in observations if o.valid]
    played: dict[tuple[str, int, int], str] = {}
    for o in valid:
        slot = o.slot
        if slot in played:
            found.append(f"{o.pair}: a duplicate of {played[slot]}: task, seed and repeat are the same")
        else:
            played[slot] = o.pair
        if not (_sound(o.baseline) and _sound(o.candidate)):
            sides = ((Arm.BASELINE, o.baseline), (Arm.CANDIDATE, o.candidate))
            found += [f"{o.pair}: {line}" for arm, side in sides for line in side_faults(arm, side)]
    if not run.running:
        found += _unresolved(observations, played)
    found += _check_set_faults(valid)
    found += _setting_faults(run, valid)
    found += _limit_faults(valid)
    return tuple(found)


def _sound(side: Side | None) -> bool:
    """Return whether `side_faults` has nothing to say, which it almost never has."""
    if side is None or not side.scored or not 0 <= side.passed <= side.scored:
        return False
    return side.seconds is None or 0 < side.seconds < math.inf


def side_faults(arm: Arm, side: Side | None) -> Iterable[str]:
    """Yield, a clause each, what makes an arm's attempt impossible to judge."""
    if side is None:
        yield f"the {arm} has no attempt; a pair needs both arms"
        return
    if not side.scored:
        yield f"no check was scored in the {arm}"
    elif not 0 <= side.passed <= side.scored:
        yield f"{side.passed} of {side.scored} checks passed in the {arm}, which is not possible"
    if side.seconds is not None and not (math.isfinite(side.seconds) and side.seconds > 0):
        what = "negative" if side.seconds < 0 else "not a number" if math.isnan(side.seconds) else "no time"
        yield f"the wall time of the {arm} is {side.seconds}: {what}"


def _unresolved(observations: Sequence[Observation], played: Mapping[tuple[str, int, int], str]) -> Iterable[str]:
    said = set()
    for o in observations:
        if not o.valid and o.slot not in played and o.slot not in said:
            said.add(o.slot)
            whose = f"the {o.broke} broke" if o.broke else "identity is not proven"
            yield (
                f"{o.pair}: VOID, {whose}, and no later try of it is valid"
                + (f" ({o.reason})" if o.reason else "")
                + "; `agent-ab run --resume` plays it again while the policy's void_retries allow it"
            )


def _check_set_faults(valid: Sequence[Observation]) -> Iterable[str]:
    sets: dict[str, tuple[str, frozenset[str], int]] = {}
    seen: set[tuple[str, int, int, int, int]] = set()
    for o in valid:
        if o.baseline is None or o.candidate is None:
            continue
        left, right = o.baseline, o.candidate
        # Results that come as the same objects, as the database's do, are the same again.
        alike = (o.task, id(left.checks), id(right.checks), left.scored, right.scored)
        if alike in seen:
            continue
        if left.checks.keys() != right.checks.keys() or left.scored != right.scored:
            yield f"{o.pair}: the arms were judged by different check sets: {_lacking(left, right)}"
            continue
        first = sets.setdefault(o.task, (o.pair, frozenset(left.checks), left.scored))
        if first[1] != left.checks.keys() or first[2] != left.scored:
            yield f"{o.pair}: judged by another check set than {first[0]} of the same task"
            continue
        seen.add(alike)


def _lacking(left: Side, right: Side) -> str:
    """Return which arm lacks which checks of the other."""
    lacks = (
        (Arm.BASELINE, right.checks.keys() - left.checks.keys()),
        (Arm.CANDIDATE, left.checks.keys() - right.checks.keys()),
    )
    told = [f"the {arm} lacks {_named(names)}" for arm, names in lacks if names]
    return "; ".join(told) or f"{left.scored} in the baseline, {right.scored} in the candidate"


def _named(names: Iterable[str]) -> str:
    listed = sorted(names)
    rest = len(listed) - NAMES_SHOWN
    return ", ".join(listed[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _limit_faults(valid: Sequence[Observation]) -> Iterable[str]:
    """Yield where an arm was cut long before the other one was: a saving would be the limit's, not the arm's."""
    cut: dict[tuple[str, Arm], tuple[float, str]] = {}
    longest: dict[tuple[str, Arm], tuple[float, str]] = {}
    for o in valid:
        for arm, side in ((Arm.BASELINE, o.baseline), (Arm.CANDIDATE, o.candidate)):
            if side is None or side.seconds is None:
                continue
            key, seen = (o.task, arm), (side.seconds, o.pair)
            if side.censored:
                cut[key] = min(cut.get(key, seen), seen)
            longest[key] = max(longest.get(key, seen), seen)
    for (task, arm), (limit_s, pair) in cut.items():
        other = Arm.CANDIDATE if arm is Arm.BASELINE else Arm.BASELINE
        ran_s, where = longest.get((task, other), (0.0, ""))
        if ran_s > LIMIT_SLACK * limit_s + LIMIT_GRACE_S:
            yield (
                f"{pair}: the {arm} was cut at its time limit after {limit_s:.1f} s, and the {other} ran for {ran_s:.1f} s"
                f" on the same task ({where}): the arms had different time limits"
            )


def _setting_faults(run: RunFacts, valid: Sequence[Observation]) -> Iterable[str]:
    planned_equal = run.kind == "aa"
    settings: dict[Arm, str] = {}
    expected: tuple[str, str] | None = None
    for o in valid:
        if o.baseline is None or o.candidate is None or not o.baseline.settings or not o.candidate.settings:
            continue
        both = o.baseline.settings, o.candidate.settings
        if both == expected:
            continue
        same = both[0] == both[1]
        if same and not planned_equal:
            yield f"{o.pair}: both arms had the same setting, in a run that was planned as a comparison"
        if not same and planned_equal:
            yield f"{o.pair}: the arms had different settings, in a run that was planned as A/A"
        if same == planned_equal and not settings:
            expected = both
        for arm, side in ((Arm.BASELINE, o.baseline), (Arm.CANDIDATE, o.candidate)):
            if settings.setdefault(arm, side.settings) != side.settings:
                yield f"{o.pair}: the {arm}'s settings are not those of the pairs before"
