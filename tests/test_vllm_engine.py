"""Finding vLLM, and which model it is to load, without importing it."""

import json
import os
from pathlib import Path

import pytest

from agent_ab.config import ArmSettings, Draft, ModelFile, Server, Speculation
from agent_ab.errors import UserError
from agent_ab.model import Event, Task
from agent_ab.vllm import engine
from agent_ab.vllm.command import OPTIONAL
from tests.fakes import wrap
from tests.test_vllm_model import TRUNK, directory


def ignore(_event: Event) -> None:
    pass


def environment(root: Path, told: object) -> Path:
    """Write an environment whose Python tells `told`, and return its `vllm`."""
    (root / "bin").mkdir(parents=True)
    wrap.program(root / "bin" / "python3", f"printf '%s' '{json.dumps(told)}'")
    script = root / "bin" / "vllm"
    script.write_text(f"#!{root}/bin/python3\n")
    script.chmod(0o755)
    return script


FOUND = {"packages": {"vllm 0.32.0+cpu": "aa", "torch 2.13": "bb"}, "known": [OPTIONAL[0]], "version": "0.32.0+cpu"}


def test_an_environment_tells_its_version_and_what_it_knows(tmp_path: Path) -> None:
    one = engine.probe(environment(tmp_path / "a", FOUND))
    other = engine.probe(environment(tmp_path / "b", FOUND | {"packages": {"vllm 0.32.0+cpu": "aa"}}))
    assert one.version == "0.32.0+cpu" and one.optional == {OPTIONAL[0]} and len(one.sha256) == 64
    assert one.sha256 != other.sha256 and engine.describe(one).startswith("vLLM 0.32.0+cpu, sha256 ")


def test_another_version_than_the_tried_one_is_told(tmp_path: Path) -> None:
    told = engine.describe(engine.probe(environment(tmp_path / "a", FOUND | {"version": "0.40.0"})))
    assert "this was tried with 0.32.0" in told


@pytest.mark.parametrize(
    ("told", "words"),
    [(FOUND | {"version": ""}, "no package named vllm"), ("nonsense", "does not tell what is installed")],
)
def test_an_environment_without_vllm_is_named(tmp_path: Path, told: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        engine.probe(environment(tmp_path / "a", told))


def test_a_program_that_is_no_console_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        engine.probe(tmp_path / "absent")
    with pytest.raises(UserError, match="no console script"):
        engine.probe(wrap.program(tmp_path / "vllm", "exit 0"))


def test_vllm_is_looked_for_in_the_profile_the_environment_the_path_and_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.delenv("AGENT_AB_VLLM", raising=False)
    with pytest.raises(UserError, match="make live-vllm"):
        engine.find("")
    environment(engine.installed(tmp_path / "cache").parent.parent, FOUND)
    assert engine.find("").source == "our cache"
    monkeypatch.setenv("PATH", f"{environment(tmp_path / 'path', FOUND).parent}:{os.defpath}")
    assert engine.find("").source == "PATH"
    monkeypatch.setenv("AGENT_AB_VLLM", str(environment(tmp_path / "named", FOUND)))
    assert engine.find("").source == "AGENT_AB_VLLM"
    assert engine.find(str(environment(tmp_path / "given", FOUND))).source == "server.binary"
    with pytest.raises(UserError, match=r"server\.binary: no such file"):
        engine.find(str(tmp_path / "absent"))


def settings(path: str, speculation: Speculation | None = None) -> ArmSettings:
    server = Server(engine="vllm", speculation=speculation or Speculation())
    return ArmSettings(model=ModelFile(path=path), server=server)


def test_a_model_directory_is_hashed_with_its_draft(tmp_path: Path) -> None:
    path, head = directory(tmp_path / "m", *TRUNK), directory(tmp_path / "head", *TRUNK, hidden_size=32)
    found = engine.model(settings(str(path)), None, ignore)
    assert found.path == path and not found.mtp and found.context_train == 2048 and found.draft is None
    speculation = Speculation(type="eagle3", draft=Draft(path=str(head)))
    drafted = engine.model(settings(str(path), speculation), None, ignore)
    assert drafted.draft and drafted.draft.sha256 != drafted.sha256 == found.sha256


def test_mtp_asked_of_a_model_without_it_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", *TRUNK)
    with pytest.raises(UserError, match=r"'mtp' cannot run on .*announces no MTP layer"):
        engine.model(settings(str(path), Speculation(type="mtp")), None, ignore)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (ModelFile(), "the profile names no model"),
        (ModelFile(source="smollm2-mtp"), "smollm2-mtp is a GGUF"),
        (ModelFile(path="/m", quantisation="q4_0"), "model.quantisation"),
        (ModelFile(source="scripted", script="solve"), "belongs to a task"),
    ],
)
def test_what_is_no_model_for_vllm_is_named(model: ModelFile, words: str) -> None:
    with pytest.raises(UserError, match=words):
        engine.model(ArmSettings(model=model, server=Server(engine="vllm")), None, ignore)


def test_a_scripted_model_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transfer_repair: Task
) -> None:
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path))
    asked = ArmSettings(model=ModelFile(source="scripted", script="solve"), server=Server(engine="vllm"))
    said: list[str] = []
    found = [engine.model(asked, transfer_repair, lambda event: said.append(event.message)) for _ in range(2)]
    assert found[0] == found[1] and found[0].architecture == "LlamaForCausalLM" and len(said) == 1
