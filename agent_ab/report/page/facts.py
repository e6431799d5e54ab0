"""What surrounded the pairs: how they ended, machine conditions, settings, hashes, and the commands to do it again. Pure."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from agent_ab import wording
from agent_ab.model import Arm, Attempt, Json, Pair
from agent_ab.nested import flatten
from agent_ab.report.page.contents import Command, Row, RunFacts, Table
from agent_ab.report.page.headline import shown
from agent_ab.report.summary import ArmFigures, Summary
from agent_ab.verdict.verdict import Verdict

DISTINCT = 4
"""Most different values of one fact that are named; the rest is counted."""

_ENDINGS: Mapping[str, Callable[[ArmFigures], str]] = {
    "agents ended": lambda a: wording.listed(dict(a.ends)),
    "replies ended (finish reasons)": lambda a: wording.listed(dict(a.finish_reasons)),
    "budget stops": lambda a: _known(a, str(a.budget_stops)),
    "HTTP errors": lambda a: _known(a, str(a.http_errors)),
    "replies that broke off": lambda a: _known(a, str(a.broken_streams)),
    "attempts that edited no production code": lambda a: (
        f"{a.unedited} of {a.patched}" if a.patched else wording.NOTHING
    ),
    "turns, tool calls": lambda a: _known(a, f"{wording.thousands(a.turns)}, {wording.thousands(a.tool_calls)}"),
    "tokens generated": lambda a: _known(a, wording.thousands(a.generated_tokens)),
    "generation speed": lambda a: wording.rate(a.tokens_per_s),
    "draft acceptance": lambda a: (
        f"{wording.percent(a.acceptance)} of {wording.thousands(a.drafted)}" if a.drafted else "-"
    ),
}


def _known(arm: ArmFigures, words: str) -> str:
    return words if arm.logged else wording.NOTHING


def endings(summary: Summary) -> Table:
    """Return how agents and replies ended, by arm."""
    rows = []
    for label, cell in _ENDINGS.items():
        b, c = (cell(arm) for arm in summary.arms)
        bad = label in ("budget stops", "HTTP errors", "replies that broke off") and b != c
        rows.append(Row(label, (b, c), "differs" if bad else ""))
    return Table(("", "baseline", "candidate"), tuple(rows))


def kinds(summary: Summary) -> Table | None:
    """Return why the arms parted, counted."""
    if not summary.kinds:
        return None
    about = {
        "identical": "both logs are equal to their end",
        "model": "equal requests were answered differently",
        "declared": "the requests differ only in what the declared variable changes, or are its own",
        "environment": "what surrounds the model differed, or when the agent stopped",
        "infrastructure": "the server, the proxy or a connection broke",
    }
    rows = sorted(summary.kinds.items(), key=lambda item: -item[1])
    found = tuple(Row(kind.value, (wording.counted(n, "pair"), about[kind.value])) for kind, n in rows)
    return Table(("kind", "", ""), found)


def voids(summary: Summary, verdict: Verdict | None) -> Table:
    """Return how many VOID tries each arm, or neither, is at fault for."""
    sides: dict[str, int] = {arm.value: sum(void.arm is arm for void in summary.voids) for arm in Arm}
    sides["the proof (both ran)"] = sum(void.arm is None for void in summary.voids)
    if verdict:
        counted = verdict.counts.voids_baseline, verdict.counts.voids_candidate, verdict.counts.voids_identity
        sides = dict(zip(sides, counted, strict=True)) if sum(counted) else sides
    return Table(("VOID by", "tries"), tuple(Row(side, (str(n),), "bad" if n else "") for side, n in sides.items()))


# ---- machine


def machine(pairs: Sequence[Pair]) -> Table | None:
    """Return what the machine was and in what state, by arm; where the arms met different conditions is marked."""
    facts = {arm: _gathered(pair.attempt(arm) for pair in pairs) for arm in Arm}
    names = list(dict.fromkeys([*facts[Arm.BASELINE], *facts[Arm.CANDIDATE]]))
    if not names:
        return None
    rows = []
    for name in names:
        b, c = (_condition(facts[arm].get(name, [])) for arm in Arm)
        numeric = any(isinstance(v, int | float) for v in facts[Arm.BASELINE].get(name, ()))
        rows.append(Row(name, (b, c), "differs" if b != c and not numeric else ""))
    return Table(("", "baseline", "candidate"), tuple(rows))


def _gathered(attempts: Iterable[Attempt]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for attempt in attempts:
        for about, facts in (("", attempt.machine), ("box: ", attempt.world)):
            for name, value in _leaves(facts):
                found.setdefault(about + name, []).append(value)
    return dict(sorted(found.items(), key=lambda item: item[0].startswith("box: ")))


def _leaves(value: Json, prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Give the leaves of nested mappings and of lists of mappings under dotted names."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}.{key}" if prefix else str(key))
    elif value is not None and value != []:
        yield prefix, value


def _condition(values: Sequence[Json]) -> str:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if numbers and len(numbers) == len(values):
        low, high = min(numbers), max(numbers)
        return f"{low:g}" if low == high else f"{median(numbers):.4g} ({low:.4g} to {high:.4g})"
    distinct = list(dict.fromkeys(shown(v) if not isinstance(v, Mapping) else str(v) for v in values))
    more = f", and {len(distinct) - DISTINCT} more" if len(distinct) > DISTINCT else ""
    return ", ".join(distinct[:DISTINCT]) + more or wording.NOTHING


# ---- settings


def settings(pairs: Sequence[Pair]) -> Table:
    """Return every setting of both arms, what differs first."""
    facts = {arm: _settings(pair.attempt(arm) for pair in pairs) for arm in Arm}
    names = list(dict.fromkeys([*facts[Arm.BASELINE], *facts[Arm.CANDIDATE]]))
    rows = []
    for name in names:
        b, c = (_condition(facts[arm].get(name, [])) for arm in Arm)
        rows.append(Row(name, (b, c), "differs" if b != c else ""))
    return Table(("setting", "baseline", "candidate"), tuple(sorted(rows, key=lambda row: row.tone == "")), code=True)


def _settings(attempts: Iterable[Attempt]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for attempt in attempts:
        extra: dict[str, Json] = {}
        if attempt.server:
            extra = {"command line": shlex.join(attempt.server.argv)}
            extra |= (
                {"flags this build lacks": ", ".join(attempt.server.omitted_flags)}
                if attempt.server.omitted_flags
                else {}
            )
        for name, value in (dict(attempt.settings) | extra).items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return found


def stated(run: RunFacts) -> Table | None:
    """Return what the source of imported results states besides its pairs: setup, totals, findings."""
    source = run.plan.get("source") if isinstance(run.plan, Mapping) else None
    if not isinstance(source, Mapping):
        return None
    rows = []
    for name, value in flatten({key: value for key, value in source.items() if key != "pairs"}).items():
        if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
            rows += [Row(name, ("; ".join(shown(inner) for inner in item.values()),)) for item in value]
        else:
            rows.append(Row(name, (shown(value),)))
    return Table(("", "as the source gives it"), tuple(rows)) if rows else None


def hashes(run: RunFacts, pairs: Sequence[Pair], verdict: Verdict | None) -> Table:
    """Return what pins the run down: sha256 of plan, policy, server, model, template; commits of the fixtures."""
    rows = [
        Row("agent_ab", (run.version,)),
        Row("plan, sha256", (run.plan_sha256,)),
        Row("policy, sha256", ((verdict.policy_sha256 if verdict else run.policy_sha256) or "none planned",)),
    ]
    servers = [a.server for pair in pairs for a in (pair.baseline, pair.candidate) if a.server]
    for label, values in {
        "llama-server build": [s.build for s in servers],
        "llama-server and its libraries, sha256": [s.binary_sha256 for s in servers],
        "model file, sha256": [s.model_sha256 for s in servers],
        "chat template, sha256": [s.chat_template_sha256 for s in servers],
    }.items():
        if values:
            rows.append(Row(label, (_condition(values),)))
    commits: dict[str, list[Json]] = {}
    for pair in pairs:
        if pair.baseline.fixture_commit:
            commits.setdefault(pair.task, []).append(pair.baseline.fixture_commit)
    rows += [Row(f"fixture of {task}, commit", (_condition(found),)) for task, found in commits.items()]
    tasks = run.plan.get("tasks", {}) if isinstance(run.plan, Mapping) else {}
    rows += [Row(f"task {task}, sha256", (str(digest),)) for task, digest in tasks.items()]
    return Table(("", "value"), tuple(rows), code=True)


# ---- again


def commands(run: RunFacts, pairs: Sequence[Pair], db: str, runs_dir: str) -> tuple[Command, ...]:
    """Return the command lines that play it again, judge it again, and look at it."""
    where = [] if db == "runs.db" else ["--db", db]
    evidence = [] if runs_dir == "runs" else ["--runs-dir", runs_dir]

    def line(about: str, *words: str) -> Command:
        return Command(about, shlex.join(["agent-ab", *words]))

    found = []
    if run.kind == "pair" and pairs:
        one = pairs[0]
        repeat = ["--repeat", str(one.repeat)] if one.repeat else []
        words = ["pair", "--task", one.task, "--seed", str(one.seed), *repeat, "--profile", run.profile]
        found.append(line("play this pair again", *words))
    elif run.kind not in ("import", "pair"):
        found.append(line("play it again, as a new run", *_PLAY.get(run.kind, ("run",)), "--profile", run.profile))
    found.append(line("the verdict", "gate", run.id, *where))
    found.append(line("this page", "report", run.id, "--html", "report.html", *where, *evidence))
    if run.kind != "import":
        if any(pair.flips for pair in pairs):
            found.append(line("say of each flip what you take it for", "review", run.id, *where, *evidence))
        found.append(line("judge the snapshots by the present checks", "regrade", run.id, *where, *evidence))
        found.append(line("everything that another machine needs to check this", "bundle", run.id, *where, *evidence))
    if pairs and run.kind != "import":
        name = next((pair.name for pair in pairs if pair.flips), pairs[0].name)
        found.append(line("one pair's conversations, in the terminal", "diff", name, *where, *evidence))
        found.append(line("a script for an upstream bug report", "reproduce", name, *where, *evidence))
    return tuple(found)


_PLAY: Mapping[str, tuple[str, ...]] = {"suite": ("run", "--new"), "aa": ("aa",), "controls": ("controls",)}
