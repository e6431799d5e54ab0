"""The real llama-server: every arm's proof, the count of requests, and every way to end it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from agent_ab import process
from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError
from agent_ab.models.models import Model
from agent_ab.server import server

NONE = Speculation()
MTP = Speculation(type="draft-mtp", n_max=3)
PLACEBO = Speculation(type="draft-mtp", n_max=3, synth_rates=(0, 0, 0))
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


@contextmanager
def serving(engine: Engine, model: Model, log: Path, settings: Server) -> Iterator[tuple[server.Server, httpx.Client]]:
    port, key = server.free_port(), server.new_key()
    arm = ArmSettings(server=settings)
    with server.started(engine, arm, model, port=port, key=key, log=log, patience_s=(2.0, 5.0)) as running:
        running.wait_ready()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=running.url, headers=headers, timeout=60, trust_env=False) as client:
            yield running, client


def arm(speculation: Speculation, **settings: object) -> Server:
    return Server.model_validate({"context": 4096, "speculation": speculation, **settings})


@pytest.mark.parametrize("speculation", [NONE, MTP, PLACEBO, Speculation(type="ngram-mod")])
def test_each_arm_is_proven(engine: Engine, scripted: Model, tmp_path: Path, speculation: Speculation) -> None:
    with serving(engine, scripted, tmp_path / "server.log", arm(speculation)) as (running, _):
        facts = running.prove()
    assert facts.speculation_proven, facts.proof
    drafts = speculation.type == "draft-mtp"
    assert bool(facts.draft_n) is drafts and facts.slots_speculative is (speculation.type != "none")
    assert facts.build == engine.build and facts.model_sha256 == scripted.sha256
    assert facts.props["sampling"]["min_p"] == 0 and facts.props["sampling"]["seed"] == 1
    if speculation.synth_rates:
        assert facts.draft_n_accepted == 0 and "synthetic" in facts.log_line
    assert running.child.exit_code() == 0


def test_the_two_arms_of_a_pair_agree_in_all_that_must_agree(engine: Engine, scripted: Model, tmp_path: Path) -> None:
    facts = []
    for speculation in (NONE, MTP):
        with serving(engine, scripted, tmp_path / f"{speculation.type}.log", arm(speculation)) as (running, _):
            facts.append(running.prove())
    one, two = (
        (f.environment, f.props, f.omitted_flags, f.chat_template_sha256, f.argv[: f.argv.index("--spec-type")])
        for f in facts
    )
    assert one == two


def test_the_small_real_model_drafts_in_its_canary(engine: Engine, smollm2: Model, tmp_path: Path) -> None:
    with serving(engine, smollm2, tmp_path / "server.log", arm(Speculation(type="draft-mtp", n_max=1))) as (running, _):
        facts = running.prove()
    assert facts.speculation_proven and facts.draft_n, facts.proof


def test_a_speculation_that_the_server_silently_skips_is_not_proven(engine: Engine, scripted: Model, tmp_path: Path) -> None:  # fmt: skip
    with serving(engine, scripted, tmp_path / "server.log", arm(Speculation(type="draft-simple"))) as (running, _):
        facts = running.prove()
    assert not facts.speculation_proven and "missing drafts by draft-simple" in facts.proof


def test_a_variable_of_llama_server_in_our_environment_does_not_reach_it(
    engine: Engine, scripted: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_SPEC_TYPE", "draft-mtp")
    with serving(engine, scripted, tmp_path / "server.log", arm(NONE)) as (running, _):
        assert running.prove().speculation_proven


def test_the_log_counts_every_request_that_reached_the_server(engine: Engine, scripted: Model, tmp_path: Path) -> None:
    with serving(engine, scripted, tmp_path / "server.log", arm(NONE)) as (running, client):
        running.prove()
        assert running.requests() == 0
        url = "/v1/chat/completions"
        answers = [client.post(url, json=CHAT), client.post(url, json=CHAT | {"stream": True})]
        answers += [client.post(url, json={}), client.post(url, json=CHAT | {"temperature": "x"})]
        answers += [client.post(url, content=b"{"), client.post(url, json=CHAT | {"grammar": "::= x"})]
        answers += [client.post(url, json={"messages": [{"role": "user", "content": "word " * 20000}]})]
        assert [answer.status_code for answer in answers] == [200, 200, 400, 400, 500, 400, 400]
        with client.stream("POST", url, json=CHAT | {"stream": True, "max_tokens": 2000, "ignore_eos": True}) as cut:
            next(cut.iter_raw())
        # A connection that idled while the machine was busy is closed by the server, at a moment of its own.
        client.headers["Connection"] = "close"
        assert client.post(url, json=CHAT, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/v1/models").status_code == 200
        assert running.requests() == 8
    assert running.requests() == 8


def test_a_request_in_flight_does_not_keep_the_server_alive(engine: Engine, scripted: Model, tmp_path: Path) -> None:
    started = threading.Event()

    def hold(client: httpx.Client) -> None:
        body = CHAT | {"stream": True, "max_tokens": 4000, "ignore_eos": True}
        with suppress(httpx.TransportError), client.stream("POST", "/v1/chat/completions", json=body) as reply:
            for _ in reply.iter_raw():
                started.set()
                threading.Event().wait(0.05)

    with serving(engine, scripted, tmp_path / "server.log", arm(NONE)) as (running, client):
        holder = threading.Thread(target=hold, args=(client,))
        holder.start()
        assert started.wait(30)
    holder.join(30)
    assert not holder.is_alive() and not process.exists(running.child.pid)


def test_a_truncated_model_ends_the_server_and_is_named(engine: Engine, scripted: Model, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(scripted.path.read_bytes()[: scripted.path.stat().st_size // 2])
    words = r"ended while loading, status 1: the model file is damaged: .*not within the file bounds"
    starting = serving(engine, replace(scripted, path=broken), tmp_path / "server.log", arm(NONE))
    with pytest.raises(ApparatusError, match=words), starting:
        pass


def test_an_option_that_the_build_does_not_know_is_named(engine: Engine, scripted: Model, tmp_path: Path) -> None:
    words = "this build does not know the option --no-such-option"
    settings = arm(NONE, extra_args=("--no-such-option",))
    with pytest.raises(ApparatusError, match=words), serving(engine, scripted, tmp_path / "server.log", settings):
        pass


def test_a_context_that_the_model_does_not_have_is_refused(engine: Engine, scripted: Model, tmp_path: Path) -> None:
    settings = arm(NONE, context=scripted.context_train + 256)
    words = f"the server's context is {scripted.context_train}"
    starting = serving(engine, scripted, tmp_path / "server.log", settings)
    with starting as (running, _), pytest.raises(ApparatusError, match=words):
        running.prove()
