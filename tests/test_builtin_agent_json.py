"""The built-in agent's `json` protocol: one action a turn, for models whose template has no tools."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.agent_program import BUG, DONE, Json, make_workspace, run_agent
from tests.fakes.scripted_model import Answer, Say


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "ws")


def act(**action: str) -> Say:
    return Say(json.dumps(action))


def offered(request: Json) -> dict[str, Json]:
    schema = request["response_format"]["json_schema"]["schema"]
    return {action["properties"]["tool"]["const"]: action["properties"] for action in schema["anyOf"]}


def run_json(workspace: Path, answers: list[Answer], **changes: Json) -> list[Json]:
    ran = run_agent(workspace, [*answers, DONE], **{"protocol": "json", "max_turns": len(answers), **changes})
    assert not ran.named("error")
    return ran.model.requests


def test_json_actions_read_edit_test_and_finish(workspace: Path) -> None:
    answers = [
        act(tool="read", path="calc.py"),
        act(tool="edit", path="calc.py", old="    return a - b", new="    return a + b"),
        act(tool="bash", command="python3 -m unittest"),
        act(tool="done", summary="It adds."),
    ]
    ran = run_agent(workspace, answers, protocol="json")
    assert (ran.exit_code, ran.end["reason"], ran.end["turns"]) == (0, "completed", 4)
    assert [event["name"] for event in ran.named("tool")] == ["read", "edit", "bash"]
    assert [m["role"] for m in ran.model.requests[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert (workspace / "calc.py").read_text() == BUG.replace("-", "+")


def test_narrow_schema_offers_what_makes_sense_now(workspace: Path) -> None:
    requests = run_json(
        workspace,
        [
            act(tool="read", path="calc.py"),
            act(tool="edit", path="calc.py", old="    return a - b", new="    return b"),
            act(tool="bash", command="python3 -m unittest"),
            act(tool="read", path="calc.py"),
            act(tool="read", path="test_calc.py"),
            DONE,
        ],
    )
    first, read, edited, tested, _, tired = map(offered, requests)
    assert sorted(first) == ["bash", "read"] and first["read"]["path"] == {"enum": ["calc.py", "test_calc.py"]}
    assert sorted(read) == ["bash", "edit", "read"] and read["read"]["path"] == {"enum": ["test_calc.py"]}
    assert read["edit"]["path"] == {"const": "calc.py"}
    assert read["edit"]["old"] == {"enum": ["def add(a, b):", "    return a - b"]}
    assert sorted(edited) == ["bash", "read"] and edited["read"] == first["read"]
    assert sorted(tested) == ["done", "read"]
    assert sorted(tired) == ["done", "edit"]


def test_narrow_schema_never_runs_dry(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = act(tool="bash", command="ls")
    requests = run_json(tmp_path / "empty", [command, command, command])
    assert [sorted(offered(request)) for request in requests] == [["bash"]] * 3


def test_foreign_bytes_in_names_and_lines_do_not_reach_the_server(workspace: Path) -> None:
    (workspace / os.fsdecode(b"caf\xe9.py")).write_text("x\n")
    (workspace / "latin.py").write_bytes(b"first\nb = 'caf\xe9'\n")
    requests = run_json(workspace, [act(tool="read", path="latin.py"), DONE])
    assert offered(requests[1])["edit"]["old"] == {"enum": ["first"]}
    assert "\\udc" not in json.dumps(requests) and "caf\ufffd.py" in requests[0]["messages"][0]["content"]
    assert offered(requests[0])["read"]["path"] == {"enum": ["calc.py", "latin.py", "test_calc.py"]}


def test_strings_of_the_schema_fit_the_response_budget(workspace: Path) -> None:
    for budget, length in [(64, 16), (120, 120), (384, 200)]:
        requests = run_json(workspace, [act(tool="read", path="calc.py"), DONE], max_tokens=budget)
        assert offered(requests[1])["edit"]["new"]["maxLength"] == length


def test_narrow_commands_are_programs_that_exist(workspace: Path) -> None:
    pattern = offered(run_json(workspace, [DONE])[0])["bash"]["command"]["pattern"]
    for command in (
        "python3 -m unittest",
        "python3 -m unittest discover -s tests -t .",
        "cat a/b.py",
        "ls",
        "git diff",
    ):
        assert re.search(pattern, command)
    for command in ("curl http://x", "python3 -m unittest -e x", 'cat "x"', "ls\nls", "rm -r ."):
        assert not re.search(pattern, command)


def test_large_budget_gets_every_tool_with_free_strings(workspace: Path) -> None:
    request = run_json(workspace, [DONE], max_tokens=8192)[0]
    assert sorted(offered(request)) == ["bash", "done", "edit", "glob", "grep", "read", "write"]
    assert "maxLength" not in json.dumps(request)


def test_answer_that_is_no_action_is_told_so_and_counted(workspace: Path) -> None:
    ran = run_agent(workspace, [Say("I think so."), act(tool="done", summary="")], protocol="json")
    assert (ran.end["reason"], ran.end["counts"]["malformed"]) == ("completed", 1)
    assert ran.model.requests[1]["messages"][-1]["content"].startswith("error: there is no tool ''")
