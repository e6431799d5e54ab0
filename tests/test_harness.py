import json
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parent.parent / "agent_ab" / "box" / "harness.py"


def answer(directory: Path, body: str, **files: str) -> "subprocess.CompletedProcess[str]":
    """Let the harness ask a driver with `body` in its `main`; `files` are modules of the candidate."""
    (directory / "driver.py").write_text("def main(request):\n" + "".join(f"    {line}\n" for line in body.split("\n")))
    (directory / "code").mkdir()
    for name, text in files.items():
        (directory / "code" / f"{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-I", "-B", HARNESS, directory / "driver.py", directory / "code"],
        input=json.dumps({"token": "T", "request": [1, "é"]}),
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
        timeout=30,
    )


def test_the_reply_is_one_line_behind_the_token(tmp_path: Path) -> None:
    done = answer(tmp_path, "return {'got': request, 'none': None, 'float': 0.5, 'yes': True}")
    assert (done.returncode, done.stdout) == (
        0,
        'T {"got": [1, "\\u00e9"], "none": null, "float": 0.5, "yes": true}\n',
    )


def test_what_the_candidate_prints_stays_out_of_the_reply(tmp_path: Path) -> None:
    done = answer(tmp_path, "import app, os\nos.write(1, b'raw\\n')\nreturn 1", app="print('T 2')\n")
    assert done.stdout == "T 1\n"
    assert set(done.stderr.split("\n")) == {"T 2", "raw", ""} or "raw" in done.stderr


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("(1, 2)", "tuple"),
        ("[{'a': type('Same', (int,), {'__eq__': lambda s, o: True})(1)}]", "reply[0].a is of type Same"),
        ("{1: 2}", "a key of type int"),
        ("b'x'", "bytes"),
        ("float('nan')", "not JSON compliant"),
        ("float('inf')", "not JSON compliant"),
        ("object()", "object"),
        ("type('Text', (str,), {})('x')", "Text"),
    ],
)
def test_a_reply_of_other_than_plain_types_is_no_reply(tmp_path: Path, reply: str, named: str) -> None:
    done = answer(tmp_path, f"return {reply}")
    assert (done.returncode, done.stdout) == (1, "")
    assert named in done.stderr


@pytest.mark.parametrize(
    ("code", "status"),
    [("import sys; sys.exit(0)", 1), ("import os; os._exit(0)", 0), ("raise KeyboardInterrupt", 1), ("1 +", 1)],
)
def test_a_candidate_that_ends_the_process_gives_no_reply(tmp_path: Path, code: str, status: int) -> None:
    done = answer(tmp_path, "import app\nreturn 1", app=code)
    assert (done.returncode, done.stdout) == (status, "")


def test_what_the_candidate_left_for_later_does_not_run(tmp_path: Path) -> None:
    code = (
        "import atexit, threading, time\n"
        "atexit.register(lambda: open('late', 'w'))\n"
        "threading.Thread(target=lambda: time.sleep(600)).start()\n"
    )
    done = answer(tmp_path, "import app\nreturn 1", app=code)
    assert (done.returncode, done.stdout) == (0, "T 1\n")
    assert not (tmp_path / "late").exists()


def test_swapped_functions_do_not_reach_the_harness(tmp_path: Path) -> None:
    code = "import json, os\njson.dumps = lambda *a, **k: '2'\nos.write = lambda *a: 0\nos._exit = lambda *a: None\n"
    assert answer(tmp_path, "import app\nreturn 1", app=code).stdout == "T 1\n"


def test_the_candidates_modules_never_replace_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit")
    done = answer(tmp_path, "import json, app\nreturn [json.loads('1'), app.x]", json="raise SystemExit", app="x = 2")
    assert done.stdout == "T [1, 2]\n"


def test_standard_input_is_empty_for_the_candidate(tmp_path: Path) -> None:
    assert answer(tmp_path, "import sys\nreturn sys.stdin.read()").stdout == 'T ""\n'
