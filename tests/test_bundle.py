"""A bundle is whole and true, or refused with what was changed."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_ab.errors import ApparatusError, UserError
from agent_ab.export import archive, bundle
from agent_ab.model import PairOutcome
from agent_ab.review import marks
from agent_ab.review.marks import Mark, MarkKind
from agent_ab.store.store import Store
from tests.command import here
from tests.run_files import RUN, pair_of, played

NAME = f"{RUN}/transfer-repair-4242-0"


@pytest.fixture
def bundled(tmp_path: Path) -> bundle.Bundled:
    store, runs_dir = played(tmp_path, pair_of(), pair_of(7, (10, 10)))
    marks.add(store, RUN, Mark("transfer-repair-4242-0", "check-3", MarkKind.REAL, "the patch drops a branch"))
    made = bundle.make(store, [RUN], runs_dir, tmp_path / "run.zip", "INCONCLUSIVE")
    store.close()
    return made


def repacked(path: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write the bundle anew with changed contents and with a manifest and a seal that fit them again."""
    with zipfile.ZipFile(path) as opened:
        contents = {name: opened.read(name) for name in opened.namelist()}
    change(contents)
    manifest = json.loads(contents.pop("manifest.json"))
    manifest["files"] = [
        {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()
    ]
    text = (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()
    archive.write(target, [archive.Member("manifest.json", text), *(archive.Member(n, d) for n, d in contents.items())])
    return target


def test_a_bundle_judges_itself_to_what_the_database_said(bundled: bundle.Bundled, tmp_path: Path) -> None:
    verified = bundle.verify(bundled.path, tmp_path / "there", bundled.digest)
    assert verified.outcomes == {
        NAME: PairOutcome.BROKEN,
        f"{RUN}/transfer-repair-7-0": PairOutcome.BOTH_PASS,
    }
    assert (verified.run, verified.told, verified.claimed_verdict) == (RUN, True, "INCONCLUSIVE")
    with closing(Store(tmp_path / "there" / "runs.db")) as store, closing(Store(tmp_path / "runs.db")) as first:
        assert store.run(RUN) == first.run(RUN)
        assert store.load_pair(NAME) == first.load_pair(NAME)
        assert marks.history(store, RUN) == marks.history(first, RUN)


def test_the_same_run_gives_the_same_bundle(bundled: bundle.Bundled, tmp_path: Path) -> None:
    with closing(Store(tmp_path / "runs.db")) as store:
        again = bundle.make(store, [RUN], tmp_path / "runs", tmp_path / "again.zip", "INCONCLUSIVE")
    assert again.digest == bundled.digest
    assert again.path.read_bytes() == bundled.path.read_bytes()
    with zipfile.ZipFile(again.path) as opened:
        assert hashlib.sha256(opened.read("manifest.json")).hexdigest() == again.digest


def test_one_changed_byte_anywhere_is_refused_with_what_was_changed(bundled: bundle.Bundled, tmp_path: Path) -> None:
    whole = bundled.path.read_bytes()
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(bundled.path) as opened:
        places = [
            (m.header_offset + 30 + len(m.filename) + m.compress_size // 2, m.filename) for m in opened.infolist()
        ]
    places += [(position, "") for position in range(0, len(whole), len(whole) // 60)]
    for number, (position, name) in enumerate(places):
        changed.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(ApparatusError) as caught:
            bundle.unpack(changed, tmp_path / str(number))
        assert "is refused" in str(caught.value)
        assert f"{name} was changed" in str(caught.value) or not name


def test_a_repack_with_new_hashes_is_refused_against_the_printed_digest(
    bundled: bundle.Bundled, tmp_path: Path
) -> None:
    def prettify(contents: dict[str, bytes]) -> None:
        name = f"runs/{NAME}/candidate/agent.log"
        contents[name] = contents[name] + b"and it was good\n"

    forged = repacked(bundled.path, tmp_path / "forged.zip", prettify)
    with pytest.raises(ApparatusError, match=r"manifest\.json is another than that of the digest"):
        bundle.unpack(forged, tmp_path / "there", bundled.digest)
    # Even without the digest: pair.json records what each file was.
    with pytest.raises(ApparatusError, match=r"agent\.log was changed"):
        bundle.verify(forged, tmp_path / "judged")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("candidate/agent.log", b"it was good", f"runs/{NAME}/candidate: agent.log was changed"),
        ("pair.json", b"{}", f"runs/{NAME}/pair.json: cannot be read as a finished pair"),
    ],
)
def test_a_refusal_names_the_path_within_the_bundle(
    bundled: bundle.Bundled, tmp_path: Path, name: str, text: bytes, told: str
) -> None:
    repacked(bundled.path, tmp_path / "forged.zip", lambda contents: contents.update({f"runs/{NAME}/{name}": text}))
    done = here(tmp_path, "bundle", "--verify", "forged.zip")
    assert done.status == 4 and f": {told}" in done.error
    assert "agent-ab-bundle-" not in done.error


def test_a_forger_of_every_hash_is_still_caught_by_the_evidence(bundled: bundle.Bundled, tmp_path: Path) -> None:
    def acquit(contents: dict[str, bytes]) -> None:
        name = f"runs/{NAME}/pair.json"
        record = json.loads(contents[name])
        record["outcome"], record["candidate"]["outcome"], record["flips"] = "BOTH_PASS", "PASS", []
        contents[name] = json.dumps(record).encode()

    forged = repacked(bundled.path, tmp_path / "forged.zip", acquit)
    with pytest.raises(ApparatusError, match="recorded as BOTH_PASS, the evidence comes to BROKEN"):
        bundle.verify(forged, tmp_path / "there")


def test_a_claimed_verdict_that_the_evidence_does_not_come_to_is_refused_with_both(
    bundled: bundle.Bundled, tmp_path: Path
) -> None:
    def adopt(contents: dict[str, bytes]) -> None:
        manifest = json.loads(contents["manifest.json"])
        contents["manifest.json"] = json.dumps(manifest | {"verdict": "ADOPT"}).encode()

    repacked(bundled.path, tmp_path / "forged.zip", adopt)
    done = here(tmp_path, "bundle", "--verify", "forged.zip")
    assert done.status == 4
    assert "the bundle claims the verdict ADOPT, the evidence comes to INCONCLUSIVE" in done.error


@pytest.mark.parametrize(
    "name",
    [
        "bomb.bin",
        f"runs/{RUN}/RUN.json",
        f"runs/{RUN}/lives/zeros.bin",
        f"runs/{RUN}/lives/deeper/0-baseline.log",
        f"runs/{NAME}/notes.txt",
        f"runs/{NAME}/candidate/more.log",
        f"runs/{RUN}/another-pair/pair.json",
    ],
)
def test_a_file_that_is_no_part_of_a_runs_evidence_is_refused_before_it_is_unpacked(
    bundled: bundle.Bundled, tmp_path: Path, name: str
) -> None:
    forged = repacked(bundled.path, tmp_path / "forged.zip", lambda contents: contents.update({name: b"0" * 9999}))
    with pytest.raises(ApparatusError, match=f"'{name}' is no part of the runs' evidence"):
        bundle.unpack(forged, tmp_path / "there")
    assert sorted({path.name for path in (tmp_path / "there").rglob("*.*") if path.is_file()}) == [
        "manifest.json",
        "pair.json",
    ]


def test_a_pair_that_was_left_out_is_missed(bundled: bundle.Bundled, tmp_path: Path) -> None:
    def drop(contents: dict[str, bytes]) -> None:
        for name in [name for name in contents if NAME in name]:
            del contents[name]

    forged = repacked(bundled.path, tmp_path / "forged.zip", drop)
    with pytest.raises(ApparatusError, match="the bundle claims BROKEN, the evidence comes to absent"):
        bundle.verify(forged, tmp_path / "there")


def test_another_plan_than_the_hashed_one_is_refused(bundled: bundle.Bundled, tmp_path: Path) -> None:
    def soften(contents: dict[str, bytes]) -> None:
        manifest = json.loads(contents["manifest.json"])
        manifest["rows"][RUN]["plan"]["version"] = "9"
        contents["manifest.json"] = json.dumps(manifest).encode()

    forged = repacked(bundled.path, tmp_path / "forged.zip", soften)
    with pytest.raises(ApparatusError, match=r"run\.json is not the plan in the manifest"):
        bundle.verify(forged, tmp_path / "there")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(format=2), "its format is 2; this version reads format 1"),
        (lambda m: m.update(more=1), "more: Extra inputs are not permitted"),
        (lambda m: m.update(run="another"), "another is not among the bundle's runs"),
        (lambda m: m["rows"].clear(), "has evidence or a row, not both"),
    ],
)
def test_a_manifest_that_is_none_of_ours_is_refused(
    bundled: bundle.Bundled, tmp_path: Path, change: Callable[[Any], None], words: str
) -> None:
    def spoil(contents: dict[str, bytes]) -> None:
        manifest = json.loads(contents["manifest.json"])
        change(manifest)
        contents["manifest.json"] = json.dumps(manifest).encode()

    forged = repacked(bundled.path, tmp_path / "forged.zip", spoil)
    with pytest.raises(ApparatusError, match=words):
        bundle.unpack(forged, tmp_path / "there")


def test_a_manifest_that_unpacks_to_more_than_any_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("manifest.json", b" " * 64_000_001)
    with pytest.raises(ApparatusError, match=r"manifest\.json unpacks to 64000001 bytes, more than 64000000"):
        bundle.unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_manifest_of_too_many_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("manifest.json", b"[" + b"[]," * 10_000_000 + b"1]")
    with pytest.raises(ApparatusError, match=r"it holds too many values"):
        bundle.unpack(path, tmp_path / "out")


def test_an_archive_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    archive.write(tmp_path / "other.zip", [archive.Member("notes.txt", b"hi")])
    with pytest.raises(ApparatusError, match=r"it holds no manifest\.json"):
        bundle.unpack(tmp_path / "other.zip", tmp_path / "there")


def test_damaged_evidence_is_not_bundled(tmp_path: Path) -> None:
    store, runs_dir = played(tmp_path)
    (runs_dir / NAME / "candidate" / "checks.json").write_text("[]")
    with closing(store), pytest.raises(ApparatusError, match=r"checks\.json was changed"):
        bundle.make(store, [RUN], runs_dir, tmp_path / "run.zip", None)
    assert not (tmp_path / "run.zip").exists()


def test_what_cannot_be_bundled_is_the_users_mistake(bundled: bundle.Bundled, tmp_path: Path) -> None:
    with closing(Store(tmp_path / "runs.db")) as store:
        store.save_run("imported", "published", "0.1.0", {}, kind="import")
        for run_id, runs_dir, words in (
            (RUN, tmp_path / "runs", "is there already"),
            ("imported", tmp_path / "runs", "is imported"),
            (RUN, tmp_path / "nowhere", "--runs-dir names where it is"),
        ):
            target = bundled.path if "already" in words else tmp_path / "other.zip"
            with pytest.raises(UserError, match=words):
                bundle.make(store, [run_id], runs_dir, target, None)
    with pytest.raises(UserError, match="no such file"):
        bundle.unpack(tmp_path / "nothing.zip", tmp_path / "there")


def test_the_command_makes_checks_and_unpacks(bundled: bundle.Bundled, tmp_path: Path) -> None:
    made = here(tmp_path, "bundle", "--out", "mine.zip", "--json").data
    assert made["verdict"] == "INCONCLUSIVE"
    said = here(tmp_path, "bundle", "--verify", "mine.zip", "--digest", made["digest"], "--unpack", "there").stdout
    assert "integrity against the digest that you gave" in said and "BOTH_PASS 1, BROKEN 1" in said
    assert here(tmp_path, "report", "--json", "--db", "there/runs.db").data["run"]["id"] == RUN
    assert "nothing against a repack" in here(tmp_path, "bundle", "--verify", "mine.zip").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--digest", "0" * 64], "--digest and --unpack go with --verify FILE"),
        (["--verify", "nothing.zip"], "nothing.zip: no such file"),
        (["--verify", "run.zip", "--digest", "27a0081a"], "--digest 27a0081a: not 64 lowercase hex digits"),
        (["--verify", "run.zip", "--digest", "A" * 64], "A: not 64 lowercase hex digits"),
        (["--verify", "run.zip", "--digest", "0" * 64 + "\n"], "not 64 lowercase hex digits"),
        (["--verify", "run.zip", "--digest", ""], "not 64 lowercase hex digits"),
        (["--verify", "run.zip", "--unpack", "runs"], "--unpack runs: is there already"),
        (["--verify", "run.zip", RUN], "takes neither a run nor --out"),
        (["--out", "run.zip"], "run.zip: is there already"),
    ],
)
def test_a_mistake_is_told_in_one_line(bundled: bundle.Bundled, tmp_path: Path, words: list[str], told: str) -> None:
    done = here(tmp_path, "bundle", *words)
    assert done.status == 2 and told in done.error


def test_a_refused_bundle_leaves_nothing_and_its_names_cannot_steer_a_terminal(
    bundled: bundle.Bundled, tmp_path: Path
) -> None:
    def spoil(contents: dict[str, bytes]) -> None:
        manifest = json.loads(contents["manifest.json"])
        manifest["rows"]["\x1b[31mred"] = manifest["rows"].pop(RUN)
        contents["manifest.json"] = json.dumps(manifest).encode()

    repacked(bundled.path, tmp_path / "forged.zip", spoil)
    done = here(tmp_path, "bundle", "--verify", "forged.zip", "--unpack", "there")
    assert done.status == 4 and "has evidence or a row, not both" in done.error
    assert "\x1b[31m" not in done.stderr
    assert not (tmp_path / "there").exists()
