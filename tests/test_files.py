"""Files that are whole or not there."""

from pathlib import Path

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.files import appearing, on_disk, persist


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
