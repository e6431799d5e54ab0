"""Starting, watching and stopping a model server, with a small server that breaks in every known way."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from agent_ab import process
from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.engine import engine
from agent_ab.errors import ApparatusError
from agent_ab.models.models import Model
from agent_ab.server import server
from tests.fakes import wrap

KEY = "a-secret-key"


class Stage:
    """Starts a fake with faults, and remembers what it left."""

    def __init__(self, folder: Path, sound: engine.Engine) -> None:
        self.folder, self.sound = folder, sound
        self.log = folder / "server.log"
        self.port = server.free_port()
        self.model = Model(folder / "m.gguf", "m" * 64, "qwen35", True, "", 131072)

    def started(
        self, *faults: str, spec: str = "none", stall_s: float = 30, patience_s: Sequence[float] = (10, 5)
    ) -> AbstractContextManager[server.Server]:
        found = replace(self.sound, binary=wrap.llama_server(self.folder / "bin", *faults))
        speculation = Speculation(type=spec)
        settings = ArmSettings(server=Server(context=512, load_stall_s=stall_s, speculation=speculation))
        return server.started(found, settings, self.model, port=self.port, key=KEY, log=self.log, patience_s=patience_s)

    def ready(self, running: server.Server) -> server.Server:
        running.wait_ready()
        return running

    def post(self, running: server.Server, body: bytes = b"{}") -> httpx.Response:
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.post(f"{running.url}/v1/chat/completions", content=body, headers=headers, trust_env=False)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> engine.Engine:
    """Return a fake without faults, probed once."""
    return engine.probe(wrap.llama_server(tmp_path_factory.mktemp("sound")))


@pytest.fixture
def stage(tmp_path: Path, sound: engine.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Yield a stage; afterwards nothing of it may run, listen or lie about."""
    private = tmp_path / "tmp"
    private.mkdir()
    monkeypatch.setenv("TMPDIR", str(private))
    monkeypatch.setattr("tempfile.tempdir", None)
    made = Stage(tmp_path, sound)
    yield made
    assert not list(private.iterdir())
    assert not [
        p.pid for p in psutil.process_iter(["cmdline"]) if str(tmp_path / "bin") in " ".join(p.info["cmdline"] or ())
    ]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", made.port)) != 0


@pytest.mark.parametrize("spec", ["none", "draft-mtp", "ngram-mod", "ngram-mod,draft-mtp"])
def test_a_sound_server_is_started_proven_and_stopped(stage: Stage, spec: str) -> None:
    ticks: list[float] = []
    with stage.started("slow-load", spec=spec) as running:
        running.wait_ready(ticks.append)
        facts = running.prove()
        usage = running.usage()
    assert ticks == sorted(ticks) and ticks
    assert facts.speculation_proven and facts.spec_type == spec
    assert (facts.draft_n, facts.draft_n_accepted) == ((9, 4) if "draft-mtp" in spec else (None, None))
    assert facts.build == "b7-abc1234" and facts.props["n_ctx"] == 512 and facts.props["sampling"]["temperature"] == 0
    assert usage and usage.rss_bytes > 1_000_000
    assert running.usage() is None
    assert KEY not in str(facts) and KEY not in stage.log.read_text()


def test_two_attempts_of_one_arm_give_equal_facts(stage: Stage) -> None:
    facts = []
    for _ in range(2):
        stage.port = server.free_port()
        with stage.started(spec="draft-mtp") as running:
            facts.append(stage.ready(running).prove())
        stage.log.unlink()
    assert facts[0] == facts[1]


def test_the_arms_agree_in_everything_but_their_speculation(stage: Stage) -> None:
    facts = []
    for spec in ("none", "draft-mtp"):
        with stage.started(spec=spec) as running:
            facts.append(stage.ready(running).prove())
        stage.log.unlink()
    one, two = facts
    assert (one.environment, one.props, one.omitted_flags) == (two.environment, two.props, two.omitted_flags)


def test_a_server_that_dies_while_loading_is_reported_in_its_own_words(stage: Stage) -> None:
    words = r"ended while loading, status 1: it ran out of memory.*bad_alloc"
    with pytest.raises(ApparatusError, match=words) as caught, stage.started("dies-loading") as running:
        running.wait_ready()
    assert caught.value.step == "server" and caught.value.log == stage.log


@pytest.mark.parametrize("fault", ["hangs", "hangs-after-bind"])
def test_a_server_that_hangs_in_loading_is_given_up_by_its_lack_of_progress(stage: Stage, fault: str) -> None:
    words = r"hangs in loading: its log, memory and CPU stood still for 0\.7 s"
    with pytest.raises(ApparatusError, match=words), stage.started(fault, stall_s=0.7) as running:
        running.wait_ready()


def test_a_busy_port_is_named_before_anything_starts(stage: Stage) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        stage.port = other.getsockname()[1]
        words = f"port {stage.port} is taken by another process"
        with pytest.raises(ApparatusError, match=words), stage.started():
            pass
    assert not stage.log.exists()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("router", "the server is a router"),
        ("other-model", r"another server answers: its model is /elsewhere/other\.gguf"),
        ("other-build", "another build answers: b8-fffffff, not b7-abc1234"),
        ("two-slots", "the server has 4 slots, not 1"),
        ("small-context", r"the server's context is 256, not server\.context = 512"),
    ],
)
def test_a_server_that_is_not_the_one_asked_for_is_refused(stage: Stage, fault: str, words: str) -> None:
    with stage.started(fault) as running:
        stage.ready(running)
        with pytest.raises(ApparatusError, match=words):
            running.prove()


@pytest.mark.parametrize(
    ("fault", "spec", "missing"),
    [
        ("drafts-nothing", "draft-mtp", "missing drafts by draft-mtp"),
        ("drafts-nothing", "ngram-mod", "missing ngram-mod in the log and /slots"),
        ("always-drafts", "none", "missing no speculation"),
        ("silent-log", "ngram-mod", "missing ngram-mod in the log and /slots"),
        ("canary-500", "draft-mtp", "the canary request failed: HTTP 500"),
    ],
)
def test_speculation_that_is_not_shown_is_a_fact_and_no_error(
    stage: Stage, fault: str, spec: str, missing: str
) -> None:
    with stage.started(fault, spec=spec) as running:
        facts = stage.ready(running).prove()
    assert not facts.speculation_proven and missing in facts.proof


def test_a_template_that_cannot_render_the_canary_is_no_obstacle(stage: Stage) -> None:
    with stage.started("no-template") as running:
        assert stage.ready(running).prove().speculation_proven


def test_a_server_that_dies_of_its_canary_is_reported_as_dead(stage: Stage) -> None:
    with stage.started("dies-in-canary") as running:
        stage.ready(running)
        with pytest.raises(ApparatusError, match=r"ended during its canary request.*an assertion failed"):
            running.prove()


def test_a_server_that_dies_in_mid_stream_is_noticed(stage: Stage) -> None:
    with stage.started("dies-mid-stream") as running:
        stage.ready(running).prove()
        running.check_alive()
        with pytest.raises(httpx.TransportError):
            stage.post(running)
        running.child.wait(10)
        with pytest.raises(ApparatusError, match=r"ended while serving.*CUDA error: an illegal memory access"):
            running.check_alive()


def test_requests_are_counted_without_our_own_and_without_refused_keys(stage: Stage) -> None:
    with stage.started() as running:
        stage.ready(running).prove()
        assert running.requests() == 0
        stage.post(running)
        stage.post(running, b"{not json")
        httpx.post(f"{running.url}/v1/chat/completions", content=b"{}", trust_env=False)
        assert running.requests() == 2
    assert running.requests() == 2


def test_a_log_that_names_no_requests_cannot_be_counted(stage: Stage) -> None:
    with stage.started("silent-log") as running:
        stage.ready(running).prove()
        with pytest.raises(ApparatusError, match="does not show its requests"):
            running.requests()


def test_a_server_that_ignores_term_is_killed(stage: Stage) -> None:
    with stage.started("ignores-term", patience_s=(0.1, 0.1)) as running:
        stage.ready(running)
    assert running.child.exit_code() == -9


def test_children_of_the_server_end_with_it(stage: Stage) -> None:
    with stage.started("leaves-child") as running:
        stage.ready(running)
        children = psutil.Process(running.child.pid).children()
        assert children
    assert not [child for child in children if process.exists(child.pid)]


def test_the_server_is_stopped_when_the_block_fails_and_the_failure_is_not_hidden(stage: Stage) -> None:
    with pytest.raises(ZeroDivisionError), stage.started() as running:
        stage.ready(running)
        raise ZeroDivisionError
    assert running.child.exit_code() is not None


def test_an_interrupt_while_waiting_stops_the_server(stage: Stage) -> None:
    def interrupt(_elapsed_s: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), stage.started("hangs") as running:
        running.wait_ready(interrupt)
    assert running.child.exit_code() is not None


def test_a_port_that_is_still_open_afterwards_is_an_error(stage: Stage) -> None:
    words = f"port {stage.port} of llama-server is still there"
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(ApparatusError, match=words), stage.started("hangs"):
            other.bind(("127.0.0.1", stage.port))
            other.listen()


def test_a_program_that_is_gone_since_it_was_probed_is_named(stage: Stage) -> None:
    found = replace(stage.sound, binary=stage.folder / "gone")
    starting = server.started(found, ArmSettings(), stage.model, port=stage.port, key=KEY, log=stage.log)
    with pytest.raises(ApparatusError, match="cannot be started"), starting:
        pass


def test_the_key_reaches_the_server_by_environment_alone(stage: Stage) -> None:
    with stage.started() as running:
        handle = psutil.Process(running.child.pid)
        stage.ready(running)
        assert KEY not in " ".join(handle.cmdline())
        env = handle.environ()
        assert env["LLAMA_API_KEY"] == KEY and env["HOME"] not in ("", os.environ.get("HOME"))
        assert not list(Path(env["HOME"]).iterdir())


def test_keys_and_ports_are_fresh() -> None:
    assert server.new_key() != server.new_key() and len(server.new_key()) > 40
    assert len({server.free_port() for _ in range(5)}) > 1
