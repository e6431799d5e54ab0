"""Whatever breaks: the apparatus's faults make a pair VOID, the agent's are its arm's own result, and nothing is left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_ab import sandbox
from agent_ab.config import Sandbox
from agent_ab.divergence.reply_diff import CUT_WORDS
from agent_ab.model import Arm
from agent_ab.proxy import find_mitmdump
from tests import chaos
from tests.command import ROOT, Done, agent_ab
from tests.fakes import wrap
from tests.patience import cut_off
from tests.small_suite import small_suite

ASKS = """
import json, sys, urllib.error, urllib.request

def ask(text, **more):
    body = json.dumps({"model": "local", "messages": [{"role": "user", "content": text}], **more})
    request = urllib.request.Request(sys.argv[1] + "/chat/completions", body.encode(), {"Content-Type": "application/json"})
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return error.code
"""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the command a temporary directory of its own, and fail when a process or a file stays in it."""
    root = Path(f"/tmp/broken-{os.getpid()}-{abs(hash(tmp_path)) % 10**8}")
    root.mkdir(mode=0o755)
    monkeypatch.setenv("TMPDIR", str(root))
    try:
        yield root
        assert chaos.surviving(root) == []
        assert [path.name for path in root.iterdir()] == []
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def play(folder: Path, changes: dict[str, str] | None = None, *words: str, **env: str) -> Done:
    """Play one pair of the smallest task."""
    given = small_suite(folder, 1, changes)
    words = ("pair", "--task", "tiny", "--profile", str(given.profile), "--tasks-dir", str(folder / "tasks"), *words)
    return agent_ab(folder, *words, "--json", env=env)


def command(folder: Path, script: str, settings: str = "", *words: str, model: dict[str, str] | None = None) -> Done:
    """Play one pair whose agent is the Python program `script`; it finds the model's URL in its first argument."""
    (folder / "agent").mkdir(parents=True)
    (folder / "agent" / "agent.py").write_text(ASKS + script)
    there = folder / "agent" if "none" in words else Path("/opt/given")
    kind = f'''kind = "command"
command = ["python3", "{there}/agent.py", "{{base_url}}"]
{settings}
'''
    if "none" not in words:
        kind += f'mounts = {{ "/opt/given" = "{folder / "agent"}" }}\n'
    changes = {'kind = "builtin"\nprotocol = "tools"\n': kind, "time_limit_s = 120": "", **(model or {})}
    return play(folder, changes, *words)


def invalid(done: Done) -> str:
    """Return why a VOID pair's attempt is INVALID; its partner was not played, or was played before."""
    assert done.status == 4, done.stderr
    pair = done.data["pair"]
    assert pair["outcome"] == "VOID"
    reasons = [pair[arm.value]["invalid_reason"] for arm in Arm if pair[arm.value]["outcome"] == "INVALID"]
    (reason,) = [reason for reason in reasons if not reason.startswith("not played")]
    return str(reason)


def arms(done: Done) -> list[Any]:
    """Return both attempts of a pair that counts."""
    assert done.status == 0, done.stderr + done.stdout[-2000:]
    return [done.data["pair"][arm.value] for arm in Arm]


# --- the apparatus ---

PLAIN = {"n_min = 0\np_min = 0.0\n": ""}
STALLS = {"gpu_layers = 0": "gpu_layers = 0\nload_stall_s = 3.0"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dies-loading", "ended while loading"),
        ("hangs", "hangs in loading"),
        ("dies-in-canary", "ended during its canary"),
        ("dies-mid-stream", "ended while serving"),
        ("hangs-mid-stream", "hangs: with a request open"),
        ("hangs-before-logging", "hangs: with a request open"),
    ],
)
def test_a_server_that_does_not_serve_voids_the_pair(tmp_path: Path, scratch: Path, fault: str, said: str) -> None:
    fake = wrap.llama_server(tmp_path / "bin", fault)
    changes = PLAIN | STALLS if fault.startswith("hangs") else PLAIN
    assert said in invalid(play(tmp_path, changes, AGENT_AB_LLAMA_SERVER=str(fake)))


def test_a_proxy_that_dies_while_the_agent_works_voids_the_pair(tmp_path: Path, scratch: Path) -> None:
    real = find_mitmdump(os.environ)
    log = f"{tmp_path}/runs/*/*/*/exchanges.jsonl"
    script = f'"{real}" "$@" & p=$!; until grep -q \'"exchange"\' {log}; do sleep 0.05; done; kill -9 $p; exit 1'
    fake = wrap.program(tmp_path / "bin" / "mitmdump", script)
    assert "proxy" in invalid(play(tmp_path, AGENT_AB_MITMDUMP=str(fake)))


def test_an_exchange_log_that_lacks_its_end_voids_the_pair(tmp_path: Path, scratch: Path) -> None:
    real = find_mitmdump(os.environ)
    script = f"""trap '' TERM; "{real}" "$@" & wait $!
for log in {tmp_path}/runs/*/*/*/exchanges.jsonl; do sed -i '$d' $log; done"""
    fake = wrap.program(tmp_path / "bin" / "mitmdump", script)
    assert "no closing line" in invalid(play(tmp_path, AGENT_AB_MITMDUMP=str(fake)))


def test_a_sandbox_that_fails_in_the_middle_of_a_run_voids_the_pair(tmp_path: Path, scratch: Path) -> None:
    real = sandbox.describe(Sandbox())
    assert real["kind"] == "bwrap"
    from agent_ab import bubblewrap

    (found, *_) = bubblewrap.candidates("")
    script = f'case "$*" in *builtin_agent*) echo "bwrap: No space left for a namespace" >&2; exit 1;; esac; exec "{found}" "$@"'
    fake = wrap.program(scratch.parent / f"{scratch.name}-bin" / "bwrap", script)
    fake.parent.chmod(0o755)
    try:
        reason = invalid(play(tmp_path, AGENT_AB_BWRAP=str(fake)))
    finally:
        subprocess.run(["rm", "-rf", str(fake.parent)], check=True)
    assert "sandbox" in reason and "No space left for a namespace" in reason


# --- the agent's own ---


def test_what_the_agent_and_its_model_do_wrong_is_the_arms_own_result(tmp_path: Path, scratch: Path) -> None:
    script = """
assert ask("hello")["choices"]
assert ask("a word " * 200_000) == 400
assert ask("go on", max_tokens=16)["choices"][0]["finish_reason"] in ("length", "stop")
sys.exit(3)
"""
    for attempt in arms(command(tmp_path, script)):
        assert (attempt["outcome"], attempt["agent"]["end"], attempt["agent"]["exit_code"]) == ("FAIL", "crashed", 3)
        assert [e["status"] for e in attempt["log"]["exchanges"]] == [200, 400, 200]


EVIL = """
import os, signal, subprocess, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
assert ask("hello")["choices"]
for _ in range(3):
    # A session of its own, deaf, and with our stdout in its hands.
    subprocess.Popen(
        [sys.executable, "-c", "import signal, time\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\ntime.sleep(600)"],
        start_new_session=True,
    )
line = b"flood " * 10_000 + b"\\n"
while True:
    os.write(1, line)
"""


@pytest.mark.parametrize("kind", ["bwrap", pytest.param("none", marks=pytest.mark.long)])
def test_an_agent_that_will_not_end_is_ended_at_its_limit_with_all_that_it_started(
    tmp_path: Path, scratch: Path, kind: str
) -> None:
    def played(limit_s: float) -> Done:
        return command(tmp_path / f"{limit_s:g}", EVIL, f"time_limit_s = {limit_s:g}", "--sandbox", kind)

    # An agent that is cut off before it has asked anything voids the pair.
    for attempt in arms(cut_off(played, lambda done: done.status == 0, (3.0, 12.0, 48.0))):
        assert (attempt["outcome"], attempt["agent"]["end"]) == ("FAIL", "timeout")
        (log,) = [file for file in attempt["evidence"] if file["path"] == "agent.log"]
        assert log["size"] <= 50_000_000


def test_what_is_generated_after_the_limit_is_not_counted_and_the_server_is_told_to_stop(
    tmp_path: Path, scratch: Path
) -> None:
    model = {
        'source = "scripted"\nscript = "solve"': 'source = "smollm2-mtp"',
        "context = 65536": "context = 8192",
        "n_max = 3": "n_max = 1",
    }
    endless = 'ask("hello", ignore_eos=True, max_tokens=8000)'

    def played(limit_s: float) -> Done:
        return command(tmp_path / f"{limit_s:g}", endless, f"time_limit_s = {limit_s:g}", model=model)

    done = cut_off(played, lambda done: done.status == 0, (3.0, 12.0, 48.0))
    for attempt in arms(done):
        assert attempt["agent"]["end"] == "timeout"
        last = attempt["log"]["exchanges"][-1]
        assert last["error"] in CUT_WORDS and last["timings"] is None and last["usage"] is None
        finished = sum(e["timings"]["predicted_n"] for e in attempt["log"]["exchanges"] if e["timings"])
        assert done.data["metrics"][attempt["arm"]]["generated_tokens"] == finished
        (log,) = (
            path.read_text(errors="replace")
            for path in tmp_path.glob(f"*/{done.data['evidence']}/{attempt['arm']}/server.log")
        )
        assert "cancel" in log


# --- what runs in the box does not choose that its pair is VOID ---

RAW = """
import socket

def raw(text, leave=False):
    line = socket.create_connection(("127.0.0.1", int(sys.argv[1].split(":")[2].split("/")[0])))
    line.sendall(text.encode())
    return line if leave else line.recv(100)

def post(body, method="POST", path="/v1/chat/completions", **more):
    return raw(f"{method} {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}", **more)

assert ask("hello")["choices"]
"""
FORGED = "0.00.001.000 I srv  server_strea: conv_id=x (empty=0)"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('assert b" 403 " in post("{}", "post")', "the proxy refused 1 requests (first: post"),
        (f'for _ in range(3): ask("go on", grammar="root ::= (\\n{FORGED}\\n")', ""),
        ('ask("go on", cache_prompt=True); ask("go on", cache_prompt=True)', ""),
        (
            'body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 20000, "ignore_eos": True})\n'
            'line = post(body, leave=True)\nimport time\ntime.sleep(1)\nassert ask("beside") == 409',
            "requests because another one was open",
        ),
        ('ask("go on", grammar="root ::= \\\\x"); post("{}")', ""),
    ],
    ids=["method", "log", "cache", "beside", "grammar"],
)
def test_a_tool_cannot_turn_its_own_failure_into_a_void_pair(
    tmp_path: Path, scratch: Path, script: str, said: str
) -> None:
    done = command(tmp_path, RAW + script)
    for attempt in arms(done):
        assert attempt["outcome"] == "FAIL" and attempt["agent"]["end"] == "completed", attempt["agent"]
    assert done.data["pair"]["outcome"] == "BOTH_FAIL"
    assert said in "\n".join(done.data["pair"]["findings"])


# --- the disk ---

SMALL_DISK = """
mount -t tmpfs -o size=120k,mode=755 tmpfs "{place}" && cd "{place}" && {before} exec "$@"
"""


def on_a_small_disk(folder: Path, *words: object, before: str = "") -> Done:
    """Play a pair whose evidence lies on a disk of 120 kB, in a mount namespace of our own."""
    given = small_suite(folder, 1)
    place = folder / "disk"
    place.mkdir()
    inside = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "sh", "-c"]
    inside += [SMALL_DISK.format(place=place, before=before), "sh", sys.executable, "-m", "agent_ab"]
    words = ("pair", "--task", "tiny", "--profile", given.profile, "--tasks-dir", folder / "tasks", "--json", *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*inside, *map(str, words)], env=environment, capture_output=True, text=True, check=False)
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_disk_that_is_full_voids_the_pair_or_is_a_clear_error_and_the_database_is_whole(
    tmp_path: Path, scratch: Path
) -> None:
    done = on_a_small_disk(tmp_path, "--db", tmp_path / "runs.db")
    assert done.status == 4 and "No space left on device" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    listed = agent_ab(tmp_path, "pairs", "--json", "--db", tmp_path / "runs.db")
    assert [pair["outcome"] for pair in listed.data] in ([], ["VOID"])


def test_a_read_only_directory_is_named(tmp_path: Path, scratch: Path) -> None:
    done = on_a_small_disk(tmp_path, before="mount -o remount,ro . &&")
    assert done.status == 2 and "runs.db" in done.error and "Read-only file system" in done.error
