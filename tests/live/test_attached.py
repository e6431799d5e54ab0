"""Two llama-servers that somebody else started, attached by their URLs: played, told what nobody proved, never adopted."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.engine import engine as engines
from agent_ab.models import models
from agent_ab.server import server
from tests.command import ROOT, agent_ab

KEY = "a-key-of-somebody-else"


@pytest.fixture
def urls(engine: engines.Engine, scripted: models.Model, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start one server without and one with speculation."""
    with ExitStack() as stack:
        found = {}
        for kind in ("none", "draft-mtp"):
            port, speculation = server.free_port(), Speculation(type=kind)
            settings = ArmSettings(server=Server(context=65536, threads=1, speculation=speculation))
            log = tmp_path / f"{kind}.log"
            running = stack.enter_context(
                server.started(engine, settings, scripted, port=port, key=KEY, log=log, patience_s=(5, 5))
            )
            running.wait_ready()
            found[kind] = f"http://127.0.0.1:{port}"
        yield found


def profile(path: Path, urls: dict[str, str], declared: str = "draft-mtp") -> Path:
    text = (ROOT / "profiles" / "attached-example.toml").read_text()
    for old, new in (("http://127.0.0.1:8001", urls["none"]), ("http://127.0.0.1:8002", urls["draft-mtp"])):
        text = text.replace(old, new)
    text = text.replace('key_variable = ""', 'key_variable = "THEIR_KEY"').replace('"draft-mtp"', f'"{declared}"')
    path.write_text(text)
    return path


def test_an_attached_pair_says_what_nobody_proved_and_is_never_adopted(tmp_path: Path, urls: dict[str, str]) -> None:
    env = {"THEIR_KEY": KEY}
    asked = profile(tmp_path / "p.toml", urls)
    done = agent_ab(tmp_path, "pair", "--task", "transfer-repair", "--profile", asked, "--json", env=env)
    assert done.status == 0, done.stderr
    pair = done.data["pair"]
    assert pair["outcome"] == "BOTH_PASS" and pair["proven"] is False
    unproven = [line for line in pair["proof"] if line["unproven"]]
    assert [line["name"] for line in unproven] == [
        "one variable",
        "arms applied",
        "attached server",
        "attached server",
        "no reuse",
    ]
    assert "which program serves (it calls itself llama-server" in unproven[2]["detail"]
    assert done.data["metrics"]["candidate"]["drafted"] > 0 == done.data["metrics"]["baseline"]["drafted"]
    assert pair["candidate"]["drafting"]["accepted"] == done.data["metrics"]["candidate"]["accepted"]
    told = agent_ab(tmp_path, "gate", "--json")
    assert told.data["verdict"] != "ADOPT" and told.data["counts"]["unproven"] == 1
    reasons = " ".join(told.data["reasons"])
    assert "UNPROVEN" in reasons and "which model it loaded (it names" in reasons
    evidence = [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".log"]
    assert not [file for file in evidence if KEY.encode() in file.read_bytes()]


def test_an_attached_server_that_contradicts_the_profile_makes_the_pair_void(
    tmp_path: Path, urls: dict[str, str]
) -> None:
    asked = profile(tmp_path / "p.toml", urls, declared="none")
    done = agent_ab(tmp_path, "pair", "--task", "transfer-repair", "--profile", asked, "--json", env={"THEIR_KEY": KEY})
    assert done.status == 4 and done.data["pair"]["outcome"] == "VOID"
    assert "say in server.speculation.type what it does" in done.data["pair"]["candidate"]["invalid_reason"]
