"""Finding a llama-server and learning what it can do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent_ab.config import Speculation
from agent_ab.engine import engine
from agent_ab.errors import UserError
from agent_ab.model import Event
from tests.fakes import wrap


def ignore(_event: Event) -> None:
    pass


@pytest.fixture
def nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide this machine's own llama-servers; return an empty directory that is first on PATH."""
    first = tmp_path / "bin"
    first.mkdir()
    rest = [part for part in os.environ["PATH"].split(":") if not (Path(part) / "llama-server").exists()]
    monkeypatch.setenv("PATH", ":".join([str(first), *rest]))
    monkeypatch.delenv("AGENT_AB_LLAMA_SERVER", raising=False)
    return first


def test_a_server_is_described_by_what_it_says_itself(tmp_path: Path) -> None:
    found = engine.probe(wrap.llama_server(tmp_path), "PATH")
    assert found.build == "b7-abc1234"
    assert found.spec_types == ("none", "draft-simple", "draft-mtp", "ngram-mod")
    assert {"-np", "--parallel", "--cache-prompt", "--no-cache-prompt", "--log-verbosity"} <= found.flags
    assert found.library_path == ""
    assert engine.describe(found) == (
        f"llama-server b7-abc1234, sha256 {found.sha256[:12]}, from PATH: {tmp_path / 'llama-server'}"
    )


def test_options_that_help_calls_removed_are_not_offered(tmp_path: Path) -> None:
    found = engine.probe(wrap.llama_server(tmp_path))
    assert "--draft-max" not in found.flags and "--spec-draft-n-max" in found.flags


def test_old_versions_are_read_too(tmp_path: Path) -> None:
    assert engine.probe(wrap.llama_server(tmp_path, "old-version")).build == "b9216-1ff0fc138"


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("version: 0.6.0-dev (build 0, commit unknown)\nbuilt with GNU", "b0-unknown"),
        ("warning: no GPU\nversion: 1 (3ce7da2)\n", "b1-3ce7da2"),
        ("llama-server, a server", "unknown"),
    ],
)
def test_every_version_format_that_was_seen_is_read(text: str, build: str) -> None:
    assert engine.parse_version(text) == build


@pytest.mark.parametrize(
    ("entry", "types"),
    [
        ("--spec-type none,draft-mtp,ngram-map-k4v\n      comma-separated (default: none)", ("none", "draft-mtp", "ngram-map-k4v")),
        ("--spec-type [none|ngram-cache|ngram-mod]   type of speculative decoding", ("none", "ngram-cache", "ngram-mod")),
        ("--spec-type TYPE\n   one of none, draft-mtp or draft-eagle3 (default: none)", ("none", "draft-mtp", "draft-eagle3")),
        ("--spec-draft-n-max N     how many draft-mtp drafts", ()),
    ],
)  # fmt: skip
def test_spec_types_are_whole_words_in_every_help_format(entry: str, types: tuple[str, ...]) -> None:
    assert engine.parse_help(f"--props    on\n{entry}\n--slots   on\n")[1] == types


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("sigill", "SIGILL: it was built for another CPU"),
        ("missing-library", r"lacks the shared library libllama\.so\.0"),
        ("no-spec-type", "too old: its --help has no --spec-type"),
        ("fails", "failed with status 1: something else is wrong"),
    ],
)
def test_a_server_that_cannot_be_used_is_named_as_such(tmp_path: Path, fault: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        engine.probe(wrap.llama_server(tmp_path, fault))


def test_a_file_for_another_machine_is_named_as_such(tmp_path: Path) -> None:
    alien = tmp_path / "llama-server"
    alien.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0\xff\x7f" + b"\0" * 200)
    alien.chmod(0o755)
    with pytest.raises(UserError, match="not a program for this machine"):
        engine.probe(alien)


def test_a_missing_or_plain_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        engine.probe(tmp_path / "llama-server")
    (tmp_path / "llama-server").write_text("")
    with pytest.raises(UserError, match="not executable"):
        engine.probe(tmp_path / "llama-server")


def test_the_sha256_covers_the_libraries_beside_the_binary_and_not_their_links(tmp_path: Path) -> None:
    binary = wrap.llama_server(tmp_path)
    alone = engine.probe(binary).sha256
    library = tmp_path / "libllama.so.1"
    library.write_bytes(b"one")
    first = engine.probe(binary).sha256
    (tmp_path / "libllama.so").symlink_to(library.name)
    linked = engine.probe(binary).sha256
    library.write_bytes(b"two")
    assert len({alone, first, engine.probe(binary).sha256}) == 3 and linked == first


def test_a_copy_in_another_directory_is_the_same_engine(tmp_path: Path) -> None:
    for name in ("one", "two"):
        wrap.llama_server(tmp_path / name)
        (tmp_path / name / "libggml.so").write_bytes(b"x")
    assert (
        engine.probe(tmp_path / "one" / "llama-server").sha256 == engine.probe(tmp_path / "two" / "llama-server").sha256
    )


def test_a_probed_server_is_not_run_again_until_it_changes(tmp_path: Path) -> None:
    binary = wrap.program(
        tmp_path / "llama-server", f'echo >> {tmp_path}/runs; exec {wrap.llama_server(tmp_path / "real")} "$@"'
    )
    first = engine.probe(binary)
    assert engine.probe(binary) is first and (tmp_path / "runs").read_text().count("\n") == 2
    os.utime(binary, (1, 1))
    engine.probe(binary)
    assert (tmp_path / "runs").read_text().count("\n") == 4


def test_the_profiles_path_comes_before_the_variable_and_path(nothing_found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    places = {name: wrap.llama_server(tmp_path / name) for name in ("profile", "variable")}
    on_path = wrap.llama_server(nothing_found)
    assert engine.find("", ignore).binary == on_path
    monkeypatch.setenv("AGENT_AB_LLAMA_SERVER", str(places["variable"]))
    assert engine.find("", ignore).source == "AGENT_AB_LLAMA_SERVER"
    assert engine.find(str(places["profile"]), ignore).binary == places["profile"]


def test_a_named_server_that_is_not_there_is_an_error_that_names_who_named_it(nothing_found: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    with pytest.raises(UserError, match=r"^server\.binary: no such file: /nowhere/llama-server"):
        engine.find("/nowhere/llama-server", ignore)
    monkeypatch.setenv("AGENT_AB_LLAMA_SERVER", "/nowhere/at-all")
    with pytest.raises(UserError, match=r"^AGENT_AB_LLAMA_SERVER: no such file"):
        engine.find("", ignore)


def test_an_unusable_server_on_path_is_passed_over_for_our_own_and_this_is_said(
    nothing_found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap.llama_server(nothing_found, "sigill")
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path / "file" / "cache"))
    (tmp_path / "file").write_text("")
    said: list[str] = []
    with pytest.raises(UserError, match="cannot build llama-server"):
        engine.find("", lambda event: said.append(event.message))
    assert any("passing over the llama-server on PATH" in line and "SIGILL" in line for line in said)


def test_the_cache_is_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_AB_CACHE", str(tmp_path))
    assert engine.cache_dir() == tmp_path
    monkeypatch.delenv("AGENT_AB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert engine.cache_dir() == tmp_path / "agent-ab"


@pytest.mark.parametrize(
    ("speculation", "words"),
    [
        (Speculation(type="draft-mtp"), r"does not know 'draft-mtp' \(it knows none, draft-simple, ngram-mod\)"),
        (Speculation(type="mtp"), "does not know 'mtp'"),
        (Speculation(type="none,ngram-mod"), "'none' switches every other type of the list off"),
        (Speculation(type="ngram-mod", n_max=3), r"n_max: has no effect on type 'ngram-mod'"),
        (Speculation(type="draft-simple", ngram_match=8), r"ngram_match: has no effect on type 'draft-simple'"),
        (Speculation(type="ngram-mod", ngram_size=8), r"ngram_size: has no effect on type 'ngram-mod'"),
        (Speculation(type="ngram-mod", ngram_match=8), "has no --spec-ngram-mod-n-match"),
        (Speculation(type="draft-simple", p_min=0.5), r"p_min: .* has no --spec-draft-p-min"),
        (Speculation(type="draft-simple", sampling="probabilistic"), "has no --spec-draft-sampling"),
    ],
)
def test_speculation_that_the_build_cannot_do_is_refused(tmp_path: Path, speculation: Speculation, words: str) -> None:
    found = engine.probe(wrap.llama_server(tmp_path, "no-mtp"))
    with pytest.raises(UserError, match=words):
        engine.require(found, speculation)


@pytest.mark.parametrize(
    "speculation",
    [
        Speculation(),
        Speculation(type="none", n_max=3),
        Speculation(type="ngram-mod, draft-mtp", n_max=3),
        Speculation(type="draft-mtp", sampling="greedy", synth_rates=(0, 0, 0)),
    ],
)
def test_speculation_that_the_build_can_do_is_accepted(tmp_path: Path, speculation: Speculation) -> None:
    engine.require(engine.probe(wrap.llama_server(tmp_path)), speculation)


@pytest.mark.skipif(not shutil.which("cc") or not shutil.which("ldd"), reason="needs a C compiler and ldd")
def test_ld_library_path_is_passed_on_only_when_the_binary_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    binary = wrap.llama_server(tmp_path / "bin")
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(away))
    assert engine.probe(binary).library_path == ""
    for name, linked in (("libfar.so", []), ("plug.so", [f"-L{away}", "-lfar", "-Wl,--no-as-needed", "-lfar"])):
        source = tmp_path / f"{name}.c"
        source.write_text(f"int {name[:3]}(void) {{ return 1; }}\n")
        folder = away if name == "libfar.so" else tmp_path / "bin"
        subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(folder / name), *linked], check=True)
    assert engine.probe(binary).library_path == str(away)
