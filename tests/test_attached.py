"""A server that somebody else started: found, asked, and watched from outside."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent_ab import process
from agent_ab.config import ArmSettings, ModelFile, Server, Speculation
from agent_ab.errors import ApparatusError, UserError
from agent_ab.server import attached
from agent_ab.server.watch import free_port, listening

FAKE = Path(__file__).parent / "fakes" / "openai_server.py"
Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a server with faults and returns its URL."""
    with ExitStack() as stack:

        def begin(*faults: str, key: str = "") -> str:
            port = free_port()
            argv = [sys.executable, "-I", "-S", str(FAKE), str(port), *faults]
            log = tmp_path / f"{port}.log"
            env = {"AGENT_AB_FAKE_KEY": key} if key else {}
            stack.enter_context(process.started(argv, env=env, log=log, name="server", patience_s=(5.0,)))
            deadline = time.monotonic() + 20
            while not listening(port) and time.monotonic() < deadline:
                time.sleep(0.05)
            return f"http://127.0.0.1:{port}"

        yield begin


def settings(url: str, **server: Any) -> ArmSettings:
    return ArmSettings(server=Server(engine="attached", url=url, **server))


def test_a_server_that_says_nothing_of_itself_is_played_with_all_the_same(start: Start, tmp_path: Path) -> None:
    asked = settings(start())
    found = attached.find(asked.server)
    assert (found.model, found.program, found.sha256) == ("one", "", "")
    assert attached.describe(found) == f"a server that does not say what it is at {found.url}, model one"
    log = tmp_path / "server.log"
    with attached.started(found, asked, log=log) as running:
        running.wait_ready()
        facts = running.prove()
        running.check_alive()
        running.check_working(True)
        assert facts.unproven and facts.speculation_proven and running.pid is None
        assert running.requests() is None and running.drafting() is None and running.tokenize("one") is None
    assert '"models"' in log.read_text()


def test_the_key_is_in_the_named_variable(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    url = start(key="a-secret")
    with pytest.raises(ApparatusError, match=r"refuses the key; server\.key_variable names"):
        attached.find(settings(url).server)
    asked = settings(url, key_variable="MY_KEY").server
    with pytest.raises(UserError, match="the environment has no MY_KEY"):
        attached.find(asked)
    monkeypatch.setenv("MY_KEY", "a-secret")
    found = attached.find(asked)
    assert found.key == "a-secret" and "a-secret" not in repr(found)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("two-models", r"server\.model_name: .* serves one, two; name one"),
        ("not-openai", "/v1/models is not answered as OpenAI's API does"),
    ],
)
def test_a_server_that_does_not_fit_is_told_apart(start: Start, fault: str, words: str) -> None:
    with pytest.raises((UserError, ApparatusError), match=words):
        attached.find(settings(start(fault)).server)


def test_a_model_that_is_not_served_is_named_with_those_that_are(start: Start) -> None:
    with pytest.raises(UserError, match="has no three; it serves one"):
        attached.find(settings(start(), model_name="three").server)


def test_a_server_that_stays_loading_is_given_up(start: Start, tmp_path: Path) -> None:
    asked = settings(start("loading"), model_name="one", load_stall_s=0.3)
    found = attached.Attached(asked.server.url, "", "one", "")
    words = "has not been ready for 0"
    with attached.started(found, asked, log=tmp_path / "log") as running, pytest.raises(ApparatusError, match=words):
        running.wait_ready()


def test_a_canary_that_fails_is_told_with_its_status(start: Start, tmp_path: Path) -> None:
    asked = settings(start("canary-500"))
    found, words = attached.find(asked.server), "the canary request failed: HTTP 500"
    with attached.started(found, asked, log=tmp_path / "log") as running, pytest.raises(ApparatusError, match=words):
        running.prove()


def test_a_server_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    asked = settings(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ApparatusError, match=r"nothing answers at .*; start the server, or correct server\.url"):
        attached.find(asked.server)
    gone = attached.Attached(asked.server.url, "", "one", "")
    with attached.started(gone, asked, log=tmp_path / "log") as running:
        running._looked_at -= attached.LOOK_S
        with pytest.raises(ApparatusError, match="went away while an attempt was played"):
            running.check_alive()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is no URL of a server"),
        ("127.0.0.1:8000", "is no URL of a server"),
        ("http://user:word@host:1", "holds a password"),
        ("http://host:1/api/v1", "the API must be at /v1"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        attached.find(settings(url).server)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (settings("http://h:1", gpu_layers=3), "server.gpu_layers: an attached server is started by you"),
        (settings("http://h:1", extra_args=("-x",)), "server.extra_args"),
        (settings("http://h:1", speculation=Speculation(n_max=3)), "only the type is compared"),
        (settings("http://h:1").model_copy(update={"model": ModelFile(path="m")}), "has loaded its model already"),
    ],
)
def test_settings_that_it_never_hears_of_are_refused(asked: ArmSettings, words: str) -> None:
    with pytest.raises(UserError, match=words):
        attached.require(asked)
    attached.require(settings("http://h:1", context=4096, speculation=Speculation(type="mtp")))
