"""The build of llama-server: real pip, real cmake, real compiler, on a source of three files."""

import fcntl
import json
import os
import shutil
from pathlib import Path

import psutil
import pytest

from agent_ab.engine import build, build_steps, engine
from agent_ab.errors import UserError
from agent_ab.model import Event
from tests.fakes import sdist, wrap

pytestmark = pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and c++")


class Heard(list[str]):
    """An observer that keeps the messages."""

    def __call__(self, event: Event) -> None:
        self.append(event.message)

    def any(self, part: str) -> bool:
        return any(part in message for message in self)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip see nothing but one directory; return it."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache in which the build has been done."""
    folder = tmp_path_factory.mktemp("finished")
    downloaded(folder)
    build.ensure(folder, Heard())
    return folder


def staging(cache: Path) -> Path:
    return cache / "engines" / f"{build_steps.plan().name}.building"


def downloaded(cache: Path, replaced: dict[str, str] | None = None) -> None:
    """Leave what a build that was broken off after its download leaves."""
    folder = staging(cache) / "sdist"
    folder.mkdir(parents=True)
    sdist.write(folder, replaced)


def mend(cache: Path) -> None:
    """Replace the source file that was broken on purpose."""
    (server,) = staging(cache).glob("source/*/vendor/llama.cpp/server.cpp")
    server.write_text(sdist.SERVER)


def test_a_fresh_machine_gets_a_server_that_runs_and_the_second_call_builds_nothing(offline: Path, cache: Path) -> None:
    sdist.write(offline)
    heard = Heard()
    binary = build.ensure(cache, heard)
    found = engine.probe(binary, "own build")
    assert (found.build, found.spec_types) == ("b7-abc1234", ("none", "draft-mtp"))
    assert heard.any("downloading") and heard.any("configuring") and heard.any("compiling") and heard.any("ready")
    name = binary.parent.name
    assert {p.name for p in (cache / "engines").iterdir()} == {name, f"{name}.lock", f"{name}.log"}
    assert "[100%]" in (cache / "engines" / f"{name}.log").read_text()
    assert not any(child.name() in ("cmake", "make") for child in psutil.Process().children(recursive=True))
    again = Heard()
    assert build.ensure(cache, again) == binary and again == []


def test_the_manifest_tells_what_was_built(finished: Path) -> None:
    binary = build.ensure(finished, Heard())
    manifest = json.loads((binary.parent / "manifest.json").read_text())
    assert manifest["version"] == "0.3.36" and manifest["cpu"] == list(build_steps.cpu_features())
    assert set(manifest["files"]) == {"llama-server", "libllama.so", "libllama.so.0", "libllama.so.0.5.0"}
    assert (binary.parent / "libllama.so").readlink() == Path("libllama.so.0")


def test_the_folder_of_a_build_can_be_moved(finished: Path, tmp_path: Path) -> None:
    folder = build.ensure(finished, Heard()).parent
    moved = folder.rename(tmp_path / "elsewhere")
    try:
        assert engine.probe(moved / "llama-server").build == "b7-abc1234"
    finally:
        moved.rename(folder)


def test_a_build_that_does_not_fit_its_manifest_is_built_again(finished: Path, cache: Path) -> None:
    shutil.copytree(finished, cache, symlinks=True)
    binary = build.ensure(cache, Heard())
    os.truncate(binary, 100)
    downloaded(cache)
    heard = Heard()
    build.ensure(cache, heard)
    assert heard.any("damaged") and build.whole(binary.parent)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": {}}', '{"files": null}'])
def test_a_manifest_that_says_nothing_does_not_make_a_build_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert not build.whole(tmp_path)


def test_a_broken_build_continues_and_does_not_compile_the_finished_part_again(cache: Path) -> None:
    downloaded(cache, {"vendor/llama.cpp/server.cpp": "#error not today\n"})
    with pytest.raises(UserError, match=r"compiling.*not today.*the log: .*\.log"):
        build.ensure(cache, Heard())
    mend(cache)
    heard = Heard()
    binary = build.ensure(cache, heard)
    (log,) = (cache / "engines").glob("*.log")
    assert log.read_text().count("Building CXX object CMakeFiles/llama.dir") == 1
    assert not heard.any("downloading") and not heard.any("afresh")
    assert engine.probe(binary).build == "b7-abc1234"


def test_an_object_that_a_killed_compiler_left_half_written_is_compiled_again(cache: Path) -> None:
    downloaded(cache, {"vendor/llama.cpp/server.cpp": "#error not today\n"})
    with pytest.raises(UserError):
        build.ensure(cache, Heard())
    mend(cache)
    (library,) = staging(cache).glob("build/bin/libllama.so.0.5.0")
    newest = library.stat().st_mtime + 1
    library.write_bytes(b"half")
    os.utime(library, (newest, newest))
    heard = Heard()
    build.ensure(cache, heard)
    assert heard.any("afresh")


def test_an_interrupt_leaves_no_compiler_running_and_the_next_start_continues(cache: Path, tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    # A step that waits until it is interrupted, and passes in the second build.
    step = wrap.program(tmp_path / "pause", f"touch {started}; test -e {go} || exec sleep 600")
    pause = f"add_custom_target(pause COMMAND {step})\nadd_dependencies(llama pause)\n"
    downloaded(cache, {"vendor/llama.cpp/CMakeLists.txt": sdist.CMAKE + pause})

    def interrupt(_event: Event) -> None:
        if started.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.ensure(cache, interrupt)
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(cache) in " ".join(p.info["cmdline"] or ())]
    go.touch()
    heard = Heard()
    build.ensure(cache, heard)
    assert heard.any("ready") and not heard.any("unpacking")


def test_the_second_of_two_processes_waits_and_uses_what_the_first_built(finished: Path, cache: Path) -> None:
    shutil.copytree(finished, cache, symlinks=True)
    binary = build.ensure(cache, Heard())
    set_aside = binary.parent.rename(cache / "aside")
    heard = Heard()
    with (cache / "engines" / f"{binary.parent.name}.lock").open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def observer(event: Event) -> None:
            heard(event)
            if "waiting for another process" in event.message and set_aside.exists():
                set_aside.rename(binary.parent)
                fcntl.flock(other, fcntl.LOCK_UN)

        assert build.ensure(cache, observer) == binary
    assert heard.any(f"({os.getpid()})") and not heard.any("building llama-server once")


def test_a_server_that_does_not_run_is_not_installed(cache: Path) -> None:
    downloaded(cache, {"vendor/llama.cpp/server.cpp": "int main() { return 3; }\n"})
    with pytest.raises(UserError, match="does not run: status 3"):
        build.ensure(cache, Heard())
    assert not [p for p in (cache / "engines").iterdir() if p.is_dir() and p.suffix != ".building"]


def test_a_failing_pip_is_told_in_its_own_words(offline: Path, cache: Path) -> None:
    with pytest.raises(UserError, match=r"downloading.*No matching distribution found for llama-cpp-python==0\.3\.36"):
        build.ensure(cache, Heard())


def test_a_damaged_download_is_fetched_again_at_the_next_start(offline: Path, cache: Path) -> None:
    downloaded(cache)
    (archive,) = staging(cache).glob("sdist/*")
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(UserError, match=r"cannot be unpacked: .*fetches it again"):
        build.ensure(cache, Heard())
    sdist.write(offline)
    heard = Heard()
    build.ensure(cache, heard)
    assert heard.any("downloading") and heard.any("ready")


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside"])
def test_an_archive_that_reaches_outside_is_refused(cache: Path, name: str) -> None:
    downloaded(cache)
    sdist.write(staging(cache) / "sdist", {name: "x"})
    with pytest.raises(UserError, match="unsafe path"):
        build.ensure(cache, Heard())


def test_a_full_disk_is_named_as_such(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloaded(cache)
    wrap.program(tmp_path / "bin" / "cmake", "echo 'fatal error: out.o: No space left on device'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(UserError, match=r"configuring llama-server: failed: the disk of .* is full"):
        build.ensure(cache, Heard())


def test_a_cache_that_cannot_be_made_is_the_users_to_mend(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="AGENT_AB_CACHE"):
        build.ensure(blocked / "cache", Heard())
