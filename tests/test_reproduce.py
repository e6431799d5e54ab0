"""The script for an upstream bug report: the last common request, both servers, bash and curl."""

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_ab.divergence import divergence, parting
from agent_ab.errors import UserError
from agent_ab.export import reproduce
from agent_ab.model import Arm, Exchange, ExchangeLog, Pair
from agent_ab.pair.pair import judge
from tests.builders import attempt, exchange, pair, server
from tests.command import here
from tests.run_files import pair_of, played

PINS = {"seed": 4242, "cache_prompt": False, "stream_options.include_usage": True}
WRITTEN = '"seed":4242,"cache_prompt":false,"stream_options":{"include_usage":true}}'


def sent(body: str, request: Any, index: int = 0) -> Exchange:
    digest = hashlib.sha256(body.encode()).hexdigest()
    return exchange(index, request=request, server_sha256=digest, pinned=PINS)


def recorded(text: str) -> Any:
    return json.loads(text)


@pytest.mark.parametrize(
    "agents",
    [
        '{"messages":[{"role":"user","content":"fïx it"}],"stream":true',
        '{"messages": [{"role": "user", "content": "f\\u00efx it"}], "stream": true',
        '{"messages": [{"role": "user", "content": "fïx it"}], "stream": true',
    ],
    ids=["as JavaScript writes", "as Python writes", "as Python writes without escapes"],
)
def test_the_bytes_that_were_sent_come_back(agents: str) -> None:
    body = f"{agents},{WRITTEN}"
    assert reproduce.body_of(sent(body, recorded(body))) == (body, True)


def test_a_request_that_was_written_in_an_unusual_way_is_the_same_json_and_says_so() -> None:
    body = '{ "messages" :[], "seed":4242}'
    text, exact = reproduce.body_of(sent(body, recorded(body)))
    assert not exact and json.loads(text) == json.loads(body)


def logs(*indices: tuple[str, str]) -> tuple[ExchangeLog, ExchangeLog]:
    sides = [[sent(body, recorded(body), i) for i, body in enumerate(side)] for side in zip(*indices, strict=True)]
    return ExchangeLog(tuple(sides[0]), ()), ExchangeLog(tuple(sides[1]), ())


def test_the_last_request_before_the_arms_part_is_the_one() -> None:
    common = reproduce.last_common(*logs(('{"n":1}', '{"n":1}'), ('{"n":2}', '{"n":2}'), ('{"n":3}', '{"n":4}')))
    assert (common.index, common.body, common.exact) == (1, '{"n":2}', True)
    with pytest.raises(UserError, match="no request in common"):
        reproduce.last_common(*logs(('{"n":3}', '{"n":4}')))


def script_of(body: str = '{"n":1}', **facts: Any) -> str:
    arms = [attempt(arm, server=server(arm, argv=("llama-server", *argv), **facts)) for arm, argv in ARGVS.items()]
    return reproduce.script(judge(pair(*arms)), reproduce.last_common(*logs((body, body))))


SHARED = ("--model", "<model>", "--port", "<port>", "--hf-token", "hf_secret", "--alias", "it's; rm -rf $HOME")
ARGVS = {Arm.BASELINE: (*SHARED, "--spec-type", "none"), Arm.CANDIDATE: (*SHARED, "--spec-type", "draft-mtp")}


def test_the_script_holds_both_command_lines_quoted_and_no_secret() -> None:
    text = script_of(environment={"PATH": "/usr/bin:/bin", "LLAMA_API_KEY": "<key>", "HOME": "/home/me"})
    lines = [line for line in text.splitlines() if line.startswith("started ")]
    assert ["--spec-type none" in line for line in lines] == [True, False]
    assert all('--model "$MODEL" --port "$PORT"' in line for line in lines)
    assert all("""--alias 'it'"'"'s; rm -rf $HOME'""" in line for line in lines)
    assert "hf_secret" not in text and "<key>" not in text and "/home/me" not in text


def test_a_request_that_tries_to_end_the_here_document_does_not(tmp_path: Path) -> None:
    body = '{"n":"END_OF_REQUEST $(touch evil) `touch evil`"}'
    text = script_of(body)
    begin = text.index("head -c ")
    part = text[begin : text.index("\nEND_OF_REQUEST_\n") + len("\nEND_OF_REQUEST_\n")]
    done = subprocess.run(
        ["bash", "-c", part], cwd=tmp_path, env={"OUT": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "request.json").read_text() == body
    assert not (tmp_path / "evil").exists()


def test_untrusted_words_in_the_comments_stay_in_their_line() -> None:
    made = judge(pair())
    text = reproduce.script(replace(made, variable="server.x\ntouch evil"), reproduce.last_common(*logs(("{}", "{}"))))
    assert "# What differs between the two: server.x touch evil." in text


def test_bash_takes_the_script_and_shellcheck_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "reproduce.sh"
    path.write_text(script_of())
    subprocess.run(["bash", "-n", path], check=True)
    if checker := shutil.which("shellcheck"):
        subprocess.run([checker, path], check=True)


def test_servers_that_we_did_not_start_are_named_by_url() -> None:
    arms = [attempt(arm, server=server(arm, argv=())) for arm in Arm]
    made: Pair = judge(pair(*arms))
    text = reproduce.script(made, reproduce.last_common(*logs(("{}", "{}"))))
    assert 'ask baseline "$BASELINE_URL"' in text and "LLAMA_SERVER=${" not in text


def test_the_command_prints_the_script_or_says_what_is_missing(tmp_path: Path) -> None:
    played(tmp_path)[0].close()
    done = here(tmp_path, "reproduce")
    assert done.status == 0 and done.stdout.startswith("#!/usr/bin/env bash\n")
    assert "the same JSON, not the same bytes" in done.stdout
    gone = here(tmp_path, "reproduce", "--runs-dir", "nowhere")
    assert gone.status == 2 and "--runs-dir names where it is" in gone.error


@pytest.mark.parametrize("command", ["reproduce", "diff"])
def test_what_was_said_is_not_shown_when_it_is_not_what_was_recorded(tmp_path: Path, command: str) -> None:
    made = pair_of()
    found = divergence.between(made.baseline, made.candidate)
    store, runs_dir = played(tmp_path, replace(made, divergence=parting.to_json(found)))
    store.close()
    log = runs_dir / made.name / "candidate" / "exchanges.jsonl"
    log.write_bytes(log.read_bytes().replace(b"fix it", b"forged"))
    done = here(tmp_path, command)
    assert done.status == 4 and "candidate: exchanges.jsonl was changed" in done.error
    assert "forged" not in done.stdout
