import tempfile
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab import checks
from agent_ab.config import Sandbox
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import CheckResult, CheckStatus, SandboxKind
from tests.small_task import CHECKS, small_task

LOOSE = Sandbox(kind=SandboxKind.NONE)
ONE_CHECK = """from agent_ab.judging import Candidate, check, expect, fail


@check("only", rule="A rule.")
def only(candidate: Candidate) -> None:
    {body}
"""


def judged(root: Path, body: str, driver: str = "def main(request):\n    return request\n") -> CheckResult:
    """Return the verdict of one check with `body`."""
    task = small_task(root, checks=ONE_CHECK.format(body=body), driver=driver, probes="")
    (result,) = checks.run(task, task.root / "solution", LOOSE)
    return result


def test_checks_come_first_then_probes_each_in_file_order(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    results = checks.run(task, task.root / "solution", LOOSE)
    assert [(r.id, r.scored, r.status) for r in results] == [
        ("zero", True, CheckStatus.PASS),
        ("number", True, CheckStatus.PASS),
        ("text", False, CheckStatus.PASS),
    ]
    assert results[1].rule == "Twice a number is the number plus itself."


def test_the_starting_code_fails_with_a_reason_and_evidence(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    results = checks.run(task, task.root / "fixture", LOOSE)
    assert [r.status for r in results] == [CheckStatus.PASS, CheckStatus.FAIL, CheckStatus.FAIL]
    assert results[1].reason == "double(2129) is 0; expected 4258"
    assert results[1].evidence[0] | {"last_words": ""} == {
        "call": 2129,
        "exit_code": 0,
        "last_words": "",
        "output_truncated": False,
        "reply": 0,
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('fail("not\\n   good")', "not good"),
        ('candidate.call({})["missing"]', "the judge could not read what came back: KeyError: 'missing'"),
        ("candidate.call(None) + 1", "the judge could not read what came back: TypeError"),
        ("candidate.call([])[0]", "the judge could not read what came back: IndexError"),
        ('int(candidate.call("x"))', "the judge could not read what came back: ValueError"),
        ("assert candidate.call(0)", "the judge could not read what came back: AssertionError"),
        ('candidate.database("none.db")', "the candidate left no file none.db"),
        ('fail("long " * 1000)', "long long"),
        ('fail(candidate.call("odd " + chr(0xD800) + chr(27)))', "odd \\ud800\\x1b"),
    ],
)
def test_a_judge_that_stumbles_is_a_failed_check(tmp_path: Path, body: str, reason: str) -> None:
    result = judged(tmp_path, body)
    assert result.status is CheckStatus.FAIL
    assert result.reason.startswith(reason)
    assert len(result.reason) <= checks.REASON_CHARS


def test_a_failed_call_leaves_its_last_words_as_evidence(tmp_path: Path) -> None:
    result = judged(tmp_path, "candidate.call(1)", "def main(request):\n    raise ValueError('sad')\n")
    assert result.reason == "no reply: the process ended with status 1 (ValueError: sad)"
    assert result.evidence[0]["last_words"] == "ValueError: sad"


def test_a_mistake_of_the_judge_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(NameError, match="no_such_name"):
        judged(tmp_path, "no_such_name()")


def test_a_bug_of_the_box_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        judged(tmp_path, "__import__('agent_ab.process').process.run([], env={}, timeout_s=1.0)")


def test_each_check_has_a_state_of_its_own(tmp_path: Path) -> None:
    driver = "import os\n\n\ndef main(request):\n    open(f'x{request}', 'w').close()\n    return len(os.listdir())\n"
    task = small_task(tmp_path, driver=driver, probes="")
    results = checks.run(task, task.root / "solution", LOOSE)
    assert [r.evidence[0]["reply"] for r in results] == [1, 1]


def test_the_clock_ticks_while_the_checks_run(tmp_path: Path) -> None:
    ticks: list[float] = []
    task = small_task(tmp_path)
    checks.run(task, task.root / "solution", LOOSE, tick=ticks.append)
    assert ticks == sorted(ticks) and ticks


def test_a_round_that_is_given_up_ends_its_calls_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    mark = f"here-{uuid.uuid4()}"
    driver = f"import time\n\n\ndef main(request):\n    open('{mark}', 'w').close()\n    time.sleep(600)\n"
    # Without the interruption, the test would last as long as the driver sleeps.
    task = replace(small_task(tmp_path, driver=driver), check_timeout_s=600.0)
    seen: list[Path] = []

    def interrupt(_elapsed_s: float) -> None:
        seen.extend(Path(tempfile.gettempdir()).glob(f"agent-ab-checks-*/*/state/{mark}"))
        if seen:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checks.run(task, task.root / "solution", LOOSE, tick=interrupt)
    assert not seen[0].parents[2].exists()
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_a_sandbox_that_cannot_start_is_broken_apparatus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_AB_BWRAP", str(tmp_path / "no-bwrap"))
    task = small_task(tmp_path)
    with pytest.raises(ApparatusError):
        checks.run(task, task.root / "solution", Sandbox())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_it\n", "checks.py does not load: No module named"),
        ("def broken(:\n", "checks.py does not load: "),
        ("@check('x', rule='y')\ndef f(c): ...\n", "checks.py does not load: name 'check'"),
        ("", "no function is decorated with @check"),
        (CHECKS.replace('"number"', '"zero"'), "two checks or probes have the id 'zero'"),
    ],
)
def test_a_judge_that_does_not_load_is_the_authors_mistake(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        checks.items(small_task(tmp_path, checks=text, probes=""))
    assert str(tmp_path) in str(caught.value)


def test_probes_may_use_what_checks_define_without_judging_it_twice(tmp_path: Path) -> None:
    text = (
        'from agent_ab.judging import probe\nfrom .checks import number, zero\n\nprobe("p", about="x")(number.judge)\n'
    )
    assert [item.id for item in checks.items(small_task(tmp_path, probes=text))] == ["zero", "number"]


def test_tasks_in_different_directories_keep_their_modules_apart(tmp_path: Path) -> None:
    first = small_task(tmp_path / "a")
    second = small_task(tmp_path / "b", checks=CHECKS.replace('"number"', '"figure"'))
    assert [item.id for item in checks.items(first)][1] == "number"
    assert [item.id for item in checks.items(second)][1] == "figure"
