"""A suite: pair after pair is played and saved, block by block, until none is left.

The database is the truth: what is in it is finished and is kept, everything else is played (again).
"""

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from agent_ab import run, schedule
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Observer, Pair, RunStatus, ServerLife
from agent_ab.paths import RunPaths
from agent_ab.schedule import PlannedPair, Standing, Tried, next_try
from agent_ab.server.life import Lives
from agent_ab.snapshot import remove
from agent_ab.store.store import RunRecord, Store
from agent_ab.suite.plan import Suite, asked_of, grid

STOP_AFTER = 2
"""Stop when so many pairs in a row stayed VOID: the apparatus is broken, and the night would be spent for nothing."""
FREE_BYTES = 200_000_000
"""Stop before a pair when the disk of the evidence has less left."""

Stop = Callable[[Standing], str]
"""Asked at the end of each block that is not the last; returns why to stop, or an empty string to go on."""


def never(_standing: Standing) -> str:
    """Go on to the end."""
    return ""


def _nobody(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Show:
    """Whom to tell."""

    step: Observer
    begins: Callable[[PlannedPair, Standing], None] = _nobody
    """A try of a pair begins."""
    ends: Callable[[Pair, Standing], None] = _nobody
    """A try of a pair is in the database."""


def play(suite: Suite, paths: RunPaths, store: Store, show: Show, stop: Stop = never) -> Standing:
    """Play what is left of the run; return how far it came.

    Stops early when `stop` says so at the end of a block, and when STOP_AFTER pairs in a row stayed VOID. Raises
    ApparatusError when the disk is full or the database cannot be written. Whatever ends it, an interrupt included,
    finished pairs stay, and the next call goes on.
    """
    run_id = paths.root.name
    store.end_run(run_id, RunStatus.RUNNING)
    playing = _Playing(suite, paths, store, show)
    try:
        reason = playing.all_blocks(stop)
    except BaseException as error:
        # When the database cannot be written, the next start finds the run still running, and puts it in order.
        with suppress(ApparatusError, UserError):
            note = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
            store.end_run(run_id, RunStatus.STOPPED, note)
        raise
    finally:
        playing.lives.end()
    end = replace(playing.standing(), stopped=reason)
    store.end_run(run_id, RunStatus.STOPPED if end.left else RunStatus.FINISHED, reason)
    return end


def extend(store: Store, run_id: str, by: int = 1) -> int:
    """Add blocks to a run, whose seeds its plan has settled; return how many it has now. `play` then plays them."""
    blocks = store.run(run_id).blocks + by
    store.set_blocks(run_id, blocks)
    return blocks


def standing(record: RunRecord, store: Store) -> Standing:
    """Return how far a run is. Raises UserError for one that is no suite."""
    asked = asked_of(record)
    planned, tried = grid(asked, record.plan_sha256), _tried(store, record.id)
    measured = store.durations(record.profile)
    return schedule.standing(planned, record.blocks, tried, asked.policy.void_retries, measured)


def _tried(store: Store, run_id: str) -> list[Tried]:
    return [Tried((s.task, s.seed, s.repeat, s.again), s.attempted, s.outcome) for s in store.pair_states(run_id)]


class _Playing:
    """The state of one sitting."""

    def __init__(self, suite: Suite, paths: RunPaths, store: Store, show: Show) -> None:
        self._suite, self._paths, self._store, self._show = suite, paths, store, show
        self._grid = suite.grid
        self._blocks = store.run(paths.root.name).blocks
        self._retries = suite.asked.policy.void_retries
        self._tried = _tried(store, paths.root.name)
        self._measured = store.durations(suite.asked.profile.name)
        self._life = suite.asked.profile.server_life
        self._first: PlannedPair | None = None
        self._void_in_a_row = 0
        self.lives = Lives(paths.lives)

    def standing(self) -> Standing:
        return schedule.standing(self._grid, self._blocks, self._tried, self._retries, self._measured)

    def all_blocks(self, stop: Stop) -> str:
        """Play block after block; return why it stopped early, or an empty string."""
        reason = ""
        while not reason and (left := self.standing().left):
            reason = self._pairs(planned for planned in left if planned.block == left[0].block)
            if not reason and (now := self.standing()).left:
                reason = stop(now)
        self._end_life()
        return reason

    def _pairs(self, block: Iterable[PlannedPair]) -> str:
        for _, of_task in groupby(block, key=lambda planned: planned.task):
            for planned in of_task:
                self._until_valid(planned)
                if self._void_in_a_row >= STOP_AFTER:
                    return f"{STOP_AFTER} pairs in a row stayed VOID; `agent-ab show {self._paths.root.name}` says why"
            if self._life is ServerLife.PER_TASK:
                self._end_life()
        return ""

    def _until_valid(self, planned: PlannedPair) -> None:
        """Play both arms of a pair, and both again while it is VOID, as often as the policy says."""
        while (due := next_try(planned, self._tried, self._retries)) is not None:
            if self._once(due).valid:
                self._void_in_a_row = 0
                return
            # What broke may live on in a server; the next try gets new ones in both arms.
            self.lives.end()
        self._void_in_a_row += 1

    def _once(self, planned: PlannedPair) -> Pair:
        self._require_space()
        bench = self._suite.benches[planned.task]
        if self.lives.begun and not all(
            self.lives.of(arm).serves(parts.engine, parts.settings, parts.model) for arm, parts in bench.arms.items()
        ):
            # A model that belongs to a task, a scripted one, needs a server of its own.
            self._end_life()
        self._show.begins(planned, self.standing())
        if not planned.again and not self.lives.begun:
            self._first = planned
        lives = None if self._life is ServerLife.FRESH else self.lives
        try:
            pair = run.play(bench, planned, self._paths, self._store, self._show.step, lives)
        except BaseException:
            # A finished pair that only could not be saved is taken in by the next start.
            if not self._paths.pair_json(planned.id).exists():
                remove(self._paths.pair(planned.id))
            raise
        self._tried.append(Tried(planned.place, planned.attempted, pair.outcome))
        if pair.valid:
            seconds = pair.baseline.duration_s + pair.candidate.duration_s
            self._measured.setdefault(planned.task, []).append(seconds)
        self._show.ends(pair, self.standing())
        return pair

    def _end_life(self) -> None:
        """Play the first pair of the servers' lives once more, at their end, and stop them."""
        if self.lives.begun and self._first is not None:
            again = replace(self._first, again=True)
            before = sum(t.place == again.place for t in self._tried)
            self._once(replace(again, attempted=before + 1))
        self.lives.end()

    def _require_space(self) -> None:
        free = shutil.disk_usage(self._paths.root).free
        if free < FREE_BYTES:
            message = f"{self._paths.root}: only {free // 1_000_000} MB are left on its disk; free some and start again"
            raise ApparatusError("disk", message)
