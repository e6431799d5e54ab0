"""Agents that are any command: one of a few lines in every run, mini-swe-agent when it is asked for (it is 700 MB)."""

import os
import sys
from pathlib import Path

import pytest

from agent_ab import process, sandbox
from agent_ab.engine.engine import cache_dir
from agent_ab.files import locked
from tests.command import ROOT, agent_ab

ASKED = "AGENT_AB_LIVE_MINI_SWE"
MINI_SWE = "mini-swe-agent==2.4.6"
LITTLE = """
import json, pathlib, sys, urllib.request
url, model, prompt = sys.argv[1:]
body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
headers = {"Content-Type": "application/json"}
request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), headers)
said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
pathlib.Path("said.txt").write_text(said)
print("wrote", len(said), "characters")
"""


@pytest.fixture(scope="module")
def mini_swe() -> Path:
    """Return mini-swe-agent for the Python of the box, installed once into the cache."""
    if not os.environ.get(ASKED):
        pytest.skip(f"mini-swe-agent is not tested: `make live-mini-swe` installs it (700 MB) and sets {ASKED}=1")
    folder = cache_dir() / "agents" / MINI_SWE.replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock"), "installs mini-swe-agent", lambda _: None):
        if not folder.is_dir():
            staging = folder.with_name(f"{folder.name}.part")
            pip = [sys.executable, "-m", "pip", "--python", sandbox.python(), "install", "--quiet"]
            argv = [*pip, "--disable-pip-version-check", "--target", str(staging), "--upgrade", MINI_SWE]
            done = process.run(argv, env=os.environ, timeout_s=3600)
            assert done.exit_code == 0, done.stderr.decode()
            staging.rename(folder)
    return folder


def with_command(cwd: Path, script: str, settings: str) -> Path:
    """Write a profile whose agent is the Python program `script`, mounted into the box, with further `settings`."""
    (cwd / "agent").mkdir()
    (cwd / "agent" / "little.py").write_text(script)
    words = f'''
kind = "command"
mounts = {{ "/opt/little" = "{cwd / "agent"}" }}
{settings}
'''
    profile = (ROOT / "profiles" / "scripted-solve.toml").read_text()
    profile = profile.replace('kind = "builtin"', words).replace('protocol = "tools"', "").replace('"solve"', '"clock"')
    (cwd / "little.toml").write_text(profile)
    return cwd / "little.toml"


def test_an_agent_of_a_few_lines_plays_a_pair(tmp_path: Path) -> None:
    argv = '["python3", "/opt/little/little.py", "{base_url}", "{model}", "{prompt}"]'
    profile = with_command(tmp_path, LITTLE, f"command = {argv}")
    done = agent_ab(tmp_path, "pair", "--task", "transfer-repair", "--profile", profile, "--json")
    assert done.status == 0, done.stderr
    pair = done.data["pair"]
    assert all(line["ok"] for line in pair["proof"])
    for arm in ("baseline", "candidate"):
        assert pair[arm]["agent"]["exit_code"] == 0
        assert pair[arm]["agent"]["note"].startswith("ended with status 0; its last lines: wrote ")
        assert pair[arm]["patch"]["files"] == ["said.txt"]
        assert len(pair[arm]["log"]["exchanges"]) == 1
    assert pair["baseline"]["world"] == pair["candidate"]["world"]


def test_an_agent_that_never_asks_is_a_broken_apparatus_and_its_last_words_are_told(tmp_path: Path) -> None:
    profile = with_command(
        tmp_path,
        "import time\nprint('looking for a licence server', flush=True)\ntime.sleep(600)",
        'command = ["python3", "/opt/little/little.py", "{prompt}"]\nstartup_limit_s = 1',
    )
    done = agent_ab(tmp_path, "pair", "--task", "transfer-repair", "--profile", profile, "--json")
    assert done.status == 4, done.stderr
    pair = done.data["pair"]
    assert (pair["outcome"], pair["baseline"]["outcome"]) == ("VOID", "INVALID")
    assert "asked the model nothing within 1 s" in pair["baseline"]["invalid_reason"]
    assert "looking for a licence server" in pair["baseline"]["invalid_reason"]


def test_mini_swe_agent_solves_the_task_in_both_arms(tmp_path: Path, mini_swe: Path) -> None:
    profile = (ROOT / "profiles" / "scripted-mini-swe.toml").read_text()
    assert f'"~/.cache/agent-ab/agents/{mini_swe.name}"' in profile
    (tmp_path / "mini.toml").write_text(profile.replace(f"~/.cache/agent-ab/agents/{mini_swe.name}", str(mini_swe)))
    done = agent_ab(tmp_path, "pair", "--task", "transfer-repair", "--profile", "mini.toml", "--json", timeout_s=600)
    assert done.status == 0, done.stderr
    pair = done.data["pair"]
    assert pair["outcome"] == "BOTH_PASS" and all(line["ok"] for line in pair["proof"])
    for arm in ("baseline", "candidate"):
        assert sum(c["scored"] and c["status"] == "pass" for c in pair[arm]["checks"]) == 10
        assert [e["streamed"] for e in pair[arm]["log"]["exchanges"]] == [False] * 7
