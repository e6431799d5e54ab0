"""`gate`, `import`, `plan`: adopt or not, and how many pairs it takes to say so.

What is imported inside the functions brings scipy with it, which `agent-ab --help` must not wait for.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from agent_ab.cli.app import ROOT, AsJson, Db, RunsDir, TasksDir, app, err, open_store, out, print_json
from agent_ab.cli.options import MOST_MINUTES, bounded
from agent_ab.config import Sandbox
from agent_ab.errors import UserError
from agent_ab.gate.policy import Policy, load_policy
from agent_ab.model import RunKind, SandboxKind
from agent_ab.progress import Progress
from agent_ab.store.store import Store
from agent_ab.verdict.verdict import Verdict, to_json
from agent_ab.wording import counted, plain_line, seconds, thousands

if TYPE_CHECKING:
    from agent_ab.gate.planning import PlannedSize

FAULTS_SHOWN = 20
PolicyFile = Annotated[
    Path | None, typer.Option(help="A gate.toml; by default the policy that the run was planned by.")
]


@app.command()
def gate(
    run: Annotated[str | None, typer.Argument(help="A run, as `agent-ab runs` names it; else the newest.")] = None,
    policy: PolicyFile = None,
    as_json: AsJson = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML there: a case a check, one the verdict.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the verdict as Markdown there.")] = None,
    from_evidence: Annotated[
        bool, typer.Option("--from-evidence", help="Work outcomes out again from --runs-dir; read no database.")
    ] = False,
    judge_again: Annotated[
        bool, typer.Option("--judge-again", help="And run the hidden checks once more on every snapshot.")
    ] = False,
    sandbox: Annotated[
        SandboxKind, typer.Option(help="For --judge-again; `none` runs code loose.")
    ] = SandboxKind.BWRAP,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
    tasks_dir: TasksDir = ROOT / "tasks",
) -> None:
    """Say whether to adopt the candidate: ADOPT, REJECT, INCONCLUSIVE or INVALID, and why.

    Exit status: 0 ADOPT, 1 REJECT, 2 your mistake, 3 INCONCLUSIVE, 4 INVALID. INCONCLUSIVE says how many pairs and hours
    are still needed. Where GITHUB_STEP_SUMMARY is set, the summary goes there too, and flips become annotations.

    Example: agent-ab gate --policy gate.toml --junit gate.xml
    """
    chosen = load_policy(policy) if policy else None
    if from_evidence or judge_again:
        verdict = _from_evidence(run, chosen, runs_dir, (tasks_dir, sandbox) if judge_again else None)
    else:
        verdict = _from_database(run, chosen, db)
    _write_files(verdict, junit, markdown)
    if as_json:
        print_json(to_json(verdict))
    else:
        from agent_ab.verdict import view

        out.print(view.view(verdict, str(policy) if policy else ""))
    if verdict.exit_status:
        raise typer.Exit(verdict.exit_status)


def _from_database(run: str | None, policy: Policy | None, db: Path) -> Verdict:
    from agent_ab.gate import judged

    store = open_store(db)
    try:
        return judged.verdict_of(store, run, policy)
    finally:
        store.close()


def _from_evidence(
    run: str | None, policy: Policy | None, runs_dir: Path, again: tuple[Path, SandboxKind] | None
) -> Verdict:
    from agent_ab.gate import judged, rederived

    found = rederived.records(runs_dir)
    names = [record.id for record in found]
    chosen = [r for r in found if r.id == run] if run else [r for r in found if r.kind in judged.JUDGED_KINDS]
    if not chosen:
        raise UserError(f"{runs_dir}: holds no run {run or 'to judge'}; there are: {', '.join(names) or 'none'}")
    with Progress(err) as progress:
        anew = rederived.JudgeAgain(again[0], Sandbox(kind=again[1]), progress) if again else None
        others = [r for r in found if r.kind in (RunKind.AA, RunKind.CONTROLS)]
        return judged.verdict_on(chosen[0], others, lambda record: rederived.rederived(record, runs_dir, anew), policy)


def _write_files(verdict: Verdict, junit_file: Path | None, markdown_file: Path | None) -> None:
    from agent_ab.verdict import ci, junit

    if junit_file:
        _write(junit_file, junit.junit(verdict), "w", "--junit")
    if markdown_file:
        _write(markdown_file, ci.markdown(verdict), "w", "--markdown")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _write(Path(summary), ci.markdown(verdict), "a", "GITHUB_STEP_SUMMARY")
        # The runner reads workflow commands from both streams; standard output may hold JSON.
        sys.stderr.write("".join(f"{line}\n" for line in ci.annotations(verdict)))


def _write(path: Path, text: str, mode: str, option: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be written: {error.strerror}") from None


@app.command("import")
def import_results(
    file: Annotated[
        Path, typer.Argument(help="A .toml, .json or .csv file of results; docs/verdict.md has the forms.")
    ],
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
) -> None:
    """Bring results from elsewhere into the database, marked as imported and UNPROVEN: they never lead to ADOPT.

    Example: agent-ab import agent_ab/data/published_experiment.toml --db p.db && agent-ab gate --db p.db
    """
    from agent_ab.gate import imported

    if not db.absolute().parent.is_dir():
        raise UserError(f"--db {db}: its parent directory does not exist")
    store = Store(db)
    try:
        found = imported.import_file(file, store)
    finally:
        store.close()
    if as_json:
        print_json({"run": found.run, "pairs": found.pairs, "of": found.of, "faults": list(found.faults)})
        return
    pairs = f"{found.pairs} of {counted(found.of, 'pair')}" if found.pairs < found.of else counted(found.of, "pair")
    out.print(f"imported {pairs} as run {plain_line(found.run)}, UNPROVEN")
    if found.faults:
        out.print(f"the gate will say INVALID, of {counted(len(found.faults), 'fault')}:")
    for fault in found.faults[:FAULTS_SHOWN]:
        out.print(f"  - {plain_line(fault)}", soft_wrap=True)
    if (rest := len(found.faults) - FAULTS_SHOWN) > 0:
        out.print(f"  and {rest} more; --json has them")
    out.print(f"judge it with: agent-ab gate {found.run} --db {db}", soft_wrap=True)


@app.command()
def plan(
    margin: Annotated[float | None, bounded("Only this margin.", least=0.001, most=0.999)] = None,
    sd: Annotated[
        float | None,
        bounded("Standard deviation of the pairs' differences, instead of an A/A run.", most=1),
    ] = None,
    aa: Annotated[str, typer.Option("--aa", help="The A/A run to plan with; by default the newest.")] = "",
    pair_minutes: Annotated[float | None, bounded("Minutes that a pair takes.", most=MOST_MINUTES)] = None,
    policy: PolicyFile = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
) -> None:
    """Say how many pairs a margin takes, and how many hours, before anything is played.

    Example: agent-ab plan --sd 0.32 --pair-minutes 10
    """
    from agent_ab.gate import planning

    rules = load_policy(policy)
    if aa and sd is not None:
        raise UserError("--aa and --sd: the standard deviation comes from the one or the other; give one of them")
    found = planning.from_aa(db, aa, rules) if sd is None else planning.Basis(sd, None, None, "given")
    seconds = found.pair_s if pair_minutes is None else pair_minutes * 60
    sizes = planning.sizes(found.sd, rules, (margin,) if margin else planning.MARGINS, seconds)
    if as_json:
        print_json({"schema": 1, "basis": found.as_json(), "alpha": rules.alpha, "sizes": [s.as_json() for s in sizes]})
        return
    out.print(found.sentence, soft_wrap=True)
    for line in found.without_information:
        out.print(plain_line(line), soft_wrap=True)
    out.print(_size_table(sizes))
    for line in planning.unsaid(sizes, found.sd):
        out.print(line, soft_wrap=True)
    out.print(
        f"one-sided alpha {rules.alpha:g}, power 0.8, nothing differing in truth; the gate reads its evidence after every"
        " block, and pays for that with pairs",
    )


def _size_table(sizes: "list[PlannedSize]") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "margin",
        "pairs, by the gate's evidence",
        "hours",
        "pairs, fixed (t test)",
        "hours",
        "to find a difference",
    ):
        table.add_column(name)
    for row in sizes:
        table.add_row(
            f"{row.margin:g}",
            thousands(row.anytime),
            seconds(row.anytime_s),
            thousands(row.fixed),
            seconds(row.fixed_s),
            thousands(row.difference),
        )
    return table
