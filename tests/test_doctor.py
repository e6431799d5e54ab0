"""The doctor says what works and what to do about what does not."""

from pathlib import Path

from tests.command import agent_ab


def line(stdout: str, name: str) -> str:
    return next(line for line in stdout.splitlines() if line.startswith(name))


def test_every_part_of_a_pair_is_examined(tmp_path: Path) -> None:
    done = agent_ab(tmp_path, "doctor", env={"AGENT_AB_CACHE": str(tmp_path / "cache")})
    for name in ("python", "git", "engine", "proxy", "sandbox", "cache", "loopback"):
        assert line(done.stdout, name)
    assert not (tmp_path / "cache").exists()


def test_a_missing_tool_is_named_with_its_package_and_the_status_says_so(tmp_path: Path) -> None:
    done = agent_ab(
        tmp_path,
        "doctor",
        env={"PATH": str(tmp_path), "AGENT_AB_CACHE": str(tmp_path / "cache"), "AGENT_AB_LLAMA_SERVER": ""},
    )
    assert done.status == 4
    assert "apt install git" in line(done.stdout, "git")
    assert "cmake" in line(done.stdout, "engine")


def test_a_sandbox_that_does_not_work_is_told_with_its_remedy(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = agent_ab(tmp_path, "doctor", env={"AGENT_AB_BWRAP": str(broken)})
    assert done.status == 4
    assert "--sandbox none" in done.stdout
