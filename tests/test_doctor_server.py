"""What the doctor says of an arm's server: the right advice for each thing that can be wrong."""

from pathlib import Path
from typing import Any

import pytest

from agent_ab.config import ArmSettings, Draft, ModelFile, Server, Speculation
from agent_ab.doctor import server as doctor_server
from agent_ab.doctor.findings import Finding
from agent_ab.doctor.memory import MIB
from agent_ab.model import Event
from agent_ab.models import models
from tests.fakes import wrap
from tests.gguf_files import HEAD, TRUNK, tiny, without_mtp
from tests.test_vllm_model import TRUNK as LAYERS
from tests.test_vllm_model import directory

MTP = Speculation(type="draft-mtp", n_max=3)


def ignore(_event: Event) -> None:
    pass


@pytest.fixture
def binary(tmp_path: Path) -> str:
    return str(wrap.llama_server(tmp_path / "bin"))


def found(arm: ArmSettings, given: int | None = None) -> dict[str, Finding]:
    return {finding.name: finding for finding in doctor_server.examine(arm, given, ignore)}


def arm(binary: str, model: Path, **server: Any) -> ArmSettings:
    return ArmSettings(model=ModelFile(path=str(model)), server=Server(binary=binary, **server))


def test_with_everything_there_every_line_is_ok(binary: str, tmp_path: Path) -> None:
    lines = found(arm(binary, tiny(tmp_path / "m.gguf"), context=4096, speculation=MTP))
    assert list(lines) == ["engine", "speculation", "model", "memory", "GPU"]
    assert all(line.ok for line in lines.values())
    assert "capable of MTP: its header has a whole block" in lines["model"].detail
    assert lines["memory"].detail.startswith("needs about ") and "of main memory are free" in lines["memory"].detail


def test_mtp_asked_of_a_model_without_it_gets_the_reason_and_two_ways_out(binary: str, tmp_path: Path) -> None:
    line = found(arm(binary, tiny(tmp_path / "m.gguf", heads=0, tensors=TRUNK), context=512, speculation=MTP))["model"]
    assert not line.ok and "announces no MTP block" in line.detail
    assert "name a GGUF with an MTP block in model.path, or compare another type" in line.todo


def test_a_model_whose_mtp_tensors_were_stripped_is_refused_in_both_arms(
    binary: str, tmp_path: Path, scripted: models.Model
) -> None:
    stripped = without_mtp(scripted.path, tmp_path / "stripped.gguf", keep_key=True)
    for speculation in (Speculation(), MTP):
        line = found(arm(binary, stripped, context=512, speculation=speculation))["model"]
        assert not line.ok and "were stripped" in line.detail
        assert "take one that was converted with its MTP tensors" in line.words
    honest = without_mtp(scripted.path, tmp_path / "honest.gguf", keep_key=False)
    assert found(arm(binary, honest, context=512))["model"].ok


def test_too_little_memory_gets_the_largest_context_that_fits(binary: str, scripted: models.Model) -> None:
    lines = found(arm(binary, scripted.path, context=65536, speculation=MTP), 100 * MIB)
    line = lines["memory"]
    assert not line.ok and line.detail.startswith("too little: it needs about ")
    assert "100 MiB of main memory are free" in line.detail and "MTP KV cache" in line.detail
    context = int(line.todo.split("set server.context to ")[1].split()[0])
    assert found(arm(binary, scripted.path, context=context, speculation=MTP), 100 * MIB)["memory"].ok
    assert "GPU" not in lines


def test_a_gpu_that_is_asked_for_and_not_there_is_named(binary: str, tmp_path: Path) -> None:
    line = found(arm(binary, tiny(tmp_path / "m.gguf"), context=512, gpu_layers="all"))["GPU"]
    assert line.ok or ("sees no GPU" in line.detail and "server.gpu_layers = 0" in line.todo)


def test_another_machines_memory_is_its_gpus_where_the_arm_wants_one(binary: str, scripted: models.Model) -> None:
    line = found(arm(binary, scripted.path, context=65536, gpu_layers="all"), 100 * MIB)["memory"]
    assert not line.ok and "100 MiB on the GPU" in line.detail and "fewer layers" in line.todo


def test_a_context_beyond_the_training_is_worth_a_note(binary: str, tmp_path: Path) -> None:
    line = found(arm(binary, tiny(tmp_path / "m.gguf"), context=8192))["model"]
    assert line.ok and "it was trained for 4096 tokens" in line.todo


def test_advice_on_memory_never_names_a_context_beyond_the_training(binary: str, tmp_path: Path) -> None:
    line = found(arm(binary, tiny(tmp_path / "m.gguf"), context=500_000_000))["memory"]
    assert not line.ok and "set server.context to 4096 or less" in line.todo


def test_speculation_that_the_build_does_not_know_is_named(tmp_path: Path) -> None:
    old = str(wrap.llama_server(tmp_path / "bin", "no-mtp"))
    line = found(arm(old, tiny(tmp_path / "m.gguf"), context=512, speculation=MTP))["speculation"]
    assert not line.ok and "does not know 'draft-mtp'" in line.detail and "name a newer llama-server" in line.detail


def test_a_draft_of_another_kind_is_refused_before_anything_starts(binary: str, tmp_path: Path) -> None:
    draft = Draft(path=str(tiny(tmp_path / "d.gguf", tensors=TRUNK + HEAD)))
    asked = arm(
        binary, tiny(tmp_path / "m.gguf"), context=512, speculation=Speculation(type="draft-eagle3", draft=draft)
    )
    assert "does not fit draft-eagle3" in found(asked)["model"].detail


def test_a_model_that_is_not_named_or_not_there_is_said(binary: str, tmp_path: Path) -> None:
    assert "set model.path" in found(ArmSettings(server=Server(binary=binary)))["model"].detail
    assert "No such file" in found(arm(binary, tmp_path / "absent.gguf"))["model"].detail


def test_an_engine_that_cannot_be_used_is_told_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    lines = found(arm(str(tmp_path / "absent"), tiny(tmp_path / "m.gguf"), context=512))
    assert not lines["engine"].ok and "server.binary: no such file" in lines["engine"].detail
    assert lines["model"].ok and lines["memory"].ok and "there is no engine to ask" in lines["speculation"].detail
    # Not a plain ok: nobody looked.
    assert "see to the engine first" in lines["speculation"].todo


def test_vllms_model_directory_is_looked_at_the_same_way(tmp_path: Path) -> None:
    server = Server(engine="vllm", binary=str(tmp_path / "absent"), context=512, speculation=Speculation(type="mtp"))
    path = directory(tmp_path / "m", *LAYERS)
    lines = found(ArmSettings(model=ModelFile(path=str(path)), server=server))
    assert not lines["engine"].ok and '"method": "mtp"' in lines["speculation"].detail
    assert "cannot run mtp" in lines["model"].detail and "compare another type" in lines["model"].todo
    assert "KV cache" in lines["memory"].detail or lines["memory"].ok
    small = found(ArmSettings(model=ModelFile(path=str(path)), server=server), 1)["memory"]
    assert not small.ok and "set server.context lower" in small.todo


def test_of_an_attached_server_only_what_it_says_is_told() -> None:
    lines = found(ArmSettings(server=Server(engine="attached", url="http://127.0.0.1:9")))
    assert "nothing answers at http://127.0.0.1:9" in lines["engine"].detail
    assert "in the profile's word" in lines["speculation"].detail and "memory" not in lines
