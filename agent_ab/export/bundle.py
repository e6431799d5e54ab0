"""A run with all its evidence in one archive, and an archive judged again from nothing but what is in it.

    manifest.json               what is in the archive, with sha256 and size; its own sha256 is the root digest
    runs/<run>/...              the run directory, as `paths.py` draws it

The manifest is a function of the run alone: whoever bundles the run again gets the same root digest.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_ab.errors import ApparatusError, UserError
from agent_ab.export import archive
from agent_ab.files import appearing
from agent_ab.gate.observed import subject
from agent_ab.model import Arm, Json, Pair, PairOutcome, RunKind
from agent_ab.paths import RunPaths
from agent_ab.reading import crowded, shown
from agent_ab.review import marks
from agent_ab.schedule import digest as digest_of
from agent_ab.store import evidence
from agent_ab.store.store import RunRecord, Store
from agent_ab.store.tables import RunRow
from agent_ab.verdict.verdict import Verdict

STEP = "bundle"
FORMAT = 1
"""Version of the manifest's shape: 1, the first."""
MANIFEST = "manifest.json"
RUNS = "runs"
MANIFEST_BYTES = 64_000_000
"""300 bytes for each of the 200,000 files that an archive may hold."""
DATABASE = "runs.db"
LIFE = re.compile(r"[0-9]+-(baseline|candidate)\.log")
"""Names of the logs of servers that served several attempts."""
NAMED = 5
"""So many faults are named; the rest is a count."""
SHA256 = r"[0-9a-f]{64}"
Sha256 = Annotated[str, Field(pattern=f"^{SHA256}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BundledFile(_Strict):
    """One file of the archive."""

    path: str
    size: int = Field(ge=0)
    sha256: Sha256


class Manifest(_Strict):
    """manifest.json."""

    format: Literal[1]
    run: str
    """The run that the bundle is about; the others are those that its verdict leans on."""
    rows: dict[str, RunRecord]
    """The database's row of each run."""
    marks: dict[str, tuple[marks.Mark, ...]]
    """What people said of flips, by run, all of it."""
    outcomes: dict[str, PairOutcome]
    """What each pair came to, by its name. A claim: verifying derives it again."""
    verdict: str | None
    """The gate's word when the bundle was made. A claim, too; None when there was none."""
    versions: dict[str, tuple[str, ...]]
    """What took part, by the evidence."""
    files: tuple[BundledFile, ...]


@dataclass(frozen=True, slots=True)
class Bundled:
    """A bundle that was made."""

    path: Path
    digest: str
    """The root digest: to be told by another way than the bundle itself."""
    pairs: int
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A bundle whose contents are whole, and whose claims are what its evidence comes to."""

    run: str
    digest: str
    told: bool
    """The digest was given by the caller; otherwise anyone may have made the bundle anew."""
    outcomes: Mapping[str, PairOutcome]
    claimed_verdict: str | None
    verdict: Verdict
    """What the evidence comes to; what was claimed, if anything was."""
    files: int


def make(store: Store, run_ids: Sequence[str], runs_dir: Path, target: Path, verdict: str | None) -> Bundled:
    """Write the first of `run_ids`, with the others that its verdict leans on, into the new archive `target`.

    Raises UserError when it is there already or holds no evidence, ApparatusError when the evidence is damaged.
    """
    if target.exists():
        raise UserError(f"{target}: is there already; name another file with --out")
    records, outcomes, members = {}, {}, []
    versions: dict[str, set[str]] = {"agent_ab": set(), "server": set(), "model": set(), "agent": set()}
    for run_id in run_ids:
        record, paths = store.run(run_id), RunPaths(runs_dir / run_id)
        _require_evidence(record, paths)
        records[run_id] = record
        versions["agent_ab"].add(record.version)
        members.append(archive.Member(f"{RUNS}/{run_id}/run.json", paths.plan))
        members += [
            archive.Member(f"{RUNS}/{run_id}/lives/{log.name}", log)
            for log in sorted(paths.lives.glob("*.log"))
            if LIFE.fullmatch(log.name)
        ]
        for state in sorted(store.pair_states(run_id), key=lambda state: state.id):
            pair = _sound(store, paths, state.id)
            outcomes[pair.name] = pair.outcome
            members += _members(paths, pair)
            _note_versions(versions, pair)
    manifest = Manifest(
        format=FORMAT,
        run=run_ids[0],
        rows=records,
        marks={run_id: marks.history(store, run_id) for run_id in run_ids},
        outcomes=outcomes,
        verdict=verdict,
        versions={name: tuple(sorted(found)) for name, found in versions.items()},
        files=tuple(_described(member) for member in members),
    )
    text = _canonical(manifest)
    try:
        with appearing(target) as partial:
            archive.write(partial, [archive.Member(MANIFEST, text), *members])
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror}") from error
    return Bundled(target, hashlib.sha256(text).hexdigest(), len(outcomes), len(members), target.stat().st_size)


def leans_on(store: Store, run_id: str) -> tuple[str, ...]:
    """Return the run and those that its verdict leans on: A/A and control runs of the same baseline, model and tasks."""
    record = store.run(run_id)
    if record.kind in (RunKind.AA, RunKind.CONTROLS, RunKind.IMPORT):
        return (run_id,)
    asked = subject(record.plan)
    akin = [summary.id for summary in store.runs() if summary.kind in (RunKind.AA, RunKind.CONTROLS)]
    return (run_id, *(other for other in akin if subject(store.run(other).plan) == asked))


def unpack(file: Path, target: Path, digest: str | None = None) -> tuple[Manifest, str]:
    """Unpack a bundle into the new directory `target` and return its manifest with its root digest.

    Raises ApparatusError that says what was changed when any byte differs from what was bundled, or when the root
    digest is not `digest`; UserError when there is no such file.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    target.mkdir()
    whole = archive.sealed(file)
    sizes = archive.sizes(file)
    held = frozenset(sizes)
    if sizes.get(MANIFEST, 0) > MANIFEST_BYTES:
        _refuse(file, [f"{MANIFEST} unpacks to {sizes[MANIFEST]} bytes, more than {MANIFEST_BYTES}"])
    damaged = archive.unpack(file, target, only={MANIFEST})
    faults = [f"{name} was changed: {why}" for name, why in damaged.items()]
    path = target / MANIFEST
    if not path.is_file():
        _refuse(file, faults or [f"it holds no {MANIFEST}: no bundle of ours"])
    text = path.read_bytes()
    root = hashlib.sha256(text).hexdigest()
    manifest = _read(file, text, faults)
    if digest is not None and digest != root:
        faults.append(f"{MANIFEST} is another than that of the digest: the root digest is {root}, given is {digest}")
    records = {f"{RUNS}/{name}/pair.json" for name in manifest.outcomes} & held
    faults += [*_misfits(manifest), *_unpacked(file, target, manifest, records)]
    if faults:
        _refuse(file, faults)
    # What belongs to the runs is known only now, and nothing else is unpacked.
    with _named_within(file, target):
        parts = _parts(manifest, target, held)
    listed = {file.path for file in manifest.files}
    faults += [f"{name} is missing" for name in sorted(listed - held)]
    faults += [f"{archive.shown(name)} is no part of the runs' evidence" for name in sorted(held - parts - {MANIFEST})]
    if faults:
        _refuse(file, faults)
    faults += _unpacked(file, target, manifest, parts & held - records)
    if not faults and not whole:
        faults.append("the archive's own bytes (a header, the directory or the seal) were changed, no file in it")
    if faults:
        _refuse(file, faults)
    return manifest, root


def verify(file: Path, target: Path, digest: str | None = None) -> Verified:
    """Unpack a bundle into the new directory `target` and derive every outcome again from the evidence.

    `target/runs.db` is then a database made of nothing but the evidence, `target/runs` its run directories. Raises
    ApparatusError when a byte was changed, when the root digest is another, or when the evidence comes to something
    else than the bundle claims.
    """
    # It brings scipy with it, which `agent-ab --help` must not wait for.
    from agent_ab.gate.judged import verdict_of

    manifest, root = unpack(file, target, digest)
    with closing(Store(target / DATABASE)) as store, _named_within(file, target):
        outcomes, faults = _rebuild(manifest, target, store)
        verdict = verdict_of(store, manifest.run)
    if manifest.verdict not in (None, str(verdict.decision)):
        faults.append(f"the bundle claims the verdict {manifest.verdict}, the evidence comes to {verdict.decision}")
    if faults:
        _refuse(file, faults)
    return Verified(manifest.run, root, digest is not None, outcomes, manifest.verdict, verdict, len(manifest.files))


def _rebuild(manifest: Manifest, target: Path, store: Store) -> tuple[dict[str, PairOutcome], list[str]]:
    """Fill `store` from the evidence. Returns what each pair came to, and where that is not what was claimed."""
    faults: list[str] = []
    derived: dict[str, PairOutcome] = {}
    for run_id, record in manifest.rows.items():
        paths = RunPaths(target / RUNS / run_id)
        faults += _against_row(record, paths)
        with store.writing() as session:
            session.add(RunRow(**asdict(record)))
        for pair in evidence.load_pairs(paths):
            faults += evidence.disagreements(evidence.recorded_pair(paths, pair.id), pair)
            faults += evidence.against_plan(record.plan, pair)
            store.save_pair(pair)
            derived[pair.name] = pair.outcome
        for mark in manifest.marks.get(run_id, ()):
            if f"{run_id}/{mark.pair_id}" in derived:
                marks.add(store, run_id, mark)
            else:
                faults.append(f"{run_id}/{mark.pair_id} has a mark and no evidence")
    for name in manifest.outcomes | derived:
        if manifest.outcomes.get(name) != derived.get(name):
            claim, fact = (table.get(name, "absent") for table in (manifest.outcomes, derived))
            faults.append(f"{name}: the bundle claims {claim}, the evidence comes to {fact}")
    return derived, faults


def _against_row(record: RunRecord, paths: RunPaths) -> Iterator[str]:
    try:
        plan = evidence.parsed(paths.plan)
    except ApparatusError:
        plan = None
    if plan != record.plan:
        yield f"{record.id}: run.json is not the plan in the manifest"
    for what, data, expected in (
        ("plan", record.plan, record.plan_sha256),
        ("policy", record.policy, record.policy_sha256),
        ("policy", record.policy, record.plan.get("policy_sha256")),
    ):
        if expected and digest_of(data) != expected:
            yield f"{record.id}: the {what} is not the one that was hashed before the run"


def _require_evidence(record: RunRecord, paths: RunPaths) -> None:
    if record.kind == RunKind.IMPORT:
        raise UserError(f"{record.id} is imported: there is no evidence that a bundle could carry")
    if not paths.plan.is_file():
        raise UserError(f"{paths.plan}: the evidence is not there; --runs-dir names where it is")


def _sound(store: Store, paths: RunPaths, pair_id: str) -> Pair:
    """Return the pair of the evidence, when it is what the database says."""
    pair = evidence.load_pair(paths, pair_id)
    stored = store.load_pair(pair.name)
    faults = evidence.disagreements(stored, pair)
    if faults:
        raise ApparatusError(STEP, f"database and evidence disagree: {faults[0]}")
    return pair


def _members(paths: RunPaths, pair: Pair) -> Iterator[archive.Member]:
    base = f"{RUNS}/{pair.name}"
    yield archive.Member(f"{base}/pair.json", paths.pair_json(pair.id))
    for arm in Arm:
        for name in sorted(file.path for file in pair.attempt(arm).evidence):
            yield archive.Member(f"{base}/{arm.value}/{name}", paths.attempt(pair.id, arm).root / name)


def _note_versions(versions: Mapping[str, set[str]], pair: Pair) -> None:
    for attempt in (pair.baseline, pair.candidate):
        if attempt.server:
            versions["server"].add(f"{attempt.server.build} sha256 {attempt.server.binary_sha256}")
            versions["model"].add(f"sha256 {attempt.server.model_sha256}")
        agent = attempt.world.get("agent")
        if isinstance(agent, dict):
            versions["agent"].add(f"{agent.get('kind')} {agent.get('version')}")


def _described(member: archive.Member) -> BundledFile:
    assert isinstance(member.source, Path)
    return BundledFile(path=member.name, size=member.source.stat().st_size, sha256=evidence.sha256_of(member.source))


def _canonical(manifest: Manifest) -> bytes:
    data = manifest.model_dump(mode="json")
    return (json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def _read(file: Path, text: bytes, faults: list[str]) -> Manifest:
    try:
        if crowded(text):
            raise ValueError("it holds too many values")
        data: Json = json.loads(text)
        if isinstance(data, dict) and data.get("format") != FORMAT:
            _refuse(file, [f"its format is {shown(data.get('format'))}; this version reads format {FORMAT}"])
        return Manifest.model_validate(data)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        _refuse(file, [*faults, f"{MANIFEST} was changed, or is none of ours: {where}: {fault['msg']}"])
    except (ValueError, RecursionError) as error:
        _refuse(file, [*faults, f"{MANIFEST} was changed: it is no JSON any more ({error})"])


def _unpacked(file: Path, target: Path, manifest: Manifest, names: Set[str]) -> Iterator[str]:
    """Unpack those files; yield, a sentence each, which are not as the manifest has them."""
    damaged = archive.unpack(file, target, only=names)
    recorded = {file.path: file.sha256 for file in manifest.files}
    for name in sorted(names):
        if name in damaged:
            yield f"{name} was changed: {damaged[name]}"
        elif name not in recorded:
            yield f"{name} is not in the manifest"
        elif evidence.sha256_of(target / name) != recorded[name]:
            yield f"{name} was changed: its sha256 is not {recorded[name]}"


def _parts(manifest: Manifest, target: Path, held: Set[str]) -> set[str]:
    """Return the names of all that belongs to the runs, by their pairs' records, which are unpacked already."""
    parts = {f"{RUNS}/{run_id}/run.json" for run_id in manifest.rows}
    parts |= {f"{RUNS}/{run_id}/lives/{name}" for run_id in manifest.rows for name in _lives(run_id, held)}
    for name in manifest.outcomes:
        run_id, _, pair_id = name.partition("/")
        if f"{RUNS}/{name}/pair.json" in held:
            pair = evidence.recorded_pair(RunPaths(target / RUNS / run_id), pair_id)
            parts.add(f"{RUNS}/{name}/pair.json")
            parts |= {f"{RUNS}/{name}/{arm}/{file.path}" for arm in Arm for file in pair.attempt(arm).evidence}
    return parts


def _lives(run_id: str, held: Set[str]) -> Iterator[str]:
    for name in held:
        folder, _, log = name.rpartition("/")
        if folder == f"{RUNS}/{run_id}/lives" and LIFE.fullmatch(log):
            yield log


def _misfits(manifest: Manifest) -> Iterator[str]:
    """Yield, a sentence each, where a manifest contradicts itself."""
    listed = {file.path for file in manifest.files}
    runs = {path.split("/")[1] for path in listed if path.startswith(f"{RUNS}/")}
    for run_id in sorted(runs ^ set(manifest.rows)):
        yield f"{run_id} has evidence or a row, not both"
    for run_id, record in manifest.rows.items():
        if record.id != run_id:
            yield f"the row of {run_id} says that it is {record.id}"
    if manifest.run not in manifest.rows:
        yield f"{manifest.run} is not among the bundle's runs"


@contextmanager
def _named_within(file: Path, target: Path) -> Iterator[None]:
    """Refuse the bundle for what the block raises, paths named as in the bundle: `target` is gone by then."""
    try:
        yield
    except (UserError, ApparatusError) as error:
        _refuse(file, [f"what it holds does not fit together: {str(error).replace(f'{target}/', '')}"])


def _refuse(file: Path, faults: Sequence[str]) -> NoReturn:
    more = f"; and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
    raise ApparatusError(STEP, f"{file} is refused: {'; '.join(faults[:NAMED])}{more}")
