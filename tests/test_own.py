"""What the servers of both engines have in common; each engine's own tests play the rest."""

import os
import sys
from pathlib import Path

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.server.own import OwnServer, running
from agent_ab.server.watch import Usage, free_port


class Stub(OwnServer):
    """A server of no engine."""

    WHAT = "stub"

    def usage(self) -> Usage | None:
        return None

    def requests(self) -> int:
        return 0

    def _explained(self, code: int) -> str:
        return f"status {code}"


def test_a_server_that_dies_of_a_request_is_waited_for_and_named(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    # It ends once it is told to, which is after it was looked at for the first time.
    code = f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)\nexit(7)"
    argv = [sys.executable, "-c", code]
    with running(argv, env=dict(os.environ), port=port, log=log, name="stub", patience_s=(5.0,)) as child:
        server = Stub(child, port, "", log, stall_s=60)
        server.check_alive()
        (tmp_path / "go").touch()
        with pytest.raises(ApparatusError, match="stub ended while it answered, status 7"):
            server.check_alive("while it answered", patience_s=60)


def test_a_program_that_is_not_there_cannot_be_started(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    with (
        pytest.raises(ApparatusError, match="absent cannot be started: no such program"),
        running([absent], env={}, port=free_port(), log=tmp_path / "log", name="stub", patience_s=(5.0,)),
    ):
        pass
