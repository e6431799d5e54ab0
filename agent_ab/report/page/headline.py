"""The answer: the verdict in words, what was changed, and the four numbers that a reader takes away. Pure."""

from collections.abc import Mapping, Sequence

from agent_ab import wording
from agent_ab.model import Arm, Json, Pair, PairOutcome
from agent_ab.report.page.contents import Bar, Head, Row, RunFacts, Table, Tile
from agent_ab.report.summary import Summary
from agent_ab.verdict import reasons
from agent_ab.verdict.verdict import Correctness, Decision, Interval, Time, Verdict
from agent_ab.verdict.view import worth

KIND_WORDS = {
    "pair": "one pair",
    "suite": "suite",
    "aa": "A/A run",
    "controls": "controls",
    "import": "imported",
}


def head(run: RunFacts, pairs: Sequence[Pair], summary: Summary, verdict: Verdict | None) -> Head:
    """Return what was asked and what the answer is."""
    decision = verdict.decision.value if verdict else "NO VERDICT"
    why = verdict.reasons if verdict else ("no verdict was worked out",)
    labels = [KIND_WORDS.get(run.kind, run.kind)]
    if summary.unproven:
        labels.append("UNPROVEN")
    if run.status == "running":
        labels.append("not finished")
    return Head(
        run=run.id,
        kind=run.kind,
        created_at=run.created_at[:16].replace("T", " ") + " UTC",
        profile=run.profile,
        change=changes(pairs),
        variable=pairs[0].variable if pairs else "",
        decision=decision,
        tone=decision.lower().replace(" ", "-"),
        lead=why[0] if why else "",
        reasons=tuple(line for line in why[1:] if not line.startswith((reasons.AS_SO_FAR, reasons.NO_DIFFERENCE))),
        still=still(verdict),
        warnings=verdict.warnings if verdict else (),
        labels=tuple(labels),
        tiles=tiles(summary, verdict),
    )


def still(verdict: Verdict | None) -> str:
    """Return how many more pairs, and hours, it takes to decide: as it went so far, and if nothing differs."""
    found = verdict.needed if verdict else None
    # One pair is no plan.
    if (
        verdict is None
        or found is None
        or verdict.decision is not Decision.INCONCLUSIVE
        or verdict.kind in ("pair", "aa")
    ):
        return ""
    text = f"{reasons.AS_SO_FAR}: {reasons.as_so_far(found)}"
    if found.contradicted or (verdict.correctness and verdict.correctness.worse):
        return text
    unproven = verdict.counts.unproven > 0
    return f"{text} {reasons.NO_DIFFERENCE}: {reasons.no_difference(found, verdict.counts.counted, unproven=unproven)}"


def changes(pairs: Sequence[Pair]) -> tuple[tuple[str, str, str], ...]:
    """Return the settings in which the arms differ: name, baseline's value, candidate's."""
    for pair in pairs:
        left, right = dict(pair.baseline.settings), dict(pair.candidate.settings)
        if left and right:
            names = sorted(name for name in left | right if left.get(name) != right.get(name))
            prefix = f"{pair.variable}."
            # The type of a thing comes before its particulars.
            names.sort(key=lambda name: name != f"{prefix}type")
            return tuple((n.removeprefix(prefix), shown(left.get(n)), shown(right.get(n))) for n in names)
    return ()


def shown(value: Json) -> str:
    """Return a setting's value as a person writes it."""
    if value is None or value == "":
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- tiles


def tiles(summary: Summary, verdict: Verdict | None) -> tuple[Tile, ...]:
    """Return the four numbers: tasks solved, checks flipped, the wait, and how far it is proven."""
    return (_solved(summary), _flipped(summary), _wait(summary, verdict.time if verdict else None), _proven(summary))


def _bars(values: tuple[float | None, float | None], words: tuple[str, str], most: float | None) -> tuple[Bar, ...]:
    top = most or max((v for v in values if v), default=0)
    return tuple(
        Bar(arm, min(1.0, (value or 0) / top) if top else 0.0, text)
        for arm, value, text in zip(Arm, values, words, strict=True)
    )


def _solved(summary: Summary) -> Tile:
    b, c = summary.arms
    tone = "broken" if c.solved < b.solved else "fixed" if c.solved > b.solved else ""
    if not b.attempts:
        return Tile("Tasks solved", wording.NOTHING, "no pair counts yet", "#pairs")
    value = f"{b.solved} to {c.solved}" if b.solved != c.solved else f"{b.solved}, equal"
    words = (f"{b.solved} of {b.attempts}", f"{c.solved} of {c.attempts}")
    gone = summary.outcomes.get(PairOutcome.BROKEN, 0), summary.outcomes.get(PairOutcome.FIXED, 0)
    detail = f"{wording.counted(gone[0], 'pair')} broke, {gone[1]} fixed"
    return Tile("Tasks solved", value, detail, "#pairs", tone, _bars((b.solved, c.solved), words, b.attempts))


def _flipped(summary: Summary) -> Tile:
    b, c = summary.arms
    title, href = "Checks flipped", "#flips"
    if not b.scored:
        return Tile(title, wording.NOTHING, "no check was judged in both arms", href)
    words = tuple(f"{wording.thousands(arm.passed)} of {wording.thousands(arm.scored)}" for arm in (b, c))
    bars = _bars((b.passed, c.passed), (words[0], words[1]), b.scored)
    if not summary.flips and not summary.checks_known:
        tone = "broken" if c.passed < b.passed else ""
        return Tile(title, "not known", "only how many checks passed is known", href, tone, bars)
    if not summary.flips:
        return Tile(title, "none", "every check came out alike in both arms", href, "good", bars)
    if not summary.broken:
        return Tile(title, f"{summary.fixed} fixed", "none broke", href, "fixed", bars)
    return Tile(title, f"{summary.broken} broke", f"{summary.fixed} fixed", href, "broken", bars)


def _wait(summary: Summary, time: Time | None) -> Tile:
    if time and time.ratio is None and time.unknown:
        return Tile("The wait", "not known", "every pair was cut at the limit in both arms", "#price")
    if time is None or time.ratio is None:
        return Tile("The wait", wording.NOTHING, "no wall time in both arms", "#price")
    means, ratio = (time.mean_baseline_s, time.mean_candidate_s), time.known_ratio
    cut = f"{time.censored_candidate} of {wording.counted(time.pairs, 'pair')} had the candidate cut at the limit"
    if ratio is None:
        return Tile("The wait", "not known", f"{cut}: how long it would have taken is not known", "#price")
    detail = f"{wording.ratio(ratio)} the baseline's wall time (geometric mean)"
    detail += f"; {interval(time.interval)}" if time.interval and ratio == time.ratio else f"; {cut}"
    tone = "broken" if ratio > 1.02 else "good" if ratio < 0.98 else ""
    told = (wording.seconds(means[0]), wording.seconds(means[1]))
    return Tile("The wait", wording.change(ratio), detail, "#price", tone, _bars(means, told, None))


def _proven(summary: Summary) -> Tile:
    voids = len(summary.voids)
    sides = {arm: sum(void.arm is arm for void in summary.voids) for arm in Arm}
    faults = voids - sum(sides.values())
    told = f"{sides[Arm.BASELINE]} by the baseline, {sides[Arm.CANDIDATE]} by the candidate, {faults} by the proof"
    detail = f"{voids} VOID: {told}" if voids else "no try was VOID"
    if summary.unproven:
        words = f"{summary.unproven} of {wording.counted(summary.pairs, 'pair')} without proof; {detail}"
        return Tile("The proof", "UNPROVEN", words, "#proof", "void")
    tone = "" if voids else "good"
    words = f"in each of them every line of the proof holds; {detail}" if summary.pairs else detail
    return Tile("The proof", f"{wording.counted(summary.pairs, 'pair')} valid", words, "#proof", tone)


# ---- what stands behind the verdict


def interval(found: Interval | None, unit: str = "") -> str:
    """Return an interval in words: `95 % interval 0.61 to 0.83`."""
    if found is None:
        return wording.NOTHING
    if found.low is None and found.high is None:
        return "no interval of one pair, or of pairs that are all alike"
    low, high = (f"{end:.3g}{unit}" if end is not None else "open" for end in (found.low, found.high))
    return f"{100 * found.level:g} % interval {low} to {high}"


def numbers(verdict: Verdict | None) -> Table | None:
    """Return the numbers behind the verdict."""
    if verdict is None:
        return None
    rows = [*_counted(verdict), *_correctness(verdict.correctness), *_time(verdict.time), *_needed(verdict)]
    return Table(("", "value", "what it says"), tuple(Row(label, (value, about)) for label, value, about in rows))


Line = tuple[str, str, str]


def _counted(verdict: Verdict) -> list[Line]:
    c = verdict.counts
    left = [
        (c.unfinished, "of blocks that are not whole"),
        (c.repeated, "whose conversations repeat an earlier pair's"),
    ]
    words = "; left out: " + ", ".join(f"{n} {why}" for n, why in left if n) if any(n for n, _ in left) else ""
    return [
        ("pairs that count", f"{c.counted} of {c.planned}", f"in {wording.counted(c.blocks, 'whole block')}{words}"),
    ]


def _correctness(found: Correctness | None) -> list[Line]:
    if found is None:
        return []
    p = _p
    lines = [
        (
            "share of checks passed, mean difference",
            f"{found.mean:+.4f}",
            f"{interval(found.interval)}, t over pairs" if found.sd else wording.no_interval(found.pairs),
        ),
        ("one-sided lower bound", f"{found.lower:+.4f}", "by the share of pairs" if found.guarded else "t over pairs"),
        ("always-valid interval", interval(found.always_valid), "holds however often it was looked at"),
        (
            "solved in both, broken, fixed, neither",
            f"{found.both}, {found.broken}, {found.fixed}, {found.neither}",
            "pairs",
        ),
        (
            "sign-flip test over pairs",
            p(found.p_sign_flip),
            "chance of so great a difference if the arms were equal"
            + ("" if found.sign_flip_exact else "; by simulation, which shows none below 0.00005"),
        ),
        ("McNemar over pairs, solved or not", p(found.p_solved_exact), f"exact; mid-p {p(found.p_solved_mid)}"),
    ]
    if found.task_interval and found.task_interval.low is not None:
        lines.append(("for tasks that were not played", interval(found.task_interval), "t over tasks"))
    if found.design_effect is not None and found.effective_checks is not None:
        lines.append(
            (
                "design effect of the checks",
                f"{found.design_effect:.3g}",
                worth(found.checks, found.design_effect, found.effective_checks).partition(" (")[0],
            )
        )
    if found.order_effect is not None:
        lines.append(("order effect", f"{found.order_effect:+.4f}", "half of what being played first is worth"))
    for cluster in dict.fromkeys(t.cluster for t in found.clustered):
        tests = [t for t in found.clustered if t.cluster == cluster]
        said = ", ".join(f"{t.name} {t.statistic:.4g}" for t in tests)
        lines.append((f"McNemar over checks, by {cluster}", "p " + ", ".join(p(t.p) for t in tests), said))
    return lines


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "below 0.0001"


def _ends(found: Interval | None, pairs: int) -> str:
    return wording.no_interval(pairs) if found is None or found.low is None else interval(found)


def _time(found: Time | None) -> list[Line]:
    if found is None:
        return []
    lines = [
        (
            "time ratio, geometric mean",
            wording.ratio(found.ratio),
            f"{_ends(found.interval, found.pairs)}, over {wording.counted(found.pairs, 'pair')}",
        ),
        (
            "faster, slower, equal, not known",
            f"{found.faster}, {found.slower}, {found.equal}, {found.unknown}",
            f"cut at the limit: {found.censored_baseline} baseline, {found.censored_candidate} candidate",
        ),
        ("ratio of sums", wording.ratio(found.ratio_of_sums), "candidate's total wall time over the baseline's"),
    ]
    if found.ratio_censored is not None:
        lines.append(("time ratio, cut times as censored", wording.ratio(found.ratio_censored), "Tobit"))
    if found.hodges_lehmann is not None:
        lines.append(("Hodges-Lehmann ratio", wording.ratio(found.hodges_lehmann), "robust against single pairs"))
    if found.solved_per_hour_baseline is not None:
        lines.append(
            (
                "solved tasks an hour",
                f"{found.solved_per_hour_baseline:.2f} to {found.solved_per_hour_candidate or 0:.2f}",
                f"ratio {wording.ratio(found.solved_per_hour_ratio)}; {_ends(found.solved_per_hour_interval, found.pairs)}",
            )
        )
    return lines


def _needed(verdict: Verdict) -> list[Line]:
    found, counts = verdict.needed, verdict.counts
    if found is None:
        return []

    def pairs(n: int | None) -> str:
        return wording.NOTHING if n is None else wording.counted(n, "pair")

    lines = [
        ("if it goes on as it did so far", reasons.as_so_far(found), "by drawing from the blocks so far"),
        ("until this gate could decide", pairs(found.pairs_anytime), "in all, if nothing differs in truth"),
        ("of a test of fixed size", pairs(found.pairs_fixed), "in all, power 0.8, if nothing differs in truth"),
    ]
    more, hours = found.afresh(counts.counted) if counts.unproven else (found.more, found.hours)
    if more is not None:
        about = f"about {hours:.1f} h at the mean time of a pair" if hours is not None else ""
        lines.append(("still needed" + (", with proof" if counts.unproven else ""), pairs(more), about))
    if found.smallest_effect is not None:
        lines.append(
            ("smallest difference found with power 0.8", f"{found.smallest_effect:.3g}", "in shares of checks")
        )
    return lines


def controls(verdict: Verdict | None) -> Table | None:
    """Return what is known of the apparatus itself."""
    if verdict is None or not verdict.controls:
        return None
    words: Mapping[bool | None, tuple[str, str]] = {True: ("ok", "good"), False: ("NO", "bad"), None: ("not known", "")}
    rows = tuple(
        Row(c.name, (words[c.ok][0], c.run or wording.NOTHING, c.detail), words[c.ok][1]) for c in verdict.controls
    )
    return Table(("control", "", "run", ""), rows)
