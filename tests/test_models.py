"""What a model's header says, which file an arm gets, and what is refused before any server starts."""

import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from agent_ab.config import Draft, ModelFile, Speculation
from agent_ab.errors import UserError
from agent_ab.model import Event, Task
from agent_ab.models import models
from agent_ab.progress import describe
from tests.conftest import ignore
from tests.gguf_files import HEAD, TRUNK, split, tiny, truncated, without_mtp


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache of its own."""
    path = tmp_path / "cache"
    monkeypatch.setenv("AGENT_AB_CACHE", str(path))
    return path


def task(root: Path) -> Task:
    (root / "scripts").mkdir()
    (root / "scripts" / "solve.toml").write_text('[[turns]]\nsay = "Done."\n')
    return Task("t", "T", root, "Do it.", "", "", ".", (), (), 1.0, "c")


def test_a_whole_mtp_block_is_found(tmp_path: Path) -> None:
    path = tiny(tmp_path / "m.gguf")
    model = models.inspect(path)
    assert (model.architecture, model.mtp, model.context_train) == ("qwen35", True, 4096)
    assert model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"heads": 0, "tensors": TRUNK}, "announces no MTP block (qwen35.nextn_predict_layers is absent or 0)"),
        ({"tensors": TRUNK}, "the tensors blk.1.* were stripped"),
        ({"tensors": TRUNK + HEAD[:1]}, "the tensor blk.1.nextn.eh_proj.weight is missing"),
        ({"tensors": HEAD}, "no trunk: it is a draft for another file"),
        ({"architecture": "exaone4"}, "no MTP graph for the architecture exaone4"),
        ({"architecture": "gemma4-assistant"}, "a separate MTP draft"),
        ({"heads": 2, "blocks": 3}, "the tensor blk.2.nextn.eh_proj.weight is missing"),
    ],
    ids=["none", "stripped", "incomplete", "sidecar", "architecture", "gemma4", "two heads"],
)
def test_a_model_without_usable_mtp_is_refused_with_the_reason(tmp_path: Path, changes: dict, reason: str) -> None:  # type: ignore[type-arg]
    model = models.inspect(tiny(tmp_path / "m.gguf", **changes))
    assert not model.mtp and reason in model.mtp_reason
    models.require(model, Speculation(type="none"))
    models.require(model, Speculation(type="ngram-mod"))
    for kind in ("draft-mtp", "ngram-mod,draft-mtp"):
        with pytest.raises(UserError, match="cannot run on") as caught:
            models.require(model, Speculation(type=kind))
        assert model.mtp_reason in str(caught.value) and str(model.path) in str(caught.value)


def test_mtp_on_a_model_with_mtp_is_not_refused(tmp_path: Path) -> None:
    models.require(models.inspect(tiny(tmp_path / "m.gguf")), Speculation(type="draft-mtp"))


def test_the_head_of_a_split_model_is_found_in_its_last_part(tmp_path: Path) -> None:
    parts = split(tmp_path, 3)
    model = models.inspect(parts[0])
    assert model.mtp
    assert model.sha256 == hashlib.sha256(b"".join(p.read_bytes() for p in parts)).hexdigest()


def test_a_missing_part_of_a_split_model_is_named(tmp_path: Path) -> None:
    parts = split(tmp_path, 3)
    parts[1].unlink()
    with pytest.raises(UserError, match=r"split into 3 parts, and model-00002-of-00003\.gguf is missing"):
        models.inspect(parts[0])


def test_a_truncated_part_of_a_split_model_is_named(tmp_path: Path) -> None:
    parts = split(tmp_path, 2)
    truncated(parts[1], parts[1], -10)
    with pytest.raises(UserError, match=r"model-00002-of-00002\.gguf is truncated"):
        models.inspect(parts[0])


def test_a_later_part_is_not_taken_for_the_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"name the first, which ends in -00001-of-00002\.gguf"):
        models.inspect(split(tmp_path, 2)[1])


def test_a_file_that_is_no_language_model_is_told(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "")
    writer.kv_data.clear() if isinstance(writer.kv_data, dict) else writer.kv_data[0].clear()
    writer.add_uint32("some.key", 1)
    writer.add_tensor("t", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UserError, match=r"names no general\.architecture"):
        models.inspect(tmp_path / "m.gguf")


def large(path: Path) -> Path:
    """Write a GGUF above the size from which hashes are remembered; sparse, so it costs no disk."""
    tiny(path)
    with path.open("r+b") as file:
        file.truncate(models.HASH_ALWAYS_BYTES + 1)
    return path


def test_a_large_file_is_hashed_once(tmp_path: Path, cache: Path) -> None:
    path = large(tmp_path / "m.gguf")
    with path.open("rb") as file:
        true = hashlib.file_digest(file, "sha256").hexdigest()
    assert models.inspect(path).sha256 == true
    [note] = (cache / "sha256").iterdir()
    known = json.loads(note.read_text())
    assert known["sha256"] == true
    # A remembered digest that could only come from the note shows that the file was not read again.
    note.write_text(json.dumps({**known, "sha256": "remembered"}))
    assert models.inspect(path).sha256 == "remembered"


def test_a_large_file_that_changed_is_hashed_again(tmp_path: Path, cache: Path) -> None:
    path = large(tmp_path / "m.gguf")
    before = models.inspect(path).sha256
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    assert models.inspect(path).sha256 != before


@pytest.mark.parametrize("junk", ["", "{}", "[]", "null", '{"files": 1}'])
def test_a_damaged_note_of_a_digest_is_replaced(tmp_path: Path, cache: Path, junk: str) -> None:
    path = large(tmp_path / "m.gguf")
    true = models.inspect(path).sha256
    [note] = (cache / "sha256").iterdir()
    note.write_text(junk)
    assert models.inspect(path).sha256 == true
    assert json.loads(note.read_text())["sha256"] == true


def test_a_digest_that_cannot_be_kept_is_told_and_not_fatal(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "file"))
    events: list[Event] = []
    assert models.inspect(large(tmp_path / "m.gguf"), events.append).sha256
    assert any("cannot be kept" in event.message and event.arm is None for event in events)


def test_a_profile_without_a_path_is_told_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"set model\.path"):
        models.resolve(ModelFile(), None, ignore)


def test_a_path_is_taken_from_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny(tmp_path / "m.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models.resolve(ModelFile(path="~/m.gguf"), None, ignore).path == path


def test_a_scripted_model_is_written_once(tmp_path: Path, cache: Path) -> None:
    events: list[Event] = []
    settings, where = ModelFile(source="scripted", script="solve"), task(tmp_path)
    first = models.resolve(settings, where, events.append)
    assert first.mtp and cache in first.path.parents
    assert len(events) == 1
    assert models.resolve(settings, where, events.append) == first
    assert len(events) == 1


def test_a_changed_script_gives_another_model(tmp_path: Path) -> None:
    settings, where = ModelFile(source="scripted", script="solve"), task(tmp_path)
    first = models.resolve(settings, where, ignore)
    (tmp_path / "scripts" / "solve.toml").write_text('[[turns]]\nsay = "Not done."\n')
    second = models.resolve(settings, where, ignore)
    assert second.path != first.path and second.sha256 != first.sha256


def test_an_unknown_script_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"task t has no script 'sovle' .*did you mean solve\?"):
        models.resolve(ModelFile(source="scripted", script="sovle"), task(tmp_path), ignore)


def test_a_scripted_model_without_script_or_task_is_told_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"set model\.script"):
        models.resolve(ModelFile(source="scripted"), task(tmp_path), ignore)
    with pytest.raises(UserError, match="belongs to a task"):
        models.resolve(ModelFile(source="scripted", script="solve"), None, ignore)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot keep a model in .*AGENT_AB_CACHE names another"):
        models.resolve(ModelFile(source="scripted", script="solve"), task(tmp_path), ignore)


def test_stripping_the_head_of_a_real_layout_is_seen(tmp_path: Path) -> None:
    whole = models.resolve(ModelFile(source="scripted", script="solve"), task(tmp_path), ignore)
    broken = models.inspect(without_mtp(whole.path, tmp_path / "broken.gguf", keep_key=True))
    assert "were stripped" in broken.mtp_reason
    plain = models.inspect(without_mtp(whole.path, tmp_path / "plain.gguf", keep_key=False))
    assert "announces no MTP block" in plain.mtp_reason


def draft(tmp_path: Path, architecture: str) -> Speculation:
    path = tiny(tmp_path / f"{architecture}.gguf", architecture=architecture, heads=0, tensors=TRUNK)
    return Speculation(type="draft-eagle3", draft=Draft(path=str(path)))


def test_a_draft_is_found_by_its_path_and_told_by_its_header(tmp_path: Path) -> None:
    model = models.inspect(tiny(tmp_path / "m.gguf"))
    fits = draft(tmp_path, "eagle3")
    with_it = models.with_draft(model, fits, ignore)
    assert with_it.draft is not None and with_it.draft.architecture == "eagle3" and len(with_it.draft.sha256) == 64
    models.require(with_it, fits)


def test_a_draft_of_another_kind_is_refused_before_a_server_ignores_it(tmp_path: Path) -> None:
    model = models.inspect(tiny(tmp_path / "m.gguf"))
    wrong = draft(tmp_path, "llama")
    with pytest.raises(UserError, match="does not fit draft-eagle3: its architecture is llama, not eagle3"):
        models.require(models.with_draft(model, wrong, ignore), wrong)
    plain = draft(tmp_path, "eagle3").model_copy(update={"type": "draft-simple"})
    with pytest.raises(UserError, match="its architecture is eagle3, not that of a whole model"):
        models.require(models.with_draft(model, plain, ignore), plain)


def test_a_type_that_drafts_by_a_file_needs_one_and_others_take_none(tmp_path: Path) -> None:
    model = models.inspect(tiny(tmp_path / "m.gguf"))
    for kind in sorted(models.DRAFTED_BY_A_FILE):
        with pytest.raises(UserError, match=r"name it in speculation\.draft"):
            models.require(model, Speculation(type=kind))
    own = Speculation(type="draft-mtp", draft=Draft(source="self"))
    with pytest.raises(UserError, match="has no effect"):
        models.require(models.with_draft(model, own, ignore), own)
    with pytest.raises(UserError, match="names no file"):
        models.with_draft(model, Speculation(type="draft-simple", draft=Draft()), ignore)


def test_a_generated_draft_is_written_once(tmp_path: Path, cache: Path) -> None:
    model = models.resolve(ModelFile(source="scripted", script="solve"), task(tmp_path), ignore)
    speculation = Speculation(type="draft-simple", n_max=2, draft=Draft(source="generated"))
    said: list[Event] = []
    first, again = (models.with_draft(model, speculation, said.append) for _ in range(2))
    assert first == again
    (line,) = (describe(event) for event in said)
    assert line == f"writing a draft-simple draft for {model.path.name}: 2 tokens at a time, 100.0 % accepted"
    assert [path.parent for path in cache.rglob("*.gguf") if path == first.draft.path] == [cache / "drafts"]  # type: ignore[union-attr]
    with pytest.raises(UserError, match="no draft can be generated for type 'draft-dspark'"):
        models.with_draft(model, speculation.model_copy(update={"type": "draft-dspark"}), ignore)


def test_our_own_models_come_in_another_quantisation_and_a_file_does_not(tmp_path: Path) -> None:
    own = task(tmp_path)
    plain, small = (
        models.resolve(ModelFile(source="scripted", script="solve", quantisation=kind), own, ignore)
        for kind in ("", "q8_0")
    )
    assert plain.sha256 != small.sha256 and small.path.stat().st_size < plain.path.stat().st_size
    with pytest.raises(UserError, match="llama-quantize"):
        models.resolve(ModelFile(path="m.gguf", quantisation="q8_0"), own, ignore)
