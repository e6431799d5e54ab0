"""Where OpenCode comes from, with small programs in npm's and OpenCode's place."""

import fcntl
import json
import threading
from pathlib import Path

import pytest

from agent_ab.agents import opencode_install
from agent_ab.errors import UserError
from agent_ab.model import Event
from tests.fakes import opencode as fake
from tests.fakes import wrap

TRIED = opencode_install.TRIED


class Heard(list[str]):
    """An observer that keeps the messages."""

    def __call__(self, event: Event) -> None:
        self.append(event.message)

    def any(self, part: str) -> bool:
        return any(part in message for message in self)


@pytest.fixture
def bin_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that is first on PATH, behind which no npm and no OpenCode is found; the cache is new."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "cp", "mkdir", "env", "sleep"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "cache"))
    return folder


def npm(folder: Path, *, then: str = "exit 0", version: str = TRIED) -> None:
    """Put an npm into `folder` that installs a small OpenCode and notes how it was called."""
    program = fake.program(folder / "store", version=version)
    wrap.program(
        folder / "npm",
        f"""echo "$@" >>{folder}/npm.log
for last; do :; done
target="$3/node_modules/${{last%@*}}/bin"
mkdir -p "$target" && cp {program} "$target/opencode"
{then}""",
    )


def calls(folder: Path) -> list[str]:
    log = folder / "npm.log"
    return log.read_text().splitlines() if log.exists() else []


def test_a_fresh_machine_gets_the_tried_version_from_npm_once(bin_: Path, tmp_path: Path) -> None:
    npm(bin_)
    heard = Heard()
    found = opencode_install.find("", "", heard)
    assert (found.version, found.source) == (TRIED, "npm")
    assert heard.any("installing opencode-") and heard.any("is ready")
    (call,) = calls(bin_)
    assert "--ignore-scripts" in call and call.endswith(f"@{TRIED}")
    names = {path.name for path in (tmp_path / "cache" / "agents").iterdir()}
    assert names == {found.binary.parent.name, f"{found.binary.parent.name}.lock"}
    again = Heard()
    assert opencode_install.find("", "", again) == found and again == [] and len(calls(bin_)) == 1


def test_another_version_lives_beside_it(bin_: Path) -> None:
    npm(bin_, version="1.18.40")
    found = opencode_install.find("", "1.18.40", Heard())
    assert found.version == "1.18.40" and "opencode-1.18.40-" in str(found.binary)
    assert calls(bin_)[0].endswith("@1.18.40")


def test_without_npm_the_user_is_told_what_to_install_or_to_name(bin_: Path) -> None:
    with pytest.raises(UserError, match=r"needs npm, not found on PATH: apt install npm .*agent\.binary"):
        opencode_install.find("", "", Heard())


def test_a_failed_installation_tells_npm_s_last_lines_and_leaves_nothing(bin_: Path, tmp_path: Path) -> None:
    npm(bin_, then="echo npm error code E404 >&2; echo npm error no such version >&2; exit 1")
    with pytest.raises(UserError, match=r"could not install opencode-.*E404 \| npm error no such version"):
        opencode_install.find("", "9.9.9", Heard())
    assert [path.suffix for path in (tmp_path / "cache" / "agents").iterdir()] == [".lock"]


def test_a_program_that_is_no_opencode_is_not_installed(bin_: Path, tmp_path: Path) -> None:
    npm(bin_, version="'no program for this CPU'")
    with pytest.raises(UserError, match="does not answer as OpenCode does: no program for this CPU"):
        opencode_install.find("", "", Heard())
    assert [path.suffix for path in (tmp_path / "cache" / "agents").iterdir()] == [".lock"]


def test_a_damaged_installation_is_made_again(bin_: Path) -> None:
    npm(bin_)
    found = opencode_install.find("", "", Heard())
    found.binary.write_text("half")
    heard = Heard()
    assert opencode_install.find("", "", heard) == found
    assert heard.any("damaged") and len(calls(bin_)) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": "1", "sha256": "2"}', '{"sha256": null, "version": 1, "stamp": 0}']
)
def test_a_manifest_that_says_nothing_makes_no_installation(bin_: Path, text: str) -> None:
    npm(bin_)
    found = opencode_install.find("", "", Heard())
    (found.binary.parent / opencode_install.MANIFEST).write_text(text)
    assert opencode_install.find("", "", Heard()) == found and len(calls(bin_)) == 2


def test_a_touched_but_equal_program_is_not_installed_again(bin_: Path) -> None:
    npm(bin_)
    found = opencode_install.find("", "", Heard())
    found.binary.touch()
    assert opencode_install.find("", "", Heard()) == found and len(calls(bin_)) == 1


def test_the_second_of_two_processes_waits_and_takes_what_the_first_installed(bin_: Path, tmp_path: Path) -> None:
    npm(bin_)
    opencode_install.find("", "", Heard())
    (folder,) = (path for path in (tmp_path / "cache" / "agents").iterdir() if path.is_dir())
    hidden = folder.rename(tmp_path / "hidden")
    heard, found = Heard(), []
    with folder.with_name(f"{folder.name}.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: found.append(opencode_install.find("", "", heard)))
        thread.start()
        while not heard.any("waiting for another process"):
            assert thread.is_alive()
        hidden.rename(folder)
    thread.join()
    assert found[0].binary.is_file() and len(calls(bin_)) == 1


def test_a_cache_that_cannot_be_written_is_the_user_s_to_change(bin_: Path, tmp_path: Path) -> None:
    npm(bin_)
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"cannot keep OpenCode in .*AGENT_AB_CACHE names another directory"):
        opencode_install.find("", "", Heard())


def test_the_profile_s_program_comes_before_path_and_path_before_npm(bin_: Path, tmp_path: Path) -> None:
    npm(bin_)
    fake.program(bin_, version="1.2.3")
    own = fake.program(tmp_path / "own", version="4.5.6")
    assert opencode_install.find(str(own), "", Heard()).version == "4.5.6"
    on_path = opencode_install.find("", "", Heard())
    assert (on_path.version, on_path.source) == ("1.2.3", "PATH")
    heard = Heard()
    assert opencode_install.find("", TRIED, heard).source == "npm"
    assert heard.any(f"passing over the opencode on PATH: it is 1.2.3, not {TRIED}")


def test_a_broken_opencode_on_path_is_passed_over_and_said_so(bin_: Path) -> None:
    npm(bin_)
    wrap.program(bin_ / "opencode", "echo Illegal instruction >&2; exit 132")
    heard = Heard()
    assert opencode_install.find("", "", heard).source == "npm"
    assert heard.any("passing over the opencode on PATH") and heard.any("Illegal instruction")


def test_a_named_program_of_another_version_is_refused(bin_: Path, tmp_path: Path) -> None:
    own = fake.program(tmp_path / "own", version="4.5.6")
    with pytest.raises(UserError, match=r"agent\.version: .* is OpenCode 4\.5\.6, not 1\.0\.0"):
        opencode_install.find(str(own), "1.0.0", Heard())


@pytest.mark.parametrize("name", ["missing", "plain"])
def test_a_named_program_that_cannot_run_is_refused(bin_: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").write_text("text")
    with pytest.raises(UserError, match=r"agent\.binary: (no such file|not executable)"):
        opencode_install.find(str(tmp_path / name), "", Heard())


def test_npm_s_start_script_stands_for_the_program_beside_it(bin_: Path, tmp_path: Path) -> None:
    package = opencode_install._packages()[0]
    modules = tmp_path / "lib" / "node_modules"
    script = wrap.program(modules / "opencode-ai" / "bin" / "opencode", "")
    script.write_text("#!/usr/bin/env node\n")
    (bin_ / "opencode").symlink_to(script)
    with pytest.raises(UserError, match="start script, without the program beside it"):
        opencode_install.probe(bin_ / "opencode", "PATH")
    program = fake.program(modules / package / "bin")
    assert opencode_install.probe(bin_ / "opencode", "PATH").binary == program


def test_the_manifest_tells_what_was_installed(bin_: Path) -> None:
    npm(bin_)
    found = opencode_install.find("", "", Heard())
    manifest = json.loads((found.binary.parent / opencode_install.MANIFEST).read_text())
    assert (manifest["version"], manifest["sha256"]) == (TRIED, found.sha256)
