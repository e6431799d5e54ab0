"""Finding mitmdump and telling it what to do; tests/live/test_proxy.py runs it."""

import json
import stat
import sys
from pathlib import Path

import pytest

from agent_ab import proxy
from agent_ab.config import Sampling
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import SeedMode


def settings(**changes: object) -> proxy.ProxySettings:
    given: dict[str, object] = {
        "upstream": "http://127.0.0.1:1",
        "key": "the-key",
        "seed": 4242,
        "seed_mode": SeedMode.FIXED,
        "sampling": Sampling(),
        "task": "transfer-repair",
        "repeat": 0,
        "expected_first": None,
        "max_tokens": 512,
    }
    return proxy.ProxySettings(**given | changes)  # type: ignore[arg-type]


def program(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_named_mitmdump_is_used_before_any_other(tmp_path: Path) -> None:
    mine = program(tmp_path / "mine", "#!/bin/sh\n")
    assert proxy.find_mitmdump({"AGENT_AB_MITMDUMP": str(mine), "PATH": str(tmp_path)}) == str(mine)


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_named_mitmdump_that_is_no_program_is_the_users_mistake(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="AGENT_AB_MITMDUMP"):
        proxy.find_mitmdump({"AGENT_AB_MITMDUMP": str(tmp_path / name)})


def test_mitmdump_is_found_beside_our_interpreter() -> None:
    assert Path(proxy.find_mitmdump({})).parent == Path(sys.executable).parent


def test_mitmdump_listens_on_loopback_only_with_a_private_configuration(tmp_path: Path) -> None:
    argv = proxy.command("/bin/mitmdump", "http://127.0.0.1:8001", 9000, tmp_path)
    assert argv[:8] == [
        "/bin/mitmdump",
        "-q",
        "--mode",
        "reverse:http://127.0.0.1:8001",
        "--listen-host",
        "127.0.0.1",
        "--listen-port",
        "9000",
    ]
    assert f"confdir={tmp_path / 'conf'}" in argv
    assert "the-key" not in " ".join(argv)


def test_a_socket_path_that_the_kernel_cannot_take_is_reported(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    with (
        pytest.raises(ApparatusError, match="longer than 107 bytes"),
        proxy.started(settings(), log=tmp_path / "log", exchanges=tmp_path / "e", socket=long),
    ):
        pass


def test_an_exchange_log_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("evidence", encoding="utf-8")
    with (
        pytest.raises(ApparatusError, match="a log is written once"),
        proxy.started(settings(), log=tmp_path / "log", exchanges=tmp_path / "e", socket=tmp_path / "s"),
    ):
        pass
    assert (tmp_path / "e").read_text(encoding="utf-8") == "evidence"


def test_a_mitmdump_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = program(tmp_path / "mitmdump", "#!/no/such/interpreter\n")
    monkeypatch.setenv("AGENT_AB_MITMDUMP", str(broken))
    with (
        pytest.raises(ApparatusError, match=r"^proxy: "),
        proxy.started(settings(), log=tmp_path / "log", exchanges=tmp_path / "e", socket=tmp_path / "s") as witness,
    ):
        witness.wait_ready()


def test_what_mitmdump_said_last_is_reported_when_it_ends_at_start_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = program(tmp_path / "mitmdump", "#!/bin/sh\necho first; echo the reason >&2; exit 3\n")
    monkeypatch.setenv("AGENT_AB_MITMDUMP", str(broken))
    with (
        proxy.started(settings(), log=tmp_path / "log", exchanges=tmp_path / "e", socket=tmp_path / "s") as witness,
        pytest.raises(ApparatusError, match=r"ended at start-up with status 3: first \| the reason"),
    ):
        witness.wait_ready()


def test_the_key_is_not_in_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy.json"
    spy = (
        '#!/bin/sh\nfor a in "$@"; do case "$a" in agent_ab_settings=*) cat "${a#*=}" > '
        + str(copy)
        + ";; esac; done\n"
    )
    monkeypatch.setenv("AGENT_AB_MITMDUMP", str(program(tmp_path / "mitmdump", spy)))
    with (
        proxy.started(settings(), log=tmp_path / "log", exchanges=tmp_path / "e", socket=tmp_path / "s") as witness,
        pytest.raises(ApparatusError, match="it said nothing"),
    ):
        witness.wait_ready()
    told = json.loads(copy.read_text(encoding="utf-8"))
    assert told["sampling"]["top_k"] == 20
    assert "the-key" not in copy.read_text(encoding="utf-8")
