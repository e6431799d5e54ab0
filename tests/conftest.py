"""Shared fixtures. What is under tests/live starts the real parts and must leave nothing running."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from agent_ab import sandbox, tasks
from agent_ab.config import ModelFile
from agent_ab.engine import engine as engines
from agent_ab.errors import ApparatusError
from agent_ab.model import Event, SandboxKind, Task
from agent_ab.models import models
from tests import recorded

ROOT = Path(__file__).parent.parent
OURS = ("llama-server", "mitmdump", "bwrap")
WITHOUT_A_BOX = {
    f"test_{name}.py"
    for name in ("bench_loop", "judge", "judge_binding", "judge_child", "memory", "models", "proxy", "server")
}
"""The live tests that need no sandbox."""

# `fixed` tries the same examples in every run; `make test-long` searches with new ones and prints how to repeat a fault.
anywhere = settings(database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", anywhere, derandomize=True)
settings.register_profile("search", anywhere, print_blob=True)
settings.load_profile("fixed")
# Hypothesis tries the constants of our modules that are loaded: that depends on which tests ran before.
providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/live as live, and skip what needs a box where there is none."""
    for item in items:
        if "live" in item.path.relative_to(ROOT).parts:
            item.add_marker(pytest.mark.live)
    boxed = [item for item in items if item.get_closest_marker("live") and item.path.name not in WITHOUT_A_BOX]
    if boxed and (reason := _no_box()):
        for item in boxed:
            item.add_marker(pytest.mark.skip(reason=f"NO SANDBOX, so pairs are not tested: {reason}"))


def _no_box() -> str:
    try:
        sandbox.require(SandboxKind.BWRAP)
    except ApparatusError as error:
        return str(error)
    return ""


def ignore(_event: Event) -> None:
    """Observe nothing."""


@pytest.fixture(autouse=True)
def nothing_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a live test that leaves a server, a proxy or a box behind, as its own child or as an orphan."""
    if request.node.get_closest_marker("live") is None:
        yield
        return
    before = set(psutil.pids())
    yield
    # A killed process may need a moment until the kernel has taken it away.
    deadline = time.monotonic() + 30
    while (left := _left_running(before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _left_running(before: set[int]) -> list[str]:
    found = []
    mine = {process.pid for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter(["name", "ppid", "status", "cmdline"]):
        facts = process.info
        if facts["status"] == psutil.STATUS_ZOMBIE or process.pid in before:
            continue
        words = " ".join(facts["cmdline"] or ())
        ours = facts["name"] in OURS or "mitmdump" in words
        if ours and (process.pid in mine or facts["ppid"] == 1):
            found.append(f"{process.pid} {facts['name']} {words[:80]}")
    return found


@pytest.fixture(scope="session")
def engine() -> engines.Engine:
    """Return the llama-server that `make test` has set up."""
    return engines.find("", ignore)


@pytest.fixture(scope="session")
def transfer_repair() -> Task:
    """Return the first built-in task."""
    return tasks.load("transfer-repair", ROOT / "tasks")


@pytest.fixture(scope="session")
def scripted(transfer_repair: Task) -> models.Model:
    """Return the scripted model that solves transfer-repair."""
    return models.resolve(ModelFile(source="scripted", script="solve"), transfer_repair, ignore)


@pytest.fixture(scope="session")
def smollm2(transfer_repair: Task) -> models.Model:
    """Return SmolLM2 with its fitted MTP block."""
    return models.resolve(ModelFile(source="smollm2-mtp"), transfer_repair, ignore)


@pytest.fixture(scope="session")
def recorded_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with runs.db and runs/ of the recorded suites."""
    return recorded.unpack(tmp_path_factory.mktemp("recorded"))
