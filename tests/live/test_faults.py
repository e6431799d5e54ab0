"""Mistakes and broken parts through the whole command line: one line, the right status, nothing left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent_ab.models.models import Model
from tests.command import ROOT, Done, agent_ab
from tests.fakes import wrap
from tests.small_suite import small_task


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the command a temporary directory of its own, and fail when anything stays in it."""
    # Short, because a unix socket's path is short.
    with tempfile.TemporaryDirectory(prefix="aab-") as root:
        Path(root).chmod(0o755)
        monkeypatch.setenv("TMPDIR", root)
        yield Path(root)
        left = [p.name for p in Path(root).iterdir() if not p.name.startswith("agent-ab-bwrap")]
        assert left == []


def profile(folder: Path, **changes: str) -> Path:
    text = (ROOT / "profiles" / "scripted-solve.toml").read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "changed.toml"
    path.write_text(text)
    return path


def file_profile(folder: Path, model: Path) -> Path:
    path = profile(folder)
    path.write_text(
        path.read_text().replace('source = "scripted"\nscript = "solve"', f'source = "file"\npath = "{model}"')
    )
    return path


def plain_profile(folder: Path) -> Path:
    """Return a profile without the flags that the fake server does not know."""
    return profile(folder, **{"n_min = 0\np_min = 0.0\n": ""})


def of_tiny(cwd: Path) -> tuple[str, ...]:
    """Return the arguments that name the smallest task."""
    if not (cwd / "tasks").exists():
        small_task(cwd)
    return ("--task", "tiny", "--tasks-dir", str(cwd / "tasks"))


def play(cwd: Path, chosen: Path, *words: str, **env: str) -> Done:
    return agent_ab(cwd, "pair", *of_tiny(cwd), "--profile", chosen, *words, env=env)


def test_a_missing_model_is_named_before_anything_starts(tmp_path: Path, scratch: Path) -> None:
    done = play(tmp_path, file_profile(tmp_path, tmp_path / "none.gguf"))
    assert done.status == 2 and "none.gguf" in done.error
    assert not (tmp_path / "runs").exists()


def test_a_truncated_model_is_named_before_anything_starts(tmp_path: Path, scratch: Path, scripted: Model) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(scripted.path.read_bytes()[:-100_000])
    done = play(tmp_path, file_profile(tmp_path, cut))
    assert done.status == 2 and "cut.gguf" in done.error and "truncated" in done.error


def test_a_model_without_an_mtp_block_is_refused_with_the_reason(tmp_path: Path, scratch: Path) -> None:
    from agent_ab.engine.engine import cache_dir
    from agent_ab.models import smollm2
    from tests.conftest import ignore

    done = play(tmp_path, file_profile(tmp_path, smollm2.source(cache_dir(), ignore)))
    assert done.status == 2 and "MTP" in done.error


def test_a_server_without_draft_mtp_is_refused(tmp_path: Path, scratch: Path) -> None:
    fake = wrap.llama_server(tmp_path / "old", "no-mtp")
    done = play(tmp_path, profile(tmp_path), AGENT_AB_LLAMA_SERVER=str(fake))
    assert done.status == 2 and "draft-mtp" in done.error


@pytest.mark.parametrize(
    ("fault", "said"),
    [("drafts-nothing", "wasnotapplied")],
)
def test_a_server_that_breaks_voids_the_pair(tmp_path: Path, scratch: Path, fault: str, said: str) -> None:
    fake = wrap.llama_server(tmp_path / "broken", fault)
    done = play(tmp_path, plain_profile(tmp_path), AGENT_AB_LLAMA_SERVER=str(fake))
    assert done.status == 4
    assert "VOID" in done.stdout and said in "".join(done.stdout.split())


def test_a_proxy_that_cannot_start_voids_the_pair_and_names_its_log(tmp_path: Path, scratch: Path) -> None:
    fake = wrap.program(tmp_path / "mitmdump", "echo 'ImportError: no module named addon' >&2; exit 1")
    done = play(tmp_path, profile(tmp_path), AGENT_AB_MITMDUMP=str(fake))
    assert done.status == 4
    assert "VOID" in done.stdout and "proxy" in done.stdout


def test_without_a_working_sandbox_nothing_is_played(tmp_path: Path, scratch: Path) -> None:
    fake = wrap.program(tmp_path / "bwrap", "echo 'No permissions to create new namespace' >&2; exit 1")
    done = play(tmp_path, profile(tmp_path), AGENT_AB_BWRAP=str(fake))
    assert done.status == 4 and "sandbox" in done.error
    assert not (tmp_path / "runs").exists()


def test_a_runs_directory_that_cannot_be_written_is_named(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = agent_ab(
        tmp_path,
        "pair",
        "--task",
        "transfer-repair",
        "--profile",
        profile(tmp_path),
        "--runs-dir",
        tmp_path / "file" / "runs",
    )
    assert done.status == 2 and "file/runs" in done.error


def test_an_unknown_profile_key_is_named(tmp_path: Path, scratch: Path) -> None:
    done = play(tmp_path, profile(tmp_path, context="contxt"))
    assert done.status == 2 and "'server.contxt'" in done.error and "context" in done.error


def test_tools_asked_of_a_template_without_tools_are_refused_with_the_remedy(
    tmp_path: Path, scratch: Path, smollm2: Model
) -> None:
    chosen = file_profile(tmp_path, smollm2.path)
    chosen.write_text(chosen.read_text().replace("context = 65536", "context = 8192"))
    done = play(tmp_path, chosen)
    assert done.status == 2 and 'agent.protocol = "json"' in done.error


def test_earlier_results_are_untouched_by_a_later_failure(tmp_path: Path, scratch: Path) -> None:
    first = play(tmp_path, profile(tmp_path), "--agent", "nop")
    assert first.status == 0
    before = agent_ab(tmp_path, "pairs", "--json").data
    fake = wrap.llama_server(tmp_path / "broken", "dies-loading")
    assert play(tmp_path, plain_profile(tmp_path), AGENT_AB_LLAMA_SERVER=str(fake)).status == 4
    after = agent_ab(tmp_path, "pairs", "--json").data
    assert after[: len(before)] == before and len(after) == 2 and after[1]["outcome"] == "VOID"


@pytest.mark.parametrize("moment", ["server     ...", "agent      ...", "checks"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_an_interrupt_at_any_step_leaves_no_process_and_no_temporary_directory(
    tmp_path: Path, scratch: Path, moment: str, signum: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "agent_ab", "pair", *of_tiny(tmp_path), "--profile", str(profile(tmp_path))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        children: list[psutil.Process] = []
        for line in running.stderr:
            if moment in line:
                children = psutil.Process(running.pid).children(recursive=True)
                running.send_signal(signum)
                break
        assert running.wait(timeout=180) == 130
        assert "interrupted" in running.stderr.read()
    deadline = time.monotonic() + 60
    while any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [c for c in children if c.is_running() and c.status() != psutil.STATUS_ZOMBIE]
