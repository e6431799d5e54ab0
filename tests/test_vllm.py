"""Starting, proving, watching and stopping vLLM, with a small server that breaks in the known ways."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import psutil
import pytest

from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.errors import ApparatusError
from agent_ab.models.models import Model
from agent_ab.server.watch import free_port
from agent_ab.vllm import vllm
from agent_ab.vllm.command import OPTIONAL
from agent_ab.vllm.engine import Vllm
from tests.fakes import wrap
from tests.test_vllm_model import TRUNK, directory

KEY = "a-secret-key"


class Stage:
    """Starts a fake with faults, and remembers what it left."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "server.log"
        self.port = free_port()
        self.model = Model(directory(folder / "m", *TRUNK), "m" * 64, "Llama", False, "", 2048)

    def started(self, *faults: str, spec: str = "none", stall_s: float = 30) -> AbstractContextManager[vllm.VllmServer]:
        engine = Vllm(wrap.vllm(self.folder / "bin", *faults), "0.32.0+cpu", "e" * 64, frozenset(OPTIONAL), "given")
        server = Server(engine="vllm", context=512, load_stall_s=stall_s, speculation=Speculation(type=spec))
        settings = ArmSettings(server=server)
        return vllm.started(engine, settings, self.model, port=self.port, key=KEY, log=self.log, patience_s=(5, 5))

    def ready(self, running: vllm.VllmServer) -> vllm.VllmServer:
        running.wait_ready()
        return running

    def ask(self, running: vllm.VllmServer, **body: str) -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        httpx.post(f"{running.url}/v1/chat/completions", json=body, headers=headers, trust_env=False)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_both_arms_are_proven_and_agree_in_all_but_their_speculation(stage: Stage) -> None:
    facts = []
    for spec in ("none", "ngram"):
        with stage.started(spec=spec) as running:
            facts.append(stage.ready(running).prove())
            assert running.pid == running.child.pid
        stage.log.unlink()
    none, ngram = facts
    assert none.speculation_proven and ngram.speculation_proven and none.unproven == ()
    assert (none.draft_n, ngram.draft_n, ngram.draft_n_accepted) == (None, 6, 4)
    assert (none.environment, none.props, none.omitted_flags) == (ngram.environment, ngram.props, ngram.omitted_flags)
    assert none.build == "vLLM 0.32.0" and none.binary_sha256 == "e" * 64 and KEY not in str(facts)


def test_requests_and_drafts_are_counted_without_our_own(stage: Stage) -> None:
    with stage.started(spec="ngram") as running:
        stage.ready(running).prove()
        assert running.requests() == 0
        stage.ask(running)
        stage.ask(running)
        assert running.requests() == 2
        counted = running.drafting()
        assert counted and (counted.drafts, counted.drafted, counted.accepted) == (2, 6, 4)
        running.check_working(False)
    with stage.started() as running:
        stage.ready(running).prove()
        assert running.drafting() is None


def test_a_text_is_cut_as_the_server_cuts_it(stage: Stage) -> None:
    with stage.started() as running:
        stage.ready(running)
        tokens = [{"id": 0, "piece": "hello"}, {"id": 1, "piece": " world"}]
        assert running.tokenize("hello world") == {"tokens": tokens}
        assert running.render({}) is None and running.settings_of({}) is None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("other-model", r"another server answers: its model is /elsewhere"),
        ("other-version", r"another vLLM answers: 9\.9\.9"),
        ("caches", "prefix cache is not off"),
        ("hides-cache", "says enable_prefix_caching nowhere"),
    ],
)
def test_a_server_that_is_not_as_asked_for_is_refused(stage: Stage, fault: str, words: str) -> None:
    with stage.started(fault) as running:
        stage.ready(running)
        with pytest.raises(ApparatusError, match=words):
            running.prove()


def test_a_model_that_never_drafts_is_not_proven(stage: Stage) -> None:
    with stage.started("never-drafts", spec="mtp") as running:
        facts = stage.ready(running).prove()
    assert not facts.speculation_proven and "missing drafts by mtp" in facts.proof


def test_a_server_that_dies_while_loading_is_reported_in_its_own_words(stage: Stage) -> None:
    words = "vLLM ended while loading, status 1: ValueError: the model has no config"
    with pytest.raises(ApparatusError, match=words), stage.started("dies-loading") as running:
        running.wait_ready()


def test_a_server_that_hangs_in_loading_is_given_up(stage: Stage) -> None:
    words = r"vLLM hangs in loading: its log, memory and CPU stood still for 0\.7 s"
    with pytest.raises(ApparatusError, match=words), stage.started("hangs", stall_s=0.7) as running:
        running.wait_ready()


def test_a_server_that_dies_while_serving_is_explained_wherever_it_is_noticed(stage: Stage) -> None:
    with stage.started("dies-serving", spec="ngram") as running:
        stage.ready(running).prove()
        with pytest.raises(httpx.TransportError):
            stage.ask(running, user="die")
        for notice in (running.drafting, running.check_alive):
            with pytest.raises(ApparatusError, match=r"ended while serving, status 1: RuntimeError: something broke"):
                notice()
