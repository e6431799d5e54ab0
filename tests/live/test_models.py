"""Our models on the real llama-server: what they say, how they draft, and whether their headers told the truth."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError
from agent_ab.models import models, scripted
from agent_ab.models.models import Model
from agent_ab.server import server
from tests.gguf_files import truncated, without_mtp

CODE = "".join(f'def step_{n}(value):\n    return value + {n}  # ½ \\ "{n}"\n\n\n' for n in range(60))
INSTRUCTION = "Repair `step_3`: it adds three, and it ought to subtract.\n" + CODE
SCRIPT = """
[[turns]]
say = "I look around."
[turns.call]
name = "bash"
arguments = { command = "ls" }
[[turns]]
[turns.call]
name = "write"
arguments = { path = "steps.py" }
content_from = "code.py"
[[turns]]
[turns.call]
name = "bash"
arguments = { command = "ls" }
[[turns]]
say = "Done."
"""
Client = Callable[..., AbstractContextManager[httpx.Client]]


def tool(name: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": "a tool", "parameters": schema}}


TOOLS = [tool("bash", "command"), tool("write", "path", "content")]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return a scripted model with a long write."""
    root = tmp_path_factory.mktemp("steps")
    (root / "code.py").write_text(CODE, encoding="utf-8")
    (root / "instruction.md").write_text(INSTRUCTION, encoding="utf-8")
    (root / "solve.toml").write_text(SCRIPT, encoding="utf-8")
    scripted.generate(root / "solve.toml", root, root / "steps.gguf")
    return models.inspect(root / "steps.gguf")


@pytest.fixture
def serving(engine: Engine, tmp_path: Path) -> Client:
    """Return what starts a server on a model and gives a client of it."""

    @contextmanager
    def serve(model: Model, context: int = 16384, **speculation: Any) -> Iterator[httpx.Client]:
        settings = ArmSettings(server=Server(context=context, threads=1, speculation=Speculation(**speculation)))
        key = server.new_key()
        with server.started(
            engine, settings, model, port=server.free_port(), key=key, log=tmp_path / "server.log"
        ) as started:
            started.wait_ready()
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=started.url, headers=headers, timeout=120, trust_env=False) as client:
                yield client

    return serve


def ask(client: httpx.Client, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body = {"messages": messages, "temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0, "seed": 4242, **more}
    answer: dict[str, Any] = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def play(client: httpx.Client) -> tuple[list[Any], int, int]:
    """Play the whole script; return what was said and called, and how much was drafted and accepted."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": INSTRUCTION}]
    said: list[Any] = []
    drafted = accepted = 0
    for _ in range(10):
        answer = ask(client, messages, tools=TOOLS)
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        said.append((message["content"], [call["function"] for call in calls]))
        drafted += answer["timings"].get("draft_n", 0)
        accepted += answer["timings"].get("draft_n_accepted", 0)
        if not calls:
            break
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "app.py"} for call in calls]
    return said, drafted, accepted


def test_a_script_is_played_word_for_word_with_and_without_mtp(steps: Model, serving: Client) -> None:
    with serving(steps) as client:
        plain, *drafts = play(client)
    assert drafts == [0, 0]
    assert [content.strip() for content, _ in plain] == ["I look around.", "", "", "Done."]
    assert [call["name"] for _, calls in plain for call in calls] == ["bash", "write", "bash"]
    written = json.loads(plain[1][1][0]["arguments"])
    assert written == {"path": "steps.py", "content": CODE}
    with serving(steps, type="draft-mtp", n_max=3) as client:
        fast, drafted, accepted = play(client)
    assert fast == plain
    assert 0.3 * drafted < accepted < drafted


def test_a_server_that_accepts_every_draft_breaks_the_script(steps: Model, serving: Client) -> None:
    with serving(steps, type="draft-mtp", n_max=3, synth_rates=(1, 1, 1)) as client:
        messages = [{"role": "user", "content": INSTRUCTION}, {"role": "assistant", "content": "So."}]
        body = {"messages": messages, "tools": TOOLS, "seed": 4242}
        answer = client.post("/v1/chat/completions", json=body)
        # The reply is cut inside its call: an error, or a reply without a call.
        assert answer.status_code == 500 or not answer.json()["choices"][0]["message"].get("tool_calls")


def test_the_number_of_replies_decides_whatever_their_form_is(steps: Model, serving: Client) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    parts = [{"type": "text", "text": "Please "}, {"type": "text", "text": "go on."}]
    opening: list[dict[str, Any]] = [{"role": "system", "content": "You code."}, {"role": "user", "content": parts}]
    with serving(steps) as client:

        def content(*messages: dict[str, Any]) -> str:
            return str(ask(client, [*opening, *messages])["choices"][0]["message"]["content"])

        assert content().startswith("I look around.\n<tool_call>")
        again = {"role": "system", "content": "Once more: you code."}
        assert content(again) == content()
        called = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "app.py"}]}
        wrote = content(called, result)
        assert wrote.startswith('<tool_call>\n{"name": "write"')
        assert content({"role": "assistant", "content": "lost"}, {"role": "user", "content": "?"}) == wrote
        turn: list[dict[str, Any]] = [{"role": "assistant", "content": parts}, {"role": "user", "content": "?"}]
        assert content(*turn * 3) == "Done."
        for more in (4, 9):
            assert content(*turn * more) == scripted.LAST_WORDS


def test_what_a_prompt_is_made_of_costs_few_tokens(steps: Model, serving: Client) -> None:
    with serving(steps) as client:
        known = client.post("/tokenize", json={"content": INSTRUCTION}).json()["tokens"]
        assert len(known) < len(INSTRUCTION) / 5
        prose = "The agent reads what it was never told before, and says so.\n" * 20
        assert len(client.post("/tokenize", json={"content": prose}).json()["tokens"]) < len(prose)
        back = client.post("/detokenize", json={"tokens": known}).json()["content"]
        assert back == INSTRUCTION


@pytest.mark.parametrize("speculation", ["none", "draft-mtp"])
@pytest.mark.parametrize("damage", ["stripped, key kept", "stripped", "truncated"])
def test_a_header_that_was_refused_is_refused_by_the_server_too(
    steps: Model, serving: Client, tmp_path: Path, damage: str, speculation: str
) -> None:
    path = tmp_path / "model.gguf"
    if damage == "truncated":
        truncated(steps.path, path, -1000)
        model = Model(path, "", "qwen35", True, "", 4096)
    else:
        model = models.inspect(without_mtp(steps.path, path, keep_key="kept" in damage))
        assert not model.mtp
    if damage == "stripped" and speculation == "none":
        with serving(model) as client:
            assert ask(client, [{"role": "user", "content": "Hi"}])["choices"][0]["message"]["content"]
        return
    with pytest.raises(ApparatusError, match="ended while loading"), serving(model, type=speculation):
        pass


CHAT = ["Write a Python function that returns the longest word of a sentence.", "How do I boil an egg?"]
ACTION = {
    "type": "object",
    "properties": {"tool": {"enum": ["bash", "read"]}, "path": {"enum": ["README.md", "app/main.py"]}},
    "required": ["tool", "path"],
    "additionalProperties": False,
}
FLOOR = 0.2
"""Accepted share of single drafts; agent_ab/data/README.md has what was measured."""


def test_the_demo_model_drafts_well_on_prompts_that_it_was_not_fitted_on(smollm2: Model, serving: Client) -> None:
    fitted_on = (Path(__file__).parents[2] / "scripts" / "conversations.py").read_text(encoding="utf-8")
    assert not [prompt for prompt in CHAT if prompt in fitted_on]
    with serving(smollm2, context=2048, type="draft-mtp", n_max=1) as client:
        drafted = accepted = 0
        for prompt in CHAT:
            timings = ask(client, [{"role": "user", "content": prompt}], temperature=0, max_tokens=64)["timings"]
            drafted += timings["draft_n"]
            accepted += timings["draft_n_accepted"]
        assert accepted / drafted >= FLOOR


def test_the_demo_model_acts_under_a_schema_while_it_drafts(smollm2: Model, serving: Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": ACTION}}
    with serving(smollm2, context=2048, type="draft-mtp", n_max=1) as client:
        answer = ask(client, [{"role": "user", "content": "Read the file."}], response_format=form, max_tokens=64)
    action = json.loads(answer["choices"][0]["message"]["content"])
    assert list(action) == ["tool", "path"]
    assert answer["timings"]["draft_n"] > 0
