"""More than two arms: the baseline and several candidates play each task and seed once, each candidate a pair with it.

Every candidate is a run of its own, so that gate, report and review read it like any other; the baseline's attempt is
played once for all of them and its evidence is in each. What is shared is not independent: each run's policy has
alpha / number of candidates (Bonferroni, whatever the dependence; e-values hold at every block end), written into its
plan before anything starts. A candidate that its run's gate rejects at the end of a block is not played any more.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_ab import run, schedule
from agent_ab.attempt import not_played, run_attempt
from agent_ab.config import Profile
from agent_ab.errors import UserError
from agent_ab.gate.judged import verdict_of
from agent_ab.gate.policy import Policy
from agent_ab.model import Arm, Attempt, Event, Outcome, RunStatus, ServerLife
from agent_ab.paths import RunPaths
from agent_ab.schedule import PlannedPair, Tried, next_try
from agent_ab.snapshot import remove
from agent_ab.store.store import Store
from agent_ab.suite import plan as suite_plan
from agent_ab.suite import suite
from agent_ab.suite.plan import Asked
from agent_ab.suite.suite import Show
from agent_ab.verdict.verdict import Decision, Verdict
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
    playing = _Blocks(tuple(candidates), store, show)
    for block in range(len(candidates[0].ready.asked.seeds)):
        playing.block(block)
    playing.end()
    return tuple(candidates)


class _Blocks:
    """The state of one sitting."""

    def __init__(self, candidates: tuple[Candidate, ...], store: Store, show: Show) -> None:
        self._candidates, self._store, self._show = candidates, store, show
        for candidate in candidates:
            store.end_run(candidate.run, RunStatus.RUNNING)
            self._judge(candidate)

    def block(self, number: int) -> None:
        """Play one block with all candidates that are not rejected, and read the evidence at its end."""
        active = [candidate for candidate in self._candidates if not candidate.rejected]
        if not active:
            return
        for planned in active[0].ready.grid.block(number):
            self._set(active, planned)
        for candidate in active:
            self._judge(candidate)

    def end(self) -> None:
        """Note in the database how each run ended."""
        for candidate in self._candidates:
            left = suite.standing(self._store.run(candidate.run), self._store).left
            note = f"rejected: {candidate.verdict.reasons[0]}" if candidate.rejected and candidate.verdict else ""
            self._store.end_run(candidate.run, RunStatus.STOPPED if left else RunStatus.FINISHED, note)

    def _judge(self, candidate: Candidate) -> None:
        if self._store.pair_states(candidate.run):
            candidate.verdict = verdict_of(self._store, candidate.run)

    def _due(self, candidate: Candidate, planned: PlannedPair) -> PlannedPair | None:
        states = self._store.pair_states(candidate.run)
        tried = [Tried((s.task, s.seed, s.repeat, s.again), s.attempted, s.outcome) for s in states]
        return next_try(planned, tried, candidate.ready.asked.policy.void_retries)

    def _set(self, active: Sequence[Candidate], planned: PlannedPair) -> None:
        """Play one task and seed with every candidate for which it is due; what stays VOID alone, as pairs."""
        fresh = [c for c in active if (due := self._due(c, planned)) and due.attempted == 1]
        if fresh:
            self._show.begins(planned, self._standing(fresh[0]))
            _together(fresh, planned, self._store, self._show, self._standing)
        for candidate in active:
            while (due := self._due(candidate, planned)) is not None:
                pair = run.play(candidate.bench(due), due, candidate.paths, self._store, self._show.step)
                self._show.ends(pair, self._standing(candidate))

    def _standing(self, candidate: Candidate) -> schedule.Standing:
        return suite.standing(self._store.run(candidate.run), self._store)


def _together(
    candidates: Sequence[Candidate],
    planned: PlannedPair,
    store: Store,
    show: Show,
    standing: Callable[[Candidate], schedule.Standing],
) -> None:
    """Play the baseline once and each candidate once, and save a pair for each candidate."""
    try:
        attempts = _attempts(candidates, planned, show)
        for candidate in candidates:
            if candidate is not candidates[0]:
                _link(candidates[0].paths, candidate.paths, planned.id)
            arms = {Arm.BASELINE: attempts[""], Arm.CANDIDATE: attempts[candidate.name]}
            pair = run.conclude(candidate.bench(planned), planned, candidate.paths, arms, store, show.step)
            show.step(Event(None, None, f"{candidate.name}:", lasting=True))
            show.ends(pair, standing(candidate))
    except BaseException:
        for candidate in candidates:
            # A finished pair that only could not be saved is taken in by the next start.
            if not candidate.paths.pair_json(planned.id).exists():
                remove(candidate.paths.pair(planned.id))
        raise


def _attempts(candidates: Sequence[Candidate], planned: PlannedPair, show: Show) -> dict[str, Attempt]:
    by_name = {candidate.name: candidate for candidate in candidates}
    attempts: dict[str, Attempt] = {}
    first: str | None = None
    with run.scratch_directory() as scratch:
        for name in order(list(by_name), planned):
            owner = by_name.get(name, candidates[0])
            arm = Arm.CANDIDATE if name else Arm.BASELINE
            plan = run.attempt_plan(owner.bench(planned), planned, arm, owner.paths, scratch, show.step)
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
