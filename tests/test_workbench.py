"""What a pair needs is found, or refused, before its first attempt."""

from pathlib import Path

import pytest

from agent_ab.config import load_profile
from agent_ab.errors import UserError
from agent_ab.workbench import prepare
from tests.command import ROOT
from tests.conftest import ignore

PROFILE = load_profile("scripted-solve", ROOT / "profiles")


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(UserError, match="transfer-repair"):
        prepare(PROFILE, "transfer-repare", ROOT / "tasks", ignore)


def test_a_temporary_directory_that_is_too_deep_for_a_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(UserError, match="TMPDIR"):
        prepare(PROFILE, "transfer-repair", ROOT / "tasks", ignore)
