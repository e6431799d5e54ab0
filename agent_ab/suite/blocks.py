"""More than two arms: the baseline and several candidates play each task and seed once, each candidate a pair with it.

Every candidate is a run of its own, so that gate, report and review read it like any other; the baseline's attempt is
played once for all of them and its evidence is in each. What is shared is not independent: each run's policy has
alpha / number of candidates (Bonferroni, whatever the dependence; e-values hold at every block end), written into its
plan before anything starts. A candidate that its run's gate rejects at the end of a block is not played any more.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent_ab import run, schedule
from agent_ab.attempt import not_played, run_attempt
from agent_ab.config import Profile
from agent_ab.errors import ApparatusError, UserError
from agent_ab.gate.judged import verdict_of
from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, Attempt, Event, Observer, Outcome, Pair, RunStatus, ServerLife
from agent_ab.paths import RunPaths
from agent_ab.schedule import PlannedPair, Tried, next_try
from agent_ab.snapshot import remove
from agent_ab.store.store import Store
from agent_ab.suite import plan as suite_plan
from agent_ab.suite import suite
from agent_ab.suite.plan import Asked
from agent_ab.suite.suite import Show
from agent_ab.verdict.verdict import Decision, Verdict
from agent_ab.wording import counted
from agent_ab.workbench import Bench


@dataclass(slots=True)
class Candidate:
    """One candidate and its run."""

    name: str
    ready: suite_plan.Suite
    paths: RunPaths
    verdict: Verdict | None = None
    """At the last block end."""

    @property
    def run(self) -> str:
        """Return its run's id."""
        return self.paths.root.name

    @property
    def rejected(self) -> bool:
        """Return whether it costs no more time."""
        return self.verdict is not None and self.verdict.decision is Decision.REJECT

    @property
    def profile(self) -> str:
        """Return the name of its profile."""
        return self.ready.asked.profile.name

    def bench(self, planned: PlannedPair) -> Bench:
        """Return what plays it on the pair's task."""
        return self.ready.benches[planned.task]


def shared(policy: Policy, candidates: int) -> Policy:
    """Return the policy of one of so many candidates: together they err no more often than one would."""
    return policy.model_copy(update={"alpha": policy.alpha / candidates})


def order(candidates: Sequence[str], planned: PlannedPair) -> tuple[str, ...]:
    """Return the arms of one task and seed in their order of play; an empty name is the baseline.

    The candidates rotate from block to block; the baseline is first or last, as the seed's order says.
    """
    start = planned.block % len(candidates)
    rotated = (*candidates[start:], *candidates[:start])
    return ("", *rotated) if planned.first_arm is Arm.BASELINE else (*reversed(rotated), "")


def play(
    profile: Profile, ask: Callable[[Profile, int], Asked], places: tuple[Path, Path], store: Store, show: Show
) -> tuple[Candidate, ...]:
    """Play what is left of all candidates' runs, block by block; interrupted, the same call goes on.

    `ask` makes the plan of one candidate's profile, given their number; `places`: the tasks, and where the runs go.
    Raises UserError, ApparatusError.
    """
    tasks_dir, runs_dir = places
    if len(profile.candidates) < 2:
        raise UserError(
            f"the profile {profile.name} has {len(profile.candidates)} named candidates: blocks need at least two, as"
            " [candidates.NAME.server.speculation]"
        )
    if profile.server_life is not ServerLife.FRESH:
        raise UserError('server_life: blocks start a fresh server for every attempt; set server_life = "fresh"')
    candidates = []
    for name in profile.candidates:
        ready = suite_plan.make_ready(ask(profile.only(name), len(profile.candidates)), tasks_dir, show.step)
        candidates.append(Candidate(name, ready, suite_plan.begin_or_resume(ready, store, runs_dir)))
    playing = Sitting(tuple(candidates), store, show)
    try:
        for block in range(len(candidates[0].ready.asked.seeds)):
            playing.block(block)
    except BaseException as error:
        # When the database cannot be written, the next start finds the runs still running, and puts them in order.
        with suppress(ApparatusError, UserError):
            playing.end("interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}")
        raise
    playing.end()
    return tuple(candidates)


def rejection(candidate: Candidate, left: int) -> str:
    """Return the line that says at once that a candidate is rejected."""
    assert candidate.verdict
    counts = candidate.verdict.counts
    pairs = counted(counts.counted + counts.repeated, "pair")
    return f"{candidate.name}: REJECT after {pairs}{', not played further' if left else ''} (run {candidate.run})"


class Sitting:
    """The state of one sitting."""

    def __init__(self, candidates: tuple[Candidate, ...], store: Store, show: Show) -> None:
        self._candidates, self._store, self._show = candidates, store, show
        for candidate in candidates:
            store.end_run(candidate.run, RunStatus.RUNNING)
            now = suite.standing(store.run(candidate.run), store)
            line = f"{candidate.name}: run {candidate.run}, {now.done} of {counted(now.pairs, 'pair')} done"
            show.step(Event(None, None, line, lasting=True))
            self._judge(candidate)

    def block(self, number: int) -> None:
        """Play one block with all candidates that are not rejected, and read the evidence at its end."""
        active = self._active()
        if not active:
            return
        for planned in active[0].ready.grid.block(number):
            self._set(active, planned)
        for candidate in active:
            self._judge(candidate)

    def end(self, why: str = "") -> None:
        """Note in the database how each run ended, and `why` those did that are not rejected."""
        for candidate in self._candidates:
            if not candidate.rejected:
                left = self._left(candidate)
                self._store.end_run(
                    candidate.run, RunStatus.STOPPED if left else RunStatus.FINISHED, why if left else ""
                )

    def _active(self) -> list[Candidate]:
        return [candidate for candidate in self._candidates if not candidate.rejected]

    def _judge(self, candidate: Candidate) -> None:
        """Read the evidence; a rejection is told and stored at once, whatever happens to what is still played."""
        if not self._store.pair_states(candidate.run):
            return
        candidate.verdict = verdict_of(self._store, candidate.run)
        if candidate.rejected:
            left = len(self._left(candidate))
            status = RunStatus.STOPPED if left else RunStatus.FINISHED
            self._store.end_run(candidate.run, status, f"rejected: {candidate.verdict.reasons[0]}")
            self._show.step(Event(None, None, rejection(candidate, left), lasting=True))

    def _left(self, candidate: Candidate) -> tuple[PlannedPair, ...]:
        return suite.standing(self._store.run(candidate.run), self._store).left

    def _due(self, candidate: Candidate, planned: PlannedPair) -> PlannedPair | None:
        states = self._store.pair_states(candidate.run)
        tried = [Tried((s.task, s.seed, s.repeat, s.again), s.attempted, s.outcome) for s in states]
        return next_try(planned, tried, candidate.ready.asked.policy.void_retries)

    def _set(self, active: Sequence[Candidate], planned: PlannedPair) -> None:
        """Play one task and seed with every candidate for which it is due; what stays VOID alone, as pairs."""
        fresh = [c for c in active if (due := self._due(c, planned)) and due.attempted == 1]
        if fresh:
            self._show.begins(planned, self.all())
            _together(fresh, planned, self._store, self._show.step, self._ended)
        for candidate in active:
            while (due := self._due(candidate, planned)) is not None:
                self._show.begins(due, self.all())
                observer = naming(self._show.step, candidate.name)
                pair = run.play(candidate.bench(due), due, candidate.paths, self._store, observer)
                self._ended(candidate, pair)

    def _ended(self, candidate: Candidate, pair: Pair) -> None:
        now = suite.standing(self._store.run(candidate.run), self._store)
        self._show.ends(pair, replace(now, name=candidate.name, left_s=self._left_s()))

    def all(self) -> schedule.Standing:
        """Return how far all runs are together; what a rejected candidate is spared is not planned any more."""
        runs = [suite.standing(self._store.run(c.run), self._store) for c in self._candidates]
        spared = [replace(s, pairs=s.done, left=()) for s in runs]
        both = zip(self._candidates, runs, spared, strict=True)
        return schedule.together([less if c.rejected else s for c, s, less in both], self._left_s())

    def _left_s(self) -> float | None:
        """Return how long what is left of all runs will take, the shared baseline counted once."""
        active = self._active()
        left = [self._left(candidate) for candidate in active]
        once = {planned.place: planned for of_one in left for planned in of_one}
        due = [(c.profile, Arm.CANDIDATE, of_one) for c, of_one in zip(active, left, strict=True)]
        due += [(c.profile, Arm.BASELINE, tuple(once.values())) for c in active[:1]]
        parts = [
            schedule.estimate_s((planned.task for planned in pairs), self._store.durations(profile, arm))
            for profile, arm, pairs in due
        ]
        known = [seconds for seconds in parts if seconds is not None]
        return sum(known) if len(known) == len(parts) else None


def naming(observer: Observer, name: str) -> Observer:
    """Return an observer to which the candidate's steps are those of the candidate with this name."""
    return lambda event: observer(replace(event, who=name) if event.arm is Arm.CANDIDATE else event)


def _together(
    candidates: Sequence[Candidate],
    planned: PlannedPair,
    store: Store,
    observer: Observer,
    ended: Callable[[Candidate, Pair], None],
) -> None:
    """Play the baseline once and each candidate once, and save a pair for each candidate."""
    try:
        attempts = _attempts(candidates, planned, observer)
        pairs = []
        for candidate in candidates:
            if candidate is not candidates[0]:
                _link(candidates[0].paths, candidate.paths, planned.id)
            arms = {Arm.BASELINE: attempts[""], Arm.CANDIDATE: attempts[candidate.name]}
            pairs.append(run.conclude(candidate.bench(planned), planned, candidate.paths, arms, store, observer))
    except BaseException:
        for candidate in candidates:
            # A finished pair that only could not be saved is taken in by the next start.
            if not candidate.paths.pair_json(planned.id).exists():
                remove(candidate.paths.pair(planned.id))
        raise
    for candidate, pair in zip(candidates, pairs, strict=True):
        ended(candidate, pair)


def _attempts(candidates: Sequence[Candidate], planned: PlannedPair, observer: Observer) -> dict[str, Attempt]:
    by_name = {candidate.name: candidate for candidate in candidates}
    attempts: dict[str, Attempt] = {}
    first: str | None = None
    with run.scratch_directory() as scratch:
        for name in order(list(by_name), planned):
            owner = by_name.get(name, candidates[0])
            arm = Arm.CANDIDATE if name else Arm.BASELINE
            plan = run.attempt_plan(owner.bench(planned), planned, arm, owner.paths, scratch, naming(observer, name))
            if "" in attempts and attempts[""].outcome is Outcome.INVALID:
                attempts[name] = not_played(plan)
                continue
            attempts[name] = run_attempt(plan, first)
            first = first or run.first_request(attempts[name], owner.bench(planned).profile.variable)
    return attempts


def _link(source: RunPaths, target: RunPaths, pair: str) -> None:
    """Have the baseline's evidence in another run, too, on the disk once where the file system can."""
    begin, end = source.attempt(pair, Arm.BASELINE).root, target.attempt(pair, Arm.BASELINE).root
    end.mkdir(parents=True, exist_ok=True)
    for file in sorted(begin.iterdir()):
        try:
            os.link(file, end / file.name)
        except OSError:
            shutil.copy2(file, end / file.name)
