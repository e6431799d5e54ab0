"""Pairs + verdict -> everything that is on the page. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_ab.model import Pair
from agent_ab.report.page import bars, facts, headline, lines, plots
from agent_ab.report.page.contents import Dossier, Page, RunFacts
from agent_ab.report.page.shapes import Plot
from agent_ab.report.summary import Summary, summarise
from agent_ab.verdict.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about."""

    run: RunFacts
    pairs: tuple[Pair, ...]
    """In the order of play, VOID tries included."""
    verdict: Verdict | None
    marks: tuple[lines.Mark, ...] = ()
    db: str = "runs.db"
    runs_dir: str = "runs"


def compose(subject: Subject, dossiers: Iterable[Dossier], made: str) -> Page:
    """Return the page of a run. Every number on it comes from `subject`."""
    pairs, verdict, run = subject.pairs, subject.verdict, subject.run
    summary = summarise(pairs)
    numbered = lines.numbered(pairs)
    every = lines.pair_lines(numbered)
    return Page(
        head=headline.head(run, pairs, summary, verdict),
        numbers=headline.numbers(verdict),
        controls=headline.controls(verdict),
        flips=lines.flip_lines(summary, numbered, verdict, subject.marks),
        grid=lines.grid(numbered),
        plots=_plots(numbered, summary, verdict),
        endings=facts.endings(summary),
        kinds=facts.kinds(summary),
        pairs=every,
        proof=lines.proof_rows(numbered),
        voids=facts.voids(summary, verdict),
        void_lines=tuple(line for line in every if line.tone == "void"),
        machine=facts.machine(pairs),
        differences=lines.differences(numbered),
        settings=facts.settings(pairs),
        stated=facts.stated(run),
        hashes=facts.hashes(run, pairs, verdict),
        commands=facts.commands(run, pairs, subject.db, subject.runs_dir),
        dossiers=tuple(dossiers),
        made=made,
    )


def _plots(numbered: Sequence[lines.Numbered], summary: Summary, verdict: Verdict | None) -> Mapping[str, Plot]:
    points = lines.points(numbered)
    drawn = (
        plots.wall_times(points),
        plots.time_ratio(points, verdict.time if verdict else None),
        bars.wall_split(lines.split_bars(numbered)),
        plots.checks_passed(points),
        plots.evidence_path(verdict.path, verdict.evidence) if verdict else None,
        plots.by_length(summary.lengths, "speed"),
        plots.by_length(summary.lengths, "acceptance"),
    )
    return {plot.id.removeprefix("plot-"): plot for plot in drawn if plot}
