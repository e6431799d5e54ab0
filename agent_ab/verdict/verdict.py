"""The verdict's nouns: what the gate decided, why, and every number behind it. Decides nothing; the gate does."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from agent_ab.model import Json

SCHEMA = 2
"""Version of `to_json`'s shape: 1, the first; 2, `needed.as_observed` in place of `needed.pairs_as_observed`."""


class Decision(StrEnum):
    """What to do about the candidate."""

    INVALID = "INVALID"
    REJECT = "REJECT"
    ADOPT = "ADOPT"
    INCONCLUSIVE = "INCONCLUSIVE"


EXIT_STATUS: Mapping[Decision, int] = {
    Decision.ADOPT: 0,
    Decision.REJECT: 1,
    Decision.INCONCLUSIVE: 3,
    Decision.INVALID: 4,
}


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval; an open end is None."""

    low: float | None
    high: float | None
    level: float
    """0.95 for example."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pairs there are, and how many of them count."""

    planned: int
    """Pairs of the plan, extensions included; for imported data, the pairs in the file."""
    counted: int
    """Pairs that the numbers stand on: of whole blocks, a repeated conversation once."""
    blocks: int
    """Whole blocks."""
    unfinished: int
    """Pairs of blocks that are not whole yet; left out."""
    repeated: int
    """Pairs in which both models say, word for word, what they said in an earlier pair of their task; left out."""
    unproven: int
    """Counted pairs of which nobody proved that only the declared variable differed."""
    voids_baseline: int
    """VOID tries in which the baseline's attempt broke."""
    voids_candidate: int
    voids_identity: int
    """VOID tries in which both attempts ran and the proof failed."""


@dataclass(frozen=True, slots=True)
class ClusteredTest:
    """A McNemar test on checks that knows which of them belong together."""

    name: str
    """Obuchowski 1998, Durkalski 2003 or Yang 2010."""
    cluster: str
    """`pair` or `task`."""
    statistic: float
    p: float


@dataclass(frozen=True, slots=True)
class Correctness:
    """The share of checks that pass, candidate minus baseline, over pairs."""

    pairs: int
    passed_baseline: int
    passed_candidate: int
    checks: int
    """Checks in all pairs, of one arm."""
    mean: float
    """Mean difference of the shares; below 0: the candidate is worse."""
    sd: float | None
    interval: Interval
    """t interval of the mean over pairs; for a number of pairs that was fixed beforehand."""
    lower: float
    """One-sided lower bound, the zero-variance guard included."""
    guarded: bool
    """The bound of a share (1 - alpha^(1/n)) made `lower`: too few pairs differ for a t bound."""
    p_t: float | None
    p_sign_flip: float
    sign_flip_exact: bool
    """False: `p_sign_flip` is by simulation, which shows none below 0.00005."""
    task_interval: Interval | None
    """t interval of the mean over tasks: for a claim about tasks that were not played. None below 2 tasks."""
    always_valid: Interval
    """Betting confidence sequence: holds however often it was looked at."""
    lower_always: float
    """Its one-sided lower bound: above minus the margin just when the evidence for non-inferiority is enough."""
    solved_always_valid: Interval
    """The same confidence sequence for the difference of solved tasks (+1 fixed, -1 broken, 0 same), a share of all tasks."""
    solved_lower_always: float
    both: int
    """Pairs solved in both arms."""
    broken: int
    fixed: int
    neither: int
    p_solved_exact: float
    """McNemar over pairs, solved or not."""
    p_solved_mid: float
    design_effect: float | None
    effective_checks: float | None
    """How many independent checks all the checks are worth; never more than there are."""
    order_effect: float | None
    """Half of what being played first is worth, in shares of checks; None unless both orders were played."""
    clustered: tuple[ClusteredTest, ...]

    @property
    def worse(self) -> bool:
        """Return whether an always-valid sequence lies below 0: `if nothing differs` is then no assumption to plan by."""
        return any(bound.high is not None and bound.high < 0 for bound in (self.always_valid, self.solved_always_valid))


@dataclass(frozen=True, slots=True)
class EValues:
    """The evidence that decides; each holds at every block end, however often it was looked at."""

    harm: float
    """Against `the candidate passes no fewer checks and solves no fewer tasks`: the mean of the next two."""
    harm_checks: float
    harm_solved: float
    noninferior: float
    """Against `the candidate loses the margin of checks or more`."""
    noninferior_solved: float
    """Against `the candidate loses the margin of solved tasks or more`."""
    faster: float
    """Against `the candidate is no faster`."""
    needed: float
    """1 / alpha."""

    @property
    def no_worse(self) -> bool:
        """Return whether both margins, of checks and of solved tasks, are shown to be kept."""
        return min(self.noninferior, self.noninferior_solved) >= self.needed


@dataclass(frozen=True, slots=True)
class PathPoint:
    """The evidence at the end of one block."""

    block: int
    pairs: int
    harm: float
    noninferior: float
    noninferior_solved: float
    faster: float


@dataclass(frozen=True, slots=True)
class Time:
    """Wall time of the agent, candidate against baseline, over all counted pairs, solved or not."""

    pairs: int
    """Pairs with both times; the others are left out."""
    faster: int
    """Pairs in which the candidate was known to take less than the policy's ratio."""
    slower: int
    equal: int
    """Pairs whose ratio is just the policy's; with 1, ties."""
    unknown: int
    """Pairs in which both arms were cut at the limit: which one is faster is not known."""
    censored_baseline: int
    """Attempts cut at their time limit."""
    censored_candidate: int
    ratio: float | None = None
    """Geometric mean of candidate / baseline; a time cut at the limit counts as the limit. None: all pairs are `unknown`."""
    interval: Interval | None = None
    ratio_censored: float | None = None
    """The same with times at the limit as censored (Tobit); None when nothing was cut or it cannot be fitted."""
    hodges_lehmann: float | None = None
    p_wilcoxon: float | None = None
    ratio_of_sums: float | None = None
    mean_baseline_s: float | None = None
    """Mean of min(time, limit)."""
    mean_candidate_s: float | None = None
    solved_per_hour_baseline: float | None = None
    solved_per_hour_candidate: float | None = None
    solved_per_hour_ratio: float | None = None
    solved_per_hour_interval: Interval | None = None

    @property
    def known_ratio(self) -> float | None:
        """Return the ratio that may be said of the arms; None when a cut candidate would have to count as a saving."""
        if self.ratio is None or not self.censored_candidate:
            return self.ratio
        if self.ratio_censored is not None:
            return max(self.ratio, self.ratio_censored)
        return self.ratio if self.ratio >= 1 else None


@dataclass(frozen=True, slots=True)
class CheckEvidence:
    """One check over its task's pairs."""

    task: str
    check: str
    pairs: int
    broken: int
    fixed: int
    p: float
    """McNemar, exact, two-sided."""
    p_holm: float
    p_bh: float
    e: float
    """Evidence that it fails more often in the candidate; holds at every block end."""
    regressed: bool
    """Corrected over all checks, the evidence supports saying so."""


@dataclass(frozen=True, slots=True)
class ObservedFlip:
    """One check that differed within one pair: an observation, not a regression."""

    pair: str
    task: str
    check: str
    broken: bool
    """True: passed in the baseline and failed in the candidate; False: the other way round."""


@dataclass(frozen=True, slots=True)
class ArmOfTask:
    """One arm's results on one task."""

    solved: int
    share: float
    """Mean share of checks passed."""
    pass_at: tuple[float, ...]
    """pass@1, pass@2 ... up to the number of pairs, 5 at most: at least one of k attempts solves the task."""
    pass_all: tuple[float, ...]
    """pass^1, pass^2 ...: all of k attempts solve it."""


@dataclass(frozen=True, slots=True)
class TaskEvidence:
    """One task's pairs."""

    task: str
    pairs: int
    mean: float
    """Mean difference of the shares of checks passed."""
    baseline: ArmOfTask
    candidate: ArmOfTask
    time_share: float | None = None
    """Of the time that all counted pairs took, in both arms; None when a time is not known."""
    constant: bool = False
    """Every attempt of both arms passed the same number of checks, in two pairs or more: the task says nothing of the setting."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the gate will say if the pairs to come are like those so far (agent_ab/gate/outlook.py)."""

    decision: Decision
    """The most common one; INCONCLUSIVE: mostly none within 1,000 more pairs."""
    share: float
    """Of the simulated continuations that end so."""
    more: int | None
    """More pairs until then, median; None when undecided."""
    low: int | None
    """10 % of them take fewer than this."""
    high: int | None
    """90 %."""


@dataclass(frozen=True, slots=True)
class Needed:
    """How many pairs a decision takes, and how long they run."""

    pairs_fixed: int | None
    """In all, of a fixed-size one-sided non-inferiority t test of power 0.8, when nothing differs in truth; None: unknown sd."""
    pairs_anytime: int | None
    """In all, until this gate's own evidence shows non-inferiority, when nothing differs in truth. None: beyond reach."""
    as_observed: Forecast | None
    """If the run goes on as it did so far; None: cannot be said, with fewer than two whole blocks."""
    pair_s: float | None
    """Mean time of a pair so far."""
    contradicted: bool
    """The evidence of harm is past half of its way, on the logarithmic scale: `nothing differs` is then no assumption to plan by."""
    more: int | None
    """Pairs still needed if in truth nothing differs: `pairs_anytime` minus those counted."""
    hours: float | None
    """How long those take, at the mean time of a pair so far."""
    smallest_effect: float | None
    """Difference that this many pairs find with probability 0.8."""

    def afresh(self, pairs: int) -> tuple[int | None, float | None]:
        """Return `more` and `hours` where the `pairs` so far are not among those that decide."""
        if self.more is None:
            return None, None
        return self.more + pairs, self.hours * (self.more + pairs) / self.more if self.hours and self.more else None


@dataclass(frozen=True, slots=True)
class ControlState:
    """What is known of the apparatus itself, for the same baseline, model, binary and tasks."""

    name: str
    """`A/A`, `placebo`, `known-bad`."""
    run: str
    """The run that says so; empty when there is none."""
    ok: bool | None
    """None: not known."""
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `agent-ab gate` says of a run."""

    run: str
    kind: str
    profile: str
    variable: str
    decision: Decision
    reasons: tuple[str, ...]
    """Plain sentences; the first one says what decided."""
    warnings: tuple[str, ...]
    """What a reader must know besides."""
    policy: Mapping[str, Json]
    """The policy that judged."""
    policy_sha256: str
    counts: Counts
    correctness: Correctness | None
    """None when there is nothing to count."""
    evidence: EValues | None
    time: Time | None
    needed: Needed | None
    path: tuple[PathPoint, ...]
    """At every block end, thinned to 200 points."""
    checks: tuple[CheckEvidence, ...]
    """Checks that differed at least once, most broken first; empty when the checks are not known one by one."""
    quarantined: tuple[tuple[str, str], ...]
    """Checks, as (task, check), that count in neither arm: they gave two verdicts on one snapshot in the A/A run."""
    unchanged: tuple[tuple[str, str], ...]
    """Checks, as (task, check), that came out alike in every pair."""
    flips: tuple[ObservedFlip, ...]
    """The first 1000, in the order of the pairs."""
    tasks: tuple[TaskEvidence, ...]
    controls: tuple[ControlState, ...]

    @property
    def exit_status(self) -> int:
        """Return the exit status of `agent-ab gate`."""
        return EXIT_STATUS[self.decision]


def to_json(verdict: Verdict) -> Json:
    """Return `verdict` as JSON-able data; `verdict` in it is the decision's word, checks are `task/check`."""
    data = asdict(verdict)
    for key in ("quarantined", "unchanged"):
        data[key] = ["/".join(check) for check in data[key]]
    return {"schema": SCHEMA, "verdict": data.pop("decision"), "exit_status": verdict.exit_status, **data}
