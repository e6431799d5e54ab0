import json
from collections.abc import Mapping
from pathlib import Path

from agent_ab.judge.recall import Recalled, read, record
from agent_ab.model import ExchangeLog, Json
from tests.builders import exchange


class Server:
    """Renders a conversation as its words, and counts the questions."""

    def __init__(self, silent: bool = False) -> None:
        self.shapes: list[Mapping[str, Json]] = []
        self.silent = silent

    def render(self, body: Mapping[str, Json]) -> str | None:
        return None if self.silent else "".join(message["content"] for message in body["messages"])

    def settings_of(self, body: Mapping[str, Json]) -> Json:
        self.shapes.append(body)
        return {"temperature": body.get("temperature", 1.0)}


def asking(index: int, *words: str, **more: Json) -> Json:
    messages = [{"role": "user", "content": word} for word in words]
    return exchange(index, request={"messages": messages, "seed": index, "max_tokens": 9, "stream": True, **more})


def kept(tmp_path: Path, *exchanges: Json, server: Server | None = None) -> Path:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(record(ExchangeLog(exchanges, ()), server or Server())))
    return path


def test_every_prompt_comes_back_whole_and_is_kept_once(tmp_path: Path) -> None:
    path = kept(tmp_path, asking(0, "one", "two"), asking(1, "one", "two", "three"), asking(2, "one", "four"))
    assert [found.prompt for i in range(3) if isinstance(found := read(path, i), Recalled)] == [
        "onetwo",
        "onetwothree",
        "onefour",
    ]
    assert path.read_text().count("one") == 1


def test_settings_are_asked_once_for_each_shape_of_request(tmp_path: Path) -> None:
    server = Server()
    path = kept(tmp_path, asking(0, "a"), asking(1, "b"), asking(2, "c", temperature=0.0), server=server)
    assert len(server.shapes) == 2
    assert all(not {"messages", "seed", "max_tokens", "stream"} & set(shape) for shape in server.shapes)
    found = [read(path, i) for i in range(3)]
    assert [f.settings["temperature"] for f in found if isinstance(f, Recalled)] == [1.0, 1.0, 0.0]


def test_what_a_server_cannot_tell_is_said_so(tmp_path: Path) -> None:
    path = kept(tmp_path, asking(0, "a"), exchange(1, path="/v1/completions"))
    assert isinstance(read(path, 0), Recalled)
    assert "could not tell the prompt" in str(read(path, 1)) and "could not tell the prompt" in str(read(path, 2))
    silent = kept(tmp_path, asking(0, "a"), server=Server(silent=True))
    assert "could not tell the prompt" in str(read(silent, 0))
    assert "before prompts were kept" in str(read(tmp_path / "none.json", 0))
    (tmp_path / "bad.json").write_text("{}")
    assert "cannot be read" in str(read(tmp_path / "bad.json", 0))
