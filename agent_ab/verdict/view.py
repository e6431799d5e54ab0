"""A verdict as renderables for a terminal, and its figures line by line; prints nothing itself. Pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab.gate.policy import Policy
from agent_ab.verdict.reasons import e_value
from agent_ab.verdict.verdict import Correctness, Decision, Interval, Time, Verdict
from agent_ab.wording import counted, no_interval, percent, plain_line, seconds

FLIPS_SHOWN = 10
STYLE = {
    Decision.ADOPT: "bold green",
    Decision.REJECT: "bold red",
    Decision.INCONCLUSIVE: "bold yellow",
    Decision.INVALID: "bold magenta",
}


def p_value(p: float | None) -> str:
    """Return a p-value: `0.351`, `1.0`, `0.00039`."""
    if p is None:
        return "-"
    if p < 0.001:
        return f"{p:.2g}"
    text = f"{p:.3f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def interval(found: Interval | None, digits: int = 4) -> str:
    """Return an interval: `95 % [-0.3785, 0.1535]`."""
    if found is None or found.low is None or found.high is None:
        return "-"
    return f"{100 * found.level:g} % [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def figures(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the numbers behind the verdict, a label and a line each."""
    lines = [("pairs", _pairs(verdict))]
    if verdict.correctness:
        lines += _correctness(verdict.correctness)
    if verdict.evidence:
        e = verdict.evidence
        lines.append(
            (
                "evidence",
                f"e (harm) {e_value(e.harm)}, the mean of checks {e_value(e.harm_checks)} and solved tasks"
                f" {e_value(e.harm_solved)}; e (non-inferior) checks {e_value(e.noninferior)}, solved tasks"
                f" {e_value(e.noninferior_solved)}; e (faster) {e_value(e.faster)}; {e.needed:g} decides, at a block's end",
            )
        )
    if verdict.time and verdict.time.pairs:
        lines += _time(verdict.time)
    if verdict.needed and verdict.needed.smallest_effect:
        effect = f"{verdict.needed.smallest_effect:.4f}"
        lines.append(("power", f"these pairs find a mean difference of {effect} with probability 0.8"))
    return lines


def _pairs(verdict: Verdict) -> str:
    c = verdict.counts
    text = f"{c.counted} counted of {c.planned} planned, in {counted(c.blocks, 'whole block')}"
    for number, what in ((c.repeated, "repeated"), (c.unfinished, "in unfinished blocks"), (c.unproven, "UNPROVEN")):
        text += f", {number} {what}" if number else ""
    voids = c.voids_baseline + c.voids_candidate + c.voids_identity
    return text + (f"; VOID tries {voids}" if voids else "")


def _correctness(c: Correctness) -> list[tuple[str, str]]:
    t = interval(c.interval).replace(" % ", " % t interval ", 1)
    if c.interval.low is None:
        t = no_interval(c.pairs)
    flips = p_value(c.p_sign_flip) + ("" if c.sign_flip_exact else " by simulation, which shows none below 0.00005")
    lines = [
        ("checks passed", f"baseline {c.passed_baseline}/{c.checks}, candidate {c.passed_candidate}/{c.checks}"),
        (
            "pairs solved",
            f"both {c.both}, broken {c.broken}, fixed {c.fixed}, neither {c.neither}; McNemar over pairs, exact p"
            f" {p_value(c.p_solved_exact)}, mid-p {p_value(c.p_solved_mid)}",
        ),
        ("difference", f"mean {c.mean:.4f} per pair, {t}, sign-flip p {flips}"),
        ("lower bound", f"{c.lower:.4f} one-sided" + (", by the share of deviating pairs" if c.guarded else "")),
        ("at any time", f"confidence sequence {interval(c.always_valid)}, one-sided lower bound {c.lower_always:.4f}"),
        (
            "",
            f"of solved tasks {interval(c.solved_always_valid)}, one-sided lower bound {c.solved_lower_always:.4f}",
        ),
    ]
    if c.task_interval:
        known = c.task_interval.low is not None
        over = (
            f"t interval of the tasks' means {interval(c.task_interval)}"
            if known
            else "no interval, since all tasks' means are alike"
        )
        lines.append(("over tasks", over))
    if c.clustered:
        tests = ", ".join(f"{t.name} {p_value(t.p)}" for t in c.clustered if t.cluster == "pair")
        lines.append(("over checks", f"McNemar clustered by pair, p: {tests}"))
    if c.design_effect and c.effective_checks:
        lines.append(("worth", worth(c.checks, c.design_effect, c.effective_checks)))
    if c.order_effect is not None:
        lines.append(("order of play", f"{c.order_effect:+.4f} when the baseline was first"))
    return lines


def worth(checks: int, effect: float, effective: float) -> str:
    """Return how much the checks say, those of a pair being what they are to each other."""
    if effect < 1:
        return (
            f"{counted(checks, 'check')} say no more than their number: within a pair they do not stand and fall together"
            f" (design effect {effect:.2f})"
        )
    return f"{counted(checks, 'check')} say as much as {effective:.2f} independent ones (design effect {effect:.2f})"


def _ends(found: Interval | None, pairs: int) -> str:
    return no_interval(pairs) if found is None or found.low is None else interval(found, 3)


def _time(t: Time) -> list[tuple[str, str]]:
    equal = f", equal in {t.equal}" if t.equal else ""
    unknown = f", not known in {t.unknown} (both cut at the limit)" if t.unknown else ""
    known = f"candidate faster in {t.faster}, slower in {t.slower}{equal}{unknown} of {counted(t.pairs, 'pair')}"
    cut = t.censored_baseline + t.censored_candidate
    lines = [
        ("wall time", known + (f"; {t.censored_baseline} + {t.censored_candidate} cut at the limit" if cut else ""))
    ]
    if t.ratio is not None:
        tobit = "" if t.ratio_censored is None else f", {t.ratio_censored:.3f} with cut times as censored"
        least = "at least " if t.censored_candidate else ""
        ratio = f"candidate / baseline {least}{t.ratio:.3f} (geometric mean), {_ends(t.interval, t.pairs)}{tobit}"
        lines.append(("", ratio))
    elif t.unknown:
        lines.append(("", "candidate / baseline not known: every pair was cut at the limit in both arms"))
    if t.mean_baseline_s is not None:
        lines.append(("", f"mean {seconds(t.mean_baseline_s)} and {seconds(t.mean_candidate_s)}"))
    if t.solved_per_hour_baseline is not None and t.solved_per_hour_candidate is not None:
        text = f"baseline {t.solved_per_hour_baseline:.2f}, candidate {t.solved_per_hour_candidate:.2f}"
        if t.solved_per_hour_ratio is not None:
            text += f"; ratio {t.solved_per_hour_ratio:.3f}, {_ends(t.solved_per_hour_interval, t.pairs)}"
        lines.append(("solved per hour", text))
    return lines


def view(verdict: Verdict, policy_file: str = "") -> RenderableType:
    """Return the whole verdict for a terminal of 100 columns; `policy_file`: the policy was asked for by this name."""
    parts: list[RenderableType] = [
        Text.assemble(
            (verdict.decision.value, STYLE[verdict.decision]),
            f"   {plain_line(verdict.run)}   {verdict.kind} of {plain_line(verdict.profile)}"
            f"   {plain_line(verdict.variable)}",
        ),
        *_list("why", verdict.reasons),
        *_list("besides", verdict.warnings),
        Text(),
        _figure_table(verdict, policy_file),
    ]
    if verdict.tasks:
        parts += [Text(), _task_table(verdict)]
    if verdict.checks:
        parts += [Text(), _check_table(verdict)]
    if verdict.flips:
        parts += [Text(), *_flip_lines(verdict)]
    return Group(*parts)


def _list(title: str, lines: tuple[str, ...]) -> list[RenderableType]:
    if not lines:
        return []
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row("  -", Text(plain_line(line)))
    return [Text(), Text(title, style="bold"), table]


def _policy(verdict: Verdict, policy_file: str) -> str:
    """Return by what was judged; empty where that is the shipped policy and nobody asked for another."""
    if not policy_file and verdict.policy_sha256 == Policy().sha256():
        return ""
    whose = f"{plain_line(policy_file)}, chosen with --policy" if policy_file else "the run's own"
    rules = verdict.policy
    return f"{whose}: margin {rules['margin']:g}, alpha {rules['alpha']:g}, sha256 {verdict.policy_sha256[:12]}"


def _figure_table(verdict: Verdict, policy_file: str) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, line in figures(verdict):
        table.add_row(label, Text(line))
    if judged_by := _policy(verdict, policy_file):
        table.add_row("policy", Text(judged_by))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _task_table(verdict: Verdict) -> Table:
    ks = "/".join(str(k + 1) for k in range(max(len(row.baseline.pass_at) for row in verdict.tasks)))
    table = _table("task", "pairs", "solved", "", "checks", "", "mean", f"pass@{ks}, baseline", "candidate")
    for row in verdict.tasks:
        sides = (row.baseline, row.candidate)
        table.add_row(
            plain_line(row.task),
            str(row.pairs),
            *(str(side.solved) for side in sides),
            *(percent(side.share) for side in sides),
            f"{row.mean:+.3f}",
            *("/".join(f"{p:.2f}" for p in side.pass_at) for side in sides),
        )
    return table


def _check_table(verdict: Verdict) -> Table:
    table = _table("check, as observed", "broken", "fixed", "pairs", "p", "Holm", "BH", "e", "")
    for row in verdict.checks[:FLIPS_SHOWN]:
        table.add_row(
            plain_line(f"{row.task}/{row.check}"),
            str(row.broken),
            str(row.fixed),
            str(row.pairs),
            p_value(row.p),
            p_value(row.p_holm),
            p_value(row.p_bh),
            e_value(row.e),
            Text("regressed", style="bold red") if row.regressed else "observed",
        )
    if len(verdict.checks) > FLIPS_SHOWN:
        table.add_row(f"and {counted(len(verdict.checks) - FLIPS_SHOWN, 'more check')}")
    return table


def _flip_lines(verdict: Verdict) -> list[RenderableType]:
    lines: list[RenderableType] = [Text("observed flips (one pair each: no regression by itself)", style="bold")]
    for flip in verdict.flips[:FLIPS_SHOWN]:
        way = "passed, then failed" if flip.broken else "failed, then passed"
        lines.append(Text(f"  {plain_line(flip.pair)}  {plain_line(flip.check)}  {way}"))
    if len(verdict.flips) > FLIPS_SHOWN:
        lines.append(Text(f"  and {len(verdict.flips) - FLIPS_SHOWN} more; --json has them"))
    return lines
