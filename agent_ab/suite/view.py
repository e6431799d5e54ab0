"""A suite as people read it: its plan, its progress, how it ended; and the list of runs. Pure."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab import wording
from agent_ab.model import Arm, Json, Pair, PairOutcome
from agent_ab.schedule import Grid, PlannedPair, Standing
from agent_ab.store.store import PairState, RunRecord, RunSummary, VoidTry

COLOURS = {
    PairOutcome.BOTH_PASS: "green",
    PairOutcome.BOTH_FAIL: "",
    PairOutcome.FIXED: "bold green",
    PairOutcome.BROKEN: "bold red",
    PairOutcome.VOID: "yellow",
}


def outcomes(counts: Mapping[PairOutcome, int]) -> str:
    """Return counts by outcome, the empty ones left out: `5 BOTH_PASS, 1 VOID`."""
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in PairOutcome if counts.get(outcome)) or "none"


def opening(run: str, now: Standing) -> str:
    """Return the first line of a sitting: a new run, one that goes on, or one that has nothing left."""
    if not now.left:
        return f"run {run} has this plan and is finished; --new plays it again"
    if now.done or now.void_tries:
        return f"run {run} goes on: {now.done} of {wording.counted(now.pairs, 'pair')} done{_eta(now)}"
    return f"run {run}: {wording.counted(now.pairs, 'pair')} in {wording.counted(now.blocks, 'block')}{_eta(now)}"


def headline(planned: PlannedPair, now: Standing) -> str:
    """Return the line above the current step."""
    tries = f", try {planned.attempted}" if planned.attempted > 1 else ""
    again = ", the first pair of its servers' life once more" if planned.again else ""
    done = f"{now.done} of {wording.counted(now.pairs, 'pair')} done ({outcomes(now.outcomes)})"
    return f"{done}{_eta(now)} | block {planned.block + 1} of {now.blocks} | {planned.id}{tries}{again}"


def pair_line(pair: Pair, now: Standing) -> str:
    """Return the line that a finished pair leaves."""
    arms = [pair.attempt(arm) for arm in Arm]
    scores = " ".join(f"{f'{a.passed}/{a.total}' if a.total else '-':>5}" for a in arms)
    took = " + ".join(wording.seconds(a.duration_s) for a in arms)
    why = "" if pair.valid else f"  {next((line.detail for line in pair.proof if not line.ok), '')[:160]}"
    again = " (again)" if pair.again else ""
    name = f"{now.name:<12}  " if now.name else ""
    return (
        f"{name}{f'{now.done}/{now.pairs}':>7}  {pair.id:<32} {pair.outcome:<9} {scores}  {took}{again}{_eta(now)}{why}"
    )


def plan_view(grid: Grid, now: Standing, longest_s: float) -> RenderableType:
    """Return what would be played, block by block, and how long that takes.

    `longest_s` is the sum of all time limits of a pair, for when nothing was measured.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("block", "seed", "first arm", "pairs", "to play"):
        table.add_column(column, justify="left" if column == "first arm" else "right")
    for block in range(now.blocks):
        order = grid.seed(block)
        due = sum(planned.block == block for planned in now.left)
        table.add_row(str(block + 1), str(order.seed), order.first.value, str(grid.block_size), str(due))
    return Group(table, Text(f"\n{plan_sentence(grid, now, longest_s)}"))


def plan_sentence(grid: Grid, now: Standing, longest_s: float) -> str:
    """Return the plan's size and its estimate in a sentence."""
    attempts = 2 * len(now.left)
    size = (
        f"{wording.counted(len(grid.tasks), 'task')} x {wording.counted(now.blocks, 'seed')} x {wording.counted(grid.repeats, 'repeat')}:"
        f" {wording.counted(now.pairs, 'pair')}, {now.done} done; {wording.counted(attempts, 'attempt')} to play"
    )
    if now.left_s is None:
        longest = wording.seconds(len(now.left) * longest_s)
        return f"{size}, {longest} if every attempt used up its time limit (nothing of this profile was measured yet)"
    return f"{size}, about {wording.seconds(now.left_s)} by what pairs of this profile took before"


def run_view(
    record: RunRecord, now: Standing | None, states: Sequence[PairState], voids: Sequence[VoidTry]
) -> RenderableType:
    """Return how a run stands: its plan in a line, its pairs, its voids by arm."""
    head = Text.assemble(
        (wording.plain_line(record.id), "bold"),
        f"  {record.kind} of {wording.plain_line(f'{record.profile}, {status(record.status, record.note)}')}",
    )
    parts: list[RenderableType] = [head]
    if now is not None:
        parts.append(
            Text(
                f"{now.done} of {wording.counted(now.pairs, 'pair')} done, {now.blocks_done} of"
                f" {wording.counted(now.blocks, 'block')}: {outcomes(now.outcomes)}{_eta(now)}"
            )
        )
    parts.append(Text(f"plan {record.plan_sha256[:16]}, policy {(record.policy_sha256 or 'none')[:16]}\n", style="dim"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("block", "pair", "outcome"):
        table.add_column(column, justify="right" if column == "block" else "left")
    for state in states:
        table.add_row(
            str(state.block + 1),
            wording.plain_line(f"{record.id}/{state.id}"),
            Text(state.outcome, style=COLOURS[state.outcome]),
        )
    parts.append(table)
    parts += [Text(line) for line in void_lines(voids)]
    return Group(*parts)


def void_lines(voids: Sequence[VoidTry]) -> list[str]:
    """Return the VOID tries, counted by the arm that broke: an excess on one side is a finding."""
    if not voids:
        return []
    counts = {arm: sum(v.arm is arm for v in voids) for arm in Arm}
    neither = len(voids) - sum(counts.values())
    by_arm = ", ".join([*(f"{counts[arm]} by the {arm}" for arm in Arm), f"{neither} by neither alone"])
    return [f"\n{wording.counted(len(voids), 'VOID try').replace('trys', 'tries')}: {by_arm}"] + [
        f"  {wording.plain_line(v.pair)}: {v.arm or 'the pair'}: {wording.plain_line(v.reason)}" for v in voids
    ]


def runs_view(runs: Sequence[RunSummary]) -> RenderableType:
    """Return the list of runs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "kind", "profile", "status", "pairs", "outcomes"):
        table.add_column(column, justify="right" if column == "pairs" else "left")
    for run in runs:
        names = (wording.plain_line(run.id), run.kind, wording.plain_line(run.profile), run.status)
        table.add_row(*names, str(run.pairs), outcomes(dict(run.outcomes)))
    return table


def run_data(record: RunRecord, now: Standing | None, states: Sequence[PairState], voids: Sequence[VoidTry]) -> Json:
    """Return what `run --json` and `show RUN --json` print."""
    return {
        "run": record.id,
        "kind": record.kind,
        "profile": record.profile,
        "status": record.status,
        "note": record.note,
        "plan_sha256": record.plan_sha256,
        "policy_sha256": record.policy_sha256,
        "blocks": record.blocks,
        "pairs": None if now is None else now.pairs,
        "done": None if now is None else now.done,
        "left_s": None if now is None else now.left_s,
        "outcomes": None if now is None else dict(now.outcomes),
        "tries": [
            {"pair": f"{record.id}/{s.id}", "block": s.block, "outcome": s.outcome, "again": s.again} for s in states
        ],
        "voids": [{"pair": v.pair, "arm": v.arm, "reason": v.reason} for v in voids],
    }


def plan_data(grid: Grid, now: Standing, longest_s: float) -> Json:
    """Return what `run --dry-run --json` prints."""
    return {
        "pairs": now.pairs,
        "done": now.done,
        "estimate_s": now.left_s,
        "at_most_s": len(now.left) * longest_s,
        "blocks": [
            {"block": block, "seed": grid.seed(block).seed, "first_arm": grid.seed(block).first}
            for block in range(now.blocks)
        ],
        "left": [{"id": p.id, "task": p.task, "seed": p.seed, "repeat": p.repeat, "block": p.block} for p in now.left],
    }


def runs_data(runs: Sequence[RunSummary]) -> Json:
    """Return what `runs --json` prints."""
    return [
        {
            "run": run.id,
            "created_at": run.created_at,
            "kind": run.kind,
            "profile": run.profile,
            "status": run.status,
            "blocks": run.blocks,
            "pairs": run.pairs,
            "outcomes": dict(run.outcomes),
        }
        for run in runs
    ]


def status(word: str, note: str) -> str:
    """Return how a run stands, with the reason."""
    return f"{word} ({note})" if note else word


def _eta(now: Standing) -> str:
    return f", about {wording.seconds(now.left_s)} left" if now.left and now.left_s is not None else ""
