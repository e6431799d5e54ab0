"""What a pair costs whose agent leaves as much as it can: memory of the orchestrator, and what was flagged.

    python -m benchmarks.large

Its agent prints 60 MB, writes 200,000 small files and 200 MB of text into the workspace, and asks the model twice.
Real parts, in a box.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil

from tests.command import ROOT
from tests.small_suite import small_suite

AGENT = """
import json, os, sys, urllib.request

def ask(messages):
    body = json.dumps({"model": "local", "max_tokens": 16, "messages": messages})
    request = urllib.request.Request(sys.argv[1] + "/chat/completions", body.encode(), {"Content-Type": "application/json"})
    json.load(urllib.request.urlopen(request))

said = []
for turn in range(2):
    said += [{"role": "user", "content": f"turn {turn} " + "word " * 200}, {"role": "assistant", "content": "yes"}]
    ask([*said, {"role": "user", "content": "go on"}])
for _ in range(600):
    os.write(1, b"output " * 15_000)
for folder in range(200):
    os.makedirs(f"many/{folder}")
    for file in range(1000):
        open(f"many/{folder}/{file}.txt", "w").close()
for file in range(10):
    with open(f"large-{file}.txt", "w") as sink:
        for line in range(500_000):
            sink.write(f"line {line} of large file number {file}\\\\n")
"""
MIB = 1 << 20


def main() -> int:
    """Play the pair and print the figures; return its exit status."""
    with tempfile.TemporaryDirectory(prefix="large-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "agent").mkdir()
        (folder / "agent" / "agent.py").write_text(AGENT)
        kind = f'''kind = "command"
command = ["python3", "/opt/given/agent.py", "{{base_url}}"]
mounts = {{ "/opt/given" = "{folder / "agent"}" }}
'''
        given = small_suite(
            folder, 1, {'kind = "builtin"\nprotocol = "tools"\n': kind, "time_limit_s = 120": "time_limit_s = 900"}
        )
        words = ["pair", "--task", "tiny", "--profile", given.profile, "--tasks-dir", folder / "tasks", "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": name}
        argv = [sys.executable, "-m", "agent_ab", *map(str, words)]
        with subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as running:
            greatest = [0]
            ended = threading.Event()

            def watch() -> None:
                while not ended.wait(0.1):
                    try:
                        greatest[0] = max(greatest[0], psutil.Process(running.pid).memory_info().rss)
                    except psutil.NoSuchProcess:
                        return

            watcher = threading.Thread(target=watch)
            watcher.start()
            assert running.stdout is not None
            data = json.loads(running.stdout.read())
            ended.set()
            watcher.join()
    pair = data["pair"]
    sys.stdout.write(f"outcome {pair['outcome']}, orchestrator {greatest[0] / MIB:.0f} MiB at most\n")
    for finding in pair["findings"]:
        sys.stdout.write(f"finding: {finding}\n")
    for arm in ("baseline", "candidate"):
        attempt = pair[arm]
        sizes = {file["path"]: file["size"] for file in attempt["evidence"]}
        sys.stdout.write(f"{arm}: {attempt['duration_s']:.0f} s, evidence {sizes}\n")
        for flag in (attempt["patch"] or {}).get("flags", ()):
            sys.stdout.write(f"{arm}: {flag}\n")
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
