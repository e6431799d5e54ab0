"""Files that are whole or not there."""

from pathlib import Path

import pytest

from agent_ab.files import appearing


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
