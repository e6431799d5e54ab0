"""What `agent-ab bench` leaves and says when it does not come to its end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from agent_ab.bench import loop
from agent_ab.errors import ApparatusError, UserError
from tests.command import here

Play = Callable[..., NoReturn]


def cut_off(error: BaseException, *names: str) -> Play:
    """Return what plays in the loop's place: it leaves files of these names, and breaks."""

    def play(_plan: object, _task: object, folder: Path, _observer: object) -> NoReturn:
        for name in names:
            (folder / name).write_text(json.dumps({}))
        raise error

    return play


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), 130), (ApparatusError("server", "it died"), 4)], ids=["ctrl-c", "death"]
)
def test_a_bench_that_is_cut_off_names_the_folder_of_its_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    monkeypatch.setattr(loop, "play", cut_off(error, "plan.json", loop.REPLIES))
    done = here(tmp_path, "bench", "--methods", "none,mtp-1")
    (folder,) = (tmp_path / "runs").iterdir()
    assert done.status == status
    assert f"the replies so far are kept in runs/{folder.name}/replies.jsonl" in done.stderr


def test_a_bench_that_is_cut_off_before_its_first_reply_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "play", cut_off(KeyboardInterrupt(), "0-none.log"))
    done = here(tmp_path, "bench", "--methods", "none,mtp-1")
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"no method has finished a round; the plan and the server logs are in runs/{folder.name}" in done.stderr


def test_a_bench_that_never_began_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "play", cut_off(UserError("no such model")))
    done = here(tmp_path, "bench", "--methods", "none,mtp-1")
    assert (done.status, done.stderr.splitlines()) == (2, ["error: no such model"])
    assert not list((tmp_path / "runs").iterdir())


def test_what_cannot_be_measured_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    done = here(tmp_path, "bench", "--methods", "none")
    assert done.status == 2 and "alone" in done.error
    assert not (tmp_path / "runs").exists()
