"""The seam: each engine by its settings, and what the proxy writes for it."""

from pathlib import Path

import pytest

from agent_ab.config import ArmSettings, Server
from agent_ab.engine.engine import Engine
from agent_ab.errors import UserError
from agent_ab.model import Event
from agent_ab.models import models
from agent_ab.server import serving
from agent_ab.server.attached import Attached
from agent_ab.vllm.engine import Vllm

LLAMA = Engine(Path("/b/llama-server"), "e" * 64, "b7", frozenset(), ("none",), "PATH")
VLLM = Vllm(Path("/b/vllm"), "0.32.0", "f" * 64, frozenset(), "PATH")


def attached(program: str) -> Attached:
    return Attached("https://host:8000", "a-secret", "big-model", program)


def ignore(_event: Event) -> None:
    pass


def test_a_server_of_ours_gets_a_port_and_a_key_of_its_own() -> None:
    one, other = serving.address(LLAMA), serving.address(VLLM)
    assert one.url == f"http://127.0.0.1:{one.port}" and one.key != other.key
    assert one.key not in repr(one)


def test_an_attached_server_is_where_it_is() -> None:
    at = serving.address(attached(""))
    assert (at.url, at.key, at.port) == ("https://host:8000", "a-secret", 0)


def test_what_the_proxy_writes_is_in_the_servers_own_words() -> None:
    assert serving.pins(LLAMA) == serving.Pins(fixed={"cache_prompt": False})
    assert serving.pins(VLLM).names == {"repeat_penalty": "repetition_penalty"} and not serving.pins(VLLM).fixed
    unknown = serving.pins(attached(""))
    assert unknown.model == "big-model" and set(unknown.names.values()) == {""} and not unknown.fixed
    assert serving.pins(attached("llama-server b7-abc")).fixed == {"cache_prompt": False}
    assert serving.pins(attached("vLLM 0.32.0")).names == serving.pins(VLLM).names


def test_a_request_in_llama_servers_words_is_put_into_anothers() -> None:
    body = {"messages": [], "top_k": 20, "repeat_penalty": 1.1, "cache_prompt": False}
    assert serving.pins(LLAMA).renamed(body) == body
    assert serving.pins(VLLM).renamed(body) == {"messages": [], "top_k": 20, "repetition_penalty": 1.1}
    assert serving.pins(attached("")).renamed(body) == {"messages": [], "model": "big-model"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Server(url="http://h:1"), 'server.url: belongs to server.engine = "attached"'),
        (Server(engine="vllm", model_name="m"), "server.model_name: belongs to"),
        (Server(env={"A": "1"}), 'server.env: belongs to server.engine = "vllm"'),
    ],
)
def test_a_key_of_another_engine_is_refused(settings: Server, words: str) -> None:
    with pytest.raises(UserError, match=words):
        serving.find(settings, ignore)


def test_of_an_attached_server_no_model_is_looked_at() -> None:
    found = serving.model(ArmSettings(server=Server(engine="attached", url="http://h:1")), None, ignore)
    assert found.sha256 == "" and isinstance(found, models.Model)


def test_every_engine_is_told_in_one_line() -> None:
    for found in (LLAMA, VLLM, attached("")):
        assert "\n" not in serving.describe(found) and serving.describe(found)
