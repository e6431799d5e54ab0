"""Files that are whole or not there."""

import os
from pathlib import Path

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.files import appearing, contents, on_disk, persist, text_of


def test_the_file_appears_with_its_directory_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with appearing(path) as partial:
        partial.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_nothing_appears_when_the_block_fails_and_an_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), appearing(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_tree_is_given_to_the_disk_links_and_all(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("x")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    persist(tmp_path)
    persist(tmp_path / "inner" / "file")


def test_what_is_not_there_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        persist(tmp_path / "gone")


def test_a_full_disk_is_a_broken_apparatus_that_names_the_place(tmp_path: Path) -> None:
    said = "full cannot be written: No space left"
    # The kernel's own full disk.
    with (
        pytest.raises(ApparatusError, match=said),
        on_disk(tmp_path / "full"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), on_disk(tmp_path):
        (tmp_path / "gone").read_bytes()


@pytest.mark.parametrize("name", ["fifo", "link", "/dev/zero", "/dev/null"])
def test_only_a_regular_file_is_read_and_nothing_is_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(OSError) as caught:
        contents(tmp_path / name, 1000)
    assert caught.value.strerror == "is no regular file"


def test_a_directory_and_a_file_that_is_not_there_are_called_so(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        contents(tmp_path, 1000)
    with pytest.raises(FileNotFoundError):
        contents(tmp_path / "none", 1000)


def test_a_file_is_read_up_to_its_limit_and_never_beyond(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert contents(path, 1000) == b"x" * 1000
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError) as caught:
        contents(path, 2_000_000)
    assert caught.value.strerror == "is larger than 2 MB"


def test_a_text_has_one_kind_of_line_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("a\r\nb\rc\n\u00e9".encode())
    assert text_of(tmp_path / "file", 1000) == "a\nb\nc\n\u00e9"
