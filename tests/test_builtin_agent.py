"""The built-in agent's program, as a box runs it, against a scripted model."""

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_ab.agents.builtin import PROGRAM
from agent_ab.process import exists
from agent_ab.server import server
from tests.agent_program import BUG, DONE, calls, command, make_workspace, run_agent, write_settings
from tests.fakes.scripted_model import Answer, Hang, Http, Raw, Say, serving


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "ws")


def test_program_is_one_file_of_the_standard_library_and_of_python_3_9() -> None:
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {n.name for i in imports if isinstance(i, ast.Import) for n in i.names}
    names |= {i.module or "" for i in imports if isinstance(i, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def test_agent_reads_edits_tests_and_stops_when_no_tool_is_called(workspace: Path) -> None:
    ran = run_agent(
        workspace,
        [
            calls(("read", {"path": "calc.py"})),
            calls(("edit", {"path": "calc.py", "old": "a - b", "new": "a + b"})),
            calls(("bash", {"command": "python3 -m unittest"})),
            DONE,
        ],
    )
    assert ran.exit_code == 0
    assert (ran.end["reason"], ran.end["turns"], ran.end["exit"]) == ("completed", 4, 0)
    assert [event["ok"] for event in ran.named("tool")] == [True, True, True]
    assert ran.results[0] == BUG
    assert "Ran 1 test" in ran.results[2] and ran.results[2].endswith("[exit status 0]")
    assert (workspace / "calc.py").read_text() == BUG.replace("-", "+")


def test_request_streams_and_holds_budget_and_six_tools(workspace: Path) -> None:
    request = run_agent(workspace, [DONE], reasoning_effort="low").model.requests[0]
    names = [tool["function"]["name"] for tool in request["tools"]]
    assert sorted(names) == ["bash", "edit", "glob", "grep", "read", "write"]
    assert (request["stream"], request["max_tokens"], request["model"]) == (True, 512, "local")
    assert request["stream_options"] == {"include_usage": True} and request["reasoning_effort"] == "low"
    assert not {"seed", "temperature", "top_p", "top_k"} & set(request)


def test_a_prompt_of_the_settings_stands_in_place_of_the_agents_own_first_words(workspace: Path) -> None:
    plain, other = (run_agent(workspace, [DONE], prompt=p).model.requests[0]["messages"] for p in ("", "Be {brief}."))
    assert plain[0]["content"].startswith("You are a coding agent. You work alone in ")
    assert other[0]["content"].startswith("Be {brief}.\n\nFiles:\n") and other[1:] == plain[1:]
    assert other[0]["content"].partition("Files:")[2] == plain[0]["content"].partition("Files:")[2]


def test_first_request_depends_on_nothing_but_settings_and_workspace(tmp_path: Path, workspace: Path) -> None:
    for number in range(40):
        (workspace / f"f{number * 7 % 40}.txt").write_text(str(number))
    first = run_agent(workspace, [DONE])
    workspace.rename(tmp_path / "old")
    workspace.mkdir()
    for path in sorted((tmp_path / "old").iterdir(), reverse=True):
        path.rename(workspace / path.name)
    (workspace / "__pycache__").mkdir()
    (workspace / "__pycache__" / "calc.pyc").write_bytes(b"x")
    os.utime(workspace / "calc.py", (1, 1))
    again = run_agent(workspace, [DONE], env={"PATH": "/usr/bin:/bin", "LANG": "de_DE", "TZ": "Asia/Tokyo", "X": "1"})
    # The server's port is all that differs in the settings.
    assert first.model.bodies == again.model.bodies
    system = first.model.requests[0]["messages"][0]["content"]
    assert "\ncalc.py\nf0.txt\nf1.txt\nf10.txt\n" in system and ".git" not in system


def test_transcript_is_the_same_in_two_runs(workspace: Path) -> None:
    answers = [calls(("glob", {"pattern": "*"}), ("bash", {"command": "ls; exit 3"})), DONE]
    assert run_agent(workspace, answers).events == run_agent(workspace, answers).events


# ---- the conversation


def test_several_calls_of_one_turn_are_answered_in_order_under_ids_of_our_own(workspace: Path) -> None:
    ran = run_agent(workspace, [calls(("read", {"path": "calc.py"}), ("read", {"path": "nope"})), DONE])
    _, _, said, one, two = ran.model.requests[1]["messages"]
    assert [call["id"] for call in said["tool_calls"]] == ["call_1_1", "call_1_2"]
    assert [(m["role"], m["tool_call_id"]) for m in (one, two)] == [("tool", "call_1_1"), ("tool", "call_1_2")]
    assert (one["content"], two["content"]) == (BUG, "error: No such file or directory")


def test_reasoning_goes_back_to_the_server(workspace: Path) -> None:
    thought = Say("Let me see.", calls=[("glob", '{"pattern": "*.py"}')], reasoning="The bug is in calc.")
    said = run_agent(workspace, [thought, DONE]).model.requests[1]["messages"][2]
    assert (said["content"], said["reasoning_content"]) == ("Let me see.", "The bug is in calc.")


MALFORMED = [
    ("read", '{"path": "calc.py"', "error: the arguments are not a JSON object"),
    ("read", "[1]", "error: the arguments are not a JSON object"),
    ("read", "[" * 3000, "error: the arguments are not a JSON object"),
    ("fly", "{}", "error: there is no tool 'fly'; there are "),
    ("__init__", "{}", "error: there is no tool '__init__'"),
    ("read", "", "error: path is missing"),
    ("read", '{"path": 7}', "error: path must be a string"),
    ("read", '{"path": "calc.py", "limit": true}', "error: limit must be a whole number"),
    ("read", '{"path": "a\\u0000b"}', "error: "),
    ("read", '{"path": "\\ud800"}', "error: "),
]


def test_malformed_calls_are_told_to_the_model_and_the_run_goes_on(workspace: Path) -> None:
    ran = run_agent(workspace, [Say(calls=[(name, arguments) for name, arguments, _ in MALFORMED]), DONE])
    assert (ran.end["reason"], ran.end["counts"]) == ("completed", {"malformed": 5})
    told = [expected for _, _, expected in MALFORMED]
    assert [answer[: len(start)] for answer, start in zip(ran.results, told, strict=True)] == told
    # A template that parses arguments would fail in every later turn.
    for call in ran.model.requests[1]["messages"][2]["tool_calls"]:
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_turn_limit_ends_a_run_that_never_stops_calling(workspace: Path) -> None:
    ran = run_agent(workspace, [calls(("read", {"path": f"f{n}"})) for n in range(5)], max_turns=3)
    assert (ran.exit_code, ran.end["reason"], len(ran.model.bodies)) == (0, "turn-limit", 3)


def test_equal_turns_with_equal_results_end_as_no_progress(workspace: Path) -> None:
    ran = run_agent(workspace, [calls(("read", {"path": "calc.py"}))] * 9, repeats=3)
    assert (ran.exit_code, ran.end["reason"], ran.end["turns"]) == (4, "no-progress", 3)


def test_reply_cut_by_the_budget_is_continued_once_and_then_ends_the_run(workspace: Path) -> None:
    cut = Say("I will now", finish="length", prompt_tokens=100, completion_tokens=512)
    ran = run_agent(workspace, [cut, cut, DONE])
    assert (ran.exit_code, ran.end["reason"], ran.end["counts"]) == (0, "budget", {"budget_stops": 2})
    assert [m["role"] for m in ran.model.requests[1]["messages"]] == ["system", "user", "assistant", "user"]


def test_reply_cut_in_a_tool_call_counts_as_cut(workspace: Path) -> None:
    cut = Say(calls=[("read", '{"path": "ca')], finish="length")
    ran = run_agent(workspace, [cut, calls(("read", {"path": "calc.py"})), cut, DONE])
    assert (ran.end["reason"], ran.end["counts"]["budget_stops"]) == ("completed", 2)
    assert ran.results == [BUG]


def test_empty_replies_are_not_taken_for_success(workspace: Path) -> None:
    ran = run_agent(workspace, [Say("", reasoning="Hm."), Say("")])
    assert (ran.exit_code, ran.end["reason"], ran.end["counts"]) == (4, "no-progress", {"empty_replies": 2})


def test_old_tool_results_are_shortened_when_the_context_runs_short(workspace: Path) -> None:
    (workspace / "long.txt").write_text("0123456789\n" * 250)
    reads = [calls(("read", {"path": "long.txt", "offset": n})) for n in range(1, 8)]
    ran = run_agent(workspace, [*reads, DONE], context=4096)
    first, last = ran.model.requests[2]["messages"], ran.model.requests[-1]["messages"]
    assert "characters left out" in last[3]["content"] and len(last[3]["content"]) < 400
    assert last[-1]["content"] == run_agent(workspace, [reads[-1], DONE], context=4096).results[0]
    assert first[:2] == last[:2] and [m["role"] for m in last] == ["system", "user", *["assistant", "tool"] * 7]
    assert ran.named("shortened") and len(ran.model.bodies[-1]) / 3 + 512 < 4096


def test_reply_that_fills_the_context_is_not_called_a_budget_stop(workspace: Path) -> None:
    full = Say("I will", finish="length", prompt_tokens=4000, completion_tokens=96)
    ran = run_agent(workspace, [full], context=4096)
    assert (ran.exit_code, ran.end["reason"]) == (4, "context-full")


# ---- a server that fails


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Http(500, "output that does not match the expected peg-native format"), "peg-native"),
        (Http(503, "Loading model", "unavailable_error"), "Loading model"),
        (Say("Hello, this is long", error_after=2), "Compute error."),
        (Say("Hello, this is long", cut_after=2), "the connection broke: IncompleteRead"),
        (Raw(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n'), "ended before"),
        (Raw(b"data: {nonsense\n\n"), "is no JSON"),
        (Raw(b"data: [1]\n\n"), "another shape"),
        (Raw(b'data: {"choices": [{"delta": {"tool_calls": [{"index": 7}]}}]}\n\n'), "another shape"),
        (Raw(b'error: {"code": 500, "message": "old style"}\n\n'), "old style"),
        (Raw(b"<html>busy</html>"), "ended before"),
    ],
)
def test_failed_request_is_sent_again_byte_for_byte(workspace: Path, fault: Answer, told: str) -> None:
    ran = run_agent(workspace, [fault, fault, DONE])
    assert (ran.exit_code, ran.end["reason"], ran.end["counts"]) == (0, "completed", {"retries": 2})
    assert len(set(ran.model.bodies)) == 1 and len(ran.model.bodies) == 3
    assert all(told in event["message"] and event["again"] for event in ran.named("error"))


def test_server_that_keeps_failing_ends_the_run(workspace: Path) -> None:
    ran = run_agent(workspace, [Http(500, "broken")] * 9)
    assert (ran.exit_code, ran.end["reason"], ran.end["detail"]) == (3, "server-error", "broken")
    assert len(ran.model.bodies) == 3 and [e["again"] for e in ran.named("error")] == [True, True, False]


def test_refused_request_is_not_repeated(workspace: Path) -> None:
    ran = run_agent(workspace, [Http(409, "another first request"), DONE])
    assert (ran.exit_code, ran.end["reason"], len(ran.model.bodies)) == (3, "server-error", 1)


def test_prompt_beyond_the_context_is_an_end_of_its_own(workspace: Path) -> None:
    ran = run_agent(workspace, [Http(400, "request exceeds", "exceed_context_size_error")])
    assert (ran.exit_code, ran.end["reason"], len(ran.model.bodies)) == (4, "context-full", 1)


def test_agent_waits_for_a_server_that_is_not_there_yet(workspace: Path, tmp_path: Path) -> None:
    port = server.free_port()
    settings = write_settings(tmp_path / "s.json", workspace, f"http://127.0.0.1:{port}/v1")
    with subprocess.Popen(command(settings), stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        begun = [agent.stdout.readline() for _ in range(2)]
        with serving([DONE], port=port):
            events = [json.loads(line) for line in [*begun, *agent.stdout]]
    assert [event["event"] for event in events] == ["start", "request", "reply", "end"]
    assert events[-1]["reason"] == "completed"


def test_server_that_never_comes_ends_the_run(workspace: Path, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.free_port()}/v1"
    settings = write_settings(tmp_path / "s.json", workspace, url, connect_s=0.05, retries=0)
    done = subprocess.run(command(settings), capture_output=True, check=False)
    end = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, end["reason"]) == (3, "server-error") and "Connection refused" in end["detail"]


def test_sigterm_ends_the_run_and_its_command(workspace: Path, tmp_path: Path) -> None:
    line, deadline = "setsid sleep 600 & echo $! > pid; sleep 600", time.monotonic() + 60
    with serving([calls(("bash", {"command": line}))]) as model:
        settings = write_settings(tmp_path / "s.json", workspace, model.url)
        with subprocess.Popen(command(settings), stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            while not (workspace / "pid").exists() or not (workspace / "pid").read_text().strip():
                assert agent.poll() is None
                time.sleep(0.01)
            agent.send_signal(signal.SIGTERM)
            events = [json.loads(event) for event in agent.stdout]
    assert (agent.returncode, events[-1]["reason"]) == (4, "stopped")
    pid = (workspace / "pid").read_text().strip()
    while exists(int(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sigterm_ends_a_run_that_waits_for_the_model(workspace: Path, tmp_path: Path) -> None:
    with serving([Hang()]) as model:
        settings = write_settings(tmp_path / "s.json", workspace, model.url)
        with subprocess.Popen(command(settings), stdout=subprocess.PIPE) as agent:
            assert model.asked.wait(30) and agent.stdout is not None
            agent.send_signal(signal.SIGTERM)
            assert json.loads(agent.stdout.read().splitlines()[-1])["reason"] == "stopped"


def test_slow_stream_is_waited_for(workspace: Path) -> None:
    assert run_agent(workspace, [Say("It took a while.", pause_s=0.02)]).end["reason"] == "completed"
