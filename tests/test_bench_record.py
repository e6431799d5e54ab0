"""A bench on disk, read back for a comparison."""

from pathlib import Path

import pytest

from agent_ab.bench import record, view
from agent_ab.errors import UserError
from tests.bench_results import result


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    found = result()
    (tmp_path / "bench-1").mkdir()
    record.save(tmp_path / "bench-1", view.data(found))
    assert record.rows(tmp_path / "bench-1") == found.rows


def test_a_bench_that_is_not_there_or_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "bench-1").mkdir()
    record.save(tmp_path / "bench-1", {"rows": []})
    with pytest.raises(UserError, match="did you mean bench-1"):
        record.rows(tmp_path / "bench-2")
    (tmp_path / "bench-1" / record.NAME).write_text('{"rows": [{}]}')
    with pytest.raises(UserError, match="not what a bench writes"):
        record.rows(tmp_path / "bench-1")
