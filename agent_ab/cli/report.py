"""`report`, `demo`: a run on the terminal, as a page, as Markdown, and as data.

What is imported inside the functions brings scipy or jinja2 with it, which `agent-ab --help` must not wait for.
"""

import sys
import tempfile
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from agent_ab.cli.app import Db, RunsDir, app, err, open_store, out, print_json
from agent_ab.errors import UserError
from agent_ab.store.store import Store
from agent_ab.verdict.verdict import to_json
from agent_ab.wording import counted

PUBLISHED = "published_experiment.toml"


@app.command()
def report(
    run: Annotated[str | None, typer.Argument(help="A run, as `agent-ab runs` names it; else the newest.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one self-contained page there.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run as data, verdict included.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV file a table into this directory.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file a table into this directory.")] = None,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Show what a run came to: the verdict, what flipped, what the change costs, and how far it is proven.

    The page needs no network and no server: open the file. Exit status 0 whatever the report says; `gate` decides.

    Example: agent-ab report --html report.html
    """
    from agent_ab.export import export
    from agent_ab.report import run as report_run
    from agent_ab.report.page import gather

    if markdown and as_json:
        raise UserError("--markdown and --json: standard output holds one of them")
    with closing(open_store(db)) as store:
        subject = gather.subject_of(store, run, db, runs_dir)
        written = [*export.write_csv(store, subject.run.id, csv)] if csv else []
        written += export.write_parquet(store, subject.run.id, parquet) if parquet else []
        verdict = to_json(subject.verdict) if subject.verdict else None
        data = export.to_json(export.document(store, subject.run.id, verdict)) if as_json else None
    if html:
        gather.write_page(subject, runs_dir, html)
        written.append(html)
    if markdown:
        sys.stdout.write(report_run.markdown(subject))
    elif as_json:
        print_json(data)
    elif not written:
        out.print(report_run.view(subject))
    for path in written:
        (err if markdown or as_json else out).print(str(path), soft_wrap=True)


@app.command()
def demo(
    html: Annotated[
        Path | None, typer.Option(help="Write the page there; by default into a new temporary directory.")
    ] = None,
) -> None:
    """Show a report without engine, model or waiting: the published experiment's numbers, imported and UNPROVEN.

    Example: agent-ab demo --html demo.html
    """
    from agent_ab.gate import imported
    from agent_ab.report.page import gather

    place = Path(tempfile.mkdtemp(prefix="agent-ab-demo-"))
    target = html or place / "report.html"
    db = place / "runs.db"
    source = place / PUBLISHED
    source.write_bytes((files("agent_ab") / "data" / PUBLISHED).read_bytes())
    with closing(Store(db)) as store:
        found = imported.import_file(source, store)
        subject = gather.subject_of(store, found.run, db, place / "runs")
    gather.write_page(subject, place / "runs", target)
    assert subject.verdict
    err.print(
        f"imported {counted(found.pairs, 'pair')} of a published experiment: nobody proved here that only one thing differed,"
        " they are UNPROVEN and never lead to ADOPT",
    )
    out.print(f"{subject.verdict.decision}   {subject.verdict.reasons[0]}", soft_wrap=True)
    out.print(f"page       {target}", soft_wrap=True)
    out.print(f"terminal   agent-ab report --db {db}", soft_wrap=True)
