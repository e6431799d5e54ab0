"""What a build needs, what decides it, and how its progress is told."""

import os
import time
from pathlib import Path

import pytest

from agent_ab.engine import build_steps
from agent_ab.engine.build_steps import Recipe, Shop
from agent_ab.errors import UserError
from agent_ab.model import Event
from tests.fakes import wrap

TOOLS = ("sh", "cat", "setpriv")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only directory on PATH; it holds a shell and whatever a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        for place in ("/usr/bin", "/bin"):
            if (Path(place) / tool).exists() and not (folder / tool).exists():
                (folder / tool).symlink_to(Path(place) / tool)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "no-cuda"))
    for name in ("CXX", "CMAKE_GENERATOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def shop(tmp_path: Path, heard: list[Event]) -> Shop:
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    return Shop(tmp_path, tmp_path / "build.log", heard.append, time.monotonic(), descriptor)


def test_a_machine_with_nvcc_and_a_gpu_builds_with_cuda_for_that_gpu(machine: Path) -> None:
    wrap.program(machine / "nvcc", "exit 0")
    wrap.program(machine / "nvidia-smi", "echo 9.0; echo 8.6; echo 8.6")
    recipe = build_steps.plan()
    assert recipe.gpus == ("8.6", "9.0") and "-DGGML_CUDA=ON" in recipe.flags
    assert f"-DCMAKE_CUDA_COMPILER={machine / 'nvcc'}" in recipe.flags and "-cuda-" in recipe.name
    assert build_steps.kind(recipe) == "with CUDA for compute capability 8.6, 9.0"


@pytest.mark.parametrize("answer", ["exit 9", "echo 'No devices were found'; exit 6", "echo '[N/A]'"])
def test_nvcc_without_a_gpu_that_answers_builds_for_the_cpu_and_says_so(machine: Path, answer: str) -> None:
    wrap.program(machine / "nvcc", "exit 0")
    wrap.program(machine / "nvidia-smi", answer)
    recipe = build_steps.plan()
    assert recipe.gpus == () and not any("CUDA" in flag for flag in recipe.flags)
    assert "no NVIDIA GPU answers" in build_steps.kind(recipe)


def test_a_gpu_without_nvcc_builds_for_the_cpu_and_says_so(machine: Path) -> None:
    wrap.program(machine / "nvidia-smi", "echo 8.6")
    assert "no nvcc" in build_steps.kind(build_steps.plan())


def test_a_plain_machine_builds_for_the_cpu(machine: Path) -> None:
    assert build_steps.kind(build_steps.plan()) == "for the CPU" and "-cpu-" in build_steps.plan().name


def test_the_name_changes_with_whatever_makes_a_build_unusable_elsewhere() -> None:
    one = Recipe("1", ("-DA",), ("x86_64", "avx2"), ())
    others = [
        Recipe("2", ("-DA",), ("x86_64", "avx2"), ()),
        Recipe("1", ("-DB",), ("x86_64", "avx2"), ()),
        Recipe("1", ("-DA",), ("x86_64", "avx2", "avx512f"), ()),
        Recipe("1", ("-DA",), ("x86_64", "avx2"), ("8.6",)),
    ]
    assert len({recipe.name for recipe in (one, *others)}) == 5
    assert Recipe("1", ("-DA",), ("x86_64", "avx2"), ()).name == one.name


def test_cpu_features_are_sorted_and_say_the_machine() -> None:
    machine, *features = build_steps.cpu_features()
    assert machine == os.uname().machine and features == sorted(set(features)) and features


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ((), r"needs cmake, not found on PATH: apt install cmake"),
        (("cmake",), r"needs c\+\+ or g\+\+ or clang\+\+, not found on PATH: apt install g\+\+"),
        (("cmake", "clang++"), r"needs make, not found on PATH: apt install make"),
    ],
)
def test_a_missing_tool_is_named_with_its_package(machine: Path, present: tuple[str, ...], words: str) -> None:
    for tool in present:
        wrap.program(machine / tool, "exit 0")
    with pytest.raises(UserError, match=words):
        build_steps.require_tools()


def test_complete_tools_are_accepted(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("cmake", "c++"):
        wrap.program(machine / tool, "exit 0")
    monkeypatch.setenv("CMAKE_GENERATOR", "Ninja")
    build_steps.require_tools()


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    build_steps.require_space(tmp_path, 1)
    with pytest.raises(UserError, match=r"needs \d+ GiB, but .* GiB free; make room or set AGENT_AB_CACHE"):
        build_steps.require_space(tmp_path, 2**70)


def test_progress_is_read_from_cmakes_and_ninjas_lines_as_they_appear(tmp_path: Path) -> None:
    heard: list[Event] = []
    gate = tmp_path / "gate"
    script = wrap.program(
        tmp_path / "tool",
        f"wait_for() {{ until test -e {gate}$1; do sleep 0.05; done; }}\n"
        "echo '[ 42%] Building CXX object'; wait_for 1\n"
        "echo '[30/120] CXX x.o'; printf '[ 9'; wait_for 2; echo '9%] Linking'; wait_for 3",
    )

    def observer(event: Event) -> None:
        heard.append(event)
        for step, percent in enumerate(("42 %", "25 %", "99 %"), start=1):
            if event.message == f"compiling: {percent}":
                Path(f"{gate}{step}").touch()

    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        Shop(tmp_path, tmp_path / "log", observer, time.monotonic(), descriptor).run([str(script)], "compiling", 60)
    finally:
        os.close(descriptor)
    told = list(dict.fromkeys(event.message for event in heard))
    assert told == ["compiling", "compiling: 42 %", "compiling: 25 %", "compiling: 99 %"]
    assert all(event.arm is None for event in heard) and heard[-1].elapsed_s > 0


def test_a_failing_step_is_told_by_its_error_lines_and_the_log_holds_all(tmp_path: Path) -> None:
    made = shop(tmp_path, [])
    script = wrap.program(tmp_path / "tool", "echo fine; echo 'x.cpp:3: error: no such thing'; echo later; exit 2")
    with pytest.raises(UserError, match=r"^compiling: failed: x\.cpp:3: error: no such thing; the log: .*build\.log$"):
        made.run([str(script)], "compiling", 60)
    os.close(made.lock_fd)
    assert made.log.read_text() == f"\n$ {script}\nfine\nx.cpp:3: error: no such thing\nlater\n"


def test_a_step_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    made = shop(tmp_path, [])
    script = wrap.program(tmp_path / "tool", "exec sleep 600")
    with pytest.raises(UserError, match="not done after 0 minutes"):
        made.run([str(script)], "compiling", 0.2)
    os.close(made.lock_fd)
