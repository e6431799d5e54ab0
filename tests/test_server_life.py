"""Servers that serve several attempts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from agent_ab import process
from agent_ab.config import ArmSettings, Server
from agent_ab.engine import engine
from agent_ab.errors import ApparatusError
from agent_ab.model import Arm
from agent_ab.models.models import Model
from agent_ab.server.life import Life, Lives
from tests.fakes import wrap

SETTINGS = ArmSettings(server=Server(context=512))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> engine.Engine:
    """Return a fake without faults, probed once."""
    return engine.probe(wrap.llama_server(tmp_path_factory.mktemp("sound")))


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    made = Lives(tmp_path / "lives")
    yield made
    made.end()


def made_model(folder: Path) -> Model:
    return Model(folder / "m.gguf", "m" * 64, "qwen35", True, "", 131072)


def ask(life: Life, found: engine.Engine) -> None:
    at = life.at(found)
    headers = {"Authorization": f"Bearer {at.key}"}
    httpx.post(f"{at.url}/v1/chat/completions", content=b"{}", headers=headers, trust_env=False)


def attempt(life: Life, found: engine.Engine, log: Path) -> int:
    """Use the server as an attempt does, and return its pid."""
    model = made_model(log.parent)
    with life.lent(found, SETTINGS, model, seed=1, log=log) as server:
        server.wait_ready()
        server.prove()
        ask(life, found)
        assert server.requests() == 1 and server.pid is not None
        return server.pid


def test_one_server_serves_several_attempts_and_each_has_its_part_of_the_log(
    lives: Lives, sound: engine.Engine, tmp_path: Path
) -> None:
    life = lives.of(Arm.BASELINE)
    assert not lives.begun
    pids = {attempt(life, sound, tmp_path / f"{number}.log") for number in range(3)}
    assert len(pids) == 1 and life.served == 3 and lives.begun
    parts = [(tmp_path / f"{number}.log").read_bytes() for number in range(3)]
    assert all(b"conv_id" in part for part in parts)
    assert b"".join(parts) == (tmp_path / "lives" / "0-baseline.log").read_bytes()


def test_a_server_serves_only_what_it_was_started_with(lives: Lives, sound: engine.Engine, tmp_path: Path) -> None:
    life = lives.of(Arm.BASELINE)
    other = Model(tmp_path / "other.gguf", "o" * 64, "qwen35", True, "", 131072)
    assert life.serves(sound, SETTINGS, other)
    attempt(life, sound, tmp_path / "0.log")
    assert not life.serves(sound, SETTINGS, other)
    assert not life.serves(sound, SETTINGS.model_copy(update={"server": Server(context=1024)}), made_model(tmp_path))
    with (
        pytest.raises(ApparatusError, match="started with another model or settings"),
        life.lent(sound, SETTINGS, other, seed=1, log=tmp_path / "1.log"),
    ):
        pass
    assert life.served == 1


def test_the_arms_have_servers_of_their_own_and_new_lives_begin_at_nought(
    lives: Lives, sound: engine.Engine, tmp_path: Path
) -> None:
    before = {attempt(lives.of(arm), sound, tmp_path / f"{arm}.log") for arm in Arm}
    assert len(before) == 2
    lives.end()
    assert not lives.begun and lives.of(Arm.CANDIDATE).served == 0
    assert attempt(lives.of(Arm.CANDIDATE), sound, tmp_path / "again.log") not in before
    assert (tmp_path / "lives" / "1-candidate.log").exists()


def test_lives_of_an_earlier_sitting_keep_their_logs(tmp_path: Path) -> None:
    (tmp_path / "0-candidate.log").write_text("an earlier sitting's")
    lives = Lives(tmp_path)
    lives.of(Arm.BASELINE)
    lives.end()
    assert (tmp_path / "0-candidate.log").read_text() == "an earlier sitting's"


def test_a_server_that_died_between_two_attempts_is_a_broken_apparatus(
    lives: Lives, sound: engine.Engine, tmp_path: Path
) -> None:
    dying = replace(sound, binary=wrap.llama_server(tmp_path / "bin", "dies-mid-stream"))
    model = made_model(tmp_path)
    life = lives.of(Arm.CANDIDATE)
    with life.lent(dying, SETTINGS, model, seed=1, log=tmp_path / "0.log") as server:
        server.wait_ready()
        with pytest.raises(httpx.HTTPError):
            ask(life, dying)
        while server.pid is not None and process.exists(server.pid):
            pass
    with (
        pytest.raises(ApparatusError, match="between two attempts"),
        life.lent(dying, SETTINGS, model, seed=1, log=tmp_path / "1.log"),
    ):
        pass
