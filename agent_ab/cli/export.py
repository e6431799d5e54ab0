"""`export`, `bundle`, `reproduce`: a run for other programs, for other machines, and a pair for another bug tracker.

What is imported inside the functions brings scipy with it, which `agent-ab --help` must not wait for.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from agent_ab import snapshot
from agent_ab.cli.app import AsJson, Db, RunsDir, app, err, open_store, out, print_json
from agent_ab.errors import UserError
from agent_ab.export import bundle as bundles
from agent_ab.export import ctrf as ctrf_report
from agent_ab.export import eval_log as inspect_log
from agent_ab.export import export as exports
from agent_ab.export import records
from agent_ab.export import reproduce as reproduction
from agent_ab.files import appearing
from agent_ab.model import Arm, RunKind
from agent_ab.store import evidence
from agent_ab.store.store import Store
from agent_ab.verdict.verdict import Verdict, to_json
from agent_ab.wording import counted, plain_line

RunName = Annotated[str | None, typer.Argument(help="A run, as `agent-ab runs` names it; else the newest.")]


@app.command()
def export(
    run: RunName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole run as one JSON document.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write one CSV file a table into this directory.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write one Parquet file a table into this directory.")] = None,
    eval_log: Annotated[Path | None, typer.Option(help="Write a log of Inspect AI (.json) there.")] = None,
    ctrf: Annotated[Path | None, typer.Option(help="Write a CTRF report there: a test a check and pair.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of --json.")] = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write a run for other programs: JSON, CSV, Parquet, Inspect AI's log, CTRF. docs/data.md describes every column.

    Example: agent-ab export --csv tables --eval-log run.json
    """
    if schema:
        print_json(records.json_schema())
        return
    if not (as_json or csv or parquet or eval_log or ctrf):
        raise UserError(
            "name what to write: --json, --csv DIR, --parquet DIR, --eval-log FILE, --ctrf FILE or --schema"
        )
    with _chosen(db, run) as (store, run_id):
        written: list[Path] = []
        if csv:
            written += exports.write_csv(store, run_id, csv)
        if parquet:
            written += exports.write_parquet(store, run_id, parquet)
        if eval_log:
            inspect_log.write(store, run_id, runs_dir, eval_log)
            written.append(eval_log)
        if ctrf:
            pairs = (store.load_pair(f"{run_id}/{state.id}") for state in store.pair_states(run_id))
            _write(ctrf, "--ctrf", ctrf_report.report(run_id, pairs, _verdict(store, run_id)))
            written.append(ctrf)
        document = exports.document(store, run_id, to_json(_verdict(store, run_id))) if as_json else None
    for path in written:
        (err if as_json else out).print(str(path), soft_wrap=True)
    if document:
        print_json(exports.to_json(document))


@app.command()
def bundle(
    run: RunName = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="The archive; by default RUN.agent-ab.zip.")] = None,
    verify: Annotated[Path | None, typer.Option(help="Judge this bundle again from the evidence in it.")] = None,
    digest: Annotated[str | None, typer.Option(help="The root digest that was printed when it was made.")] = None,
    unpack: Annotated[
        Path | None, typer.Option(help="With --verify: keep what was unpacked in this new directory.")
    ] = None,
    as_json: AsJson = False,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Put a run with all its evidence into one archive, or judge such an archive again.

    Making one prints its root digest: tell it by another way than the bundle, and `--verify FILE --digest D` refuses
    whatever is not that bundle. It proves that nothing was changed since, not who made it. Exit status of --verify: 0
    the contents are whole and come to what the bundle claims, 4 refused, with what was changed.

    Example: agent-ab bundle --out run.zip; agent-ab bundle --verify run.zip --digest 3f0c...
    """
    if verify:
        if run or out_file:
            raise UserError("--verify: judges a file, and takes neither a run nor --out")
        _verify(verify, digest, unpack, as_json)
        return
    if digest is not None or unpack:
        raise UserError("--digest and --unpack go with --verify FILE")
    with _chosen(db, run) as (store, run_id):
        target = out_file or Path(f"{run_id}.agent-ab.zip")
        verdict = str(_verdict(store, run_id).decision)
        made = bundles.make(store, bundles.leans_on(store, run_id), runs_dir, target, verdict)
    if as_json:
        facts = {"run": run_id, "bundle": str(made.path), "digest": made.digest, "verdict": verdict}
        print_json(facts | {"pairs": made.pairs, "files": made.files, "bytes": made.size})
        return
    _print_facts(
        bundle=f"{made.path} ({counted(made.pairs, 'pair')}, {counted(made.files, 'file')}, {made.size / 1e6:.1f} MB)",
        verdict=verdict,
        digest=made.digest,
        check=f"agent-ab bundle --verify {made.path} --digest {made.digest}",
    )


@app.command()
def reproduce(
    pair: Annotated[str | None, typer.Argument(help="A pair, as `agent-ab pairs` names it; else the newest.")] = None,
    db: Db = Path("runs.db"),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Print a script of bash and curl that sends the pair's last common request to both servers.

    For a bug report upstream: it starts each llama-server as its arm did, needs nothing of ours, and says where the two
    answers part.

    Example: agent-ab reproduce > reproduce.sh; MODEL=model.gguf bash reproduce.sh
    """
    with closing(open_store(db)) as store:
        names = store.pair_names()
        if not names:
            raise UserError(f"{db}: holds no pair yet; `agent-ab pair --task transfer-repair` plays one")
        stored = store.load_pair(pair or names[-1])
    logs = [evidence.recorded_log(stored, arm, runs_dir) for arm in Arm]
    sys.stdout.write(reproduction.script(stored, reproduction.last_common(*logs)))


def _verify(file: Path, digest: str | None, unpack: Path | None, as_json: bool) -> None:
    if digest is not None and not re.fullmatch(bundles.SHA256, digest):
        raise UserError(f"--digest {plain_line(digest)}: not 64 lowercase hex digits; give the whole root digest")
    if unpack and unpack.exists():
        raise UserError(f"--unpack {unpack}: is there already; name a new directory")
    with _scratch() as scratch:
        target = scratch / "bundle"
        verified = bundles.verify(file, target, digest)
        if unpack:
            _keep(target, unpack)
    verdict = verified.verdict
    counts = {str(o): sum(found is o for found in verified.outcomes.values()) for o in verified.outcomes.values()}
    if as_json:
        facts = {"run": verified.run, "digest": verified.digest, "digest_given": verified.told, "outcomes": counts}
        print_json(facts | {"claimed_verdict": verified.claimed_verdict, "verdict": to_json(verdict)})
        return
    _print_facts(
        whole=f"as they were bundled: {counted(verified.files, 'file')}; judged again: {counted(len(verified.outcomes), 'pair')}",
        outcomes=", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
        verdict=f"{verdict.decision}   {verdict.reasons[0]}",
        digest=verified.digest,
        proven="integrity against the digest that you gave"
        if verified.told
        else "nothing against a repack: give the digest that was printed when it was made, --digest",
    )
    if unpack:
        _print_facts(unpacked=f"agent-ab report {verified.run} --db {unpack}/runs.db --runs-dir {unpack}/runs")


def _keep(unpacked: Path, target: Path) -> None:
    try:
        shutil.move(unpacked, target)
    except OSError as error:
        raise UserError(f"--unpack {target}: cannot be written: {error.strerror}") from error


def _verdict(store: Store, run_id: str) -> Verdict:
    from agent_ab.gate import judged

    return judged.verdict_of(store, run_id)


@contextmanager
def _chosen(db: Path, run: str | None) -> Iterator[tuple[Store, str]]:
    with closing(open_store(db)) as store:
        yield store, run_of(store, run)


def run_of(store: Store, run: str | None) -> str:
    """Return the run so named, or the newest comparison that holds a pair. Raises UserError."""
    if run is not None:
        return store.run(run).id
    played = [summary for summary in store.runs() if summary.pairs]
    if not played:
        raise UserError(f"{store.path}: holds no pair yet; `agent-ab pair --task transfer-repair` plays one")
    comparisons = [summary for summary in played if summary.kind not in (RunKind.AA, RunKind.CONTROLS)]
    return (comparisons or played)[0].id


@contextmanager
def _scratch() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="agent-ab-bundle-"))
    try:
        yield root
    finally:
        snapshot.remove(root)


def _write(path: Path, option: str, data: object) -> None:
    try:
        with appearing(path) as partial:
            partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be written: {error.strerror}") from error


def _print_facts(**facts: str) -> None:
    for label, value in facts.items():
        out.print(f"{label:<10} {value}", soft_wrap=True)
