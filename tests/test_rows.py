"""Pairs and their rows."""

from dataclasses import replace

from agent_ab.model import Arm
from agent_ab.pair.pair import judge
from agent_ab.store.rows import attempt_rows, pair_from_json, pair_row, pair_to_json
from agent_ab.store.tables import AttemptRow, CheckRow, EvidenceRow, ExchangeRow
from tests.builders import attempt, pair


def test_a_pair_survives_the_trip_through_json() -> None:
    judged = judge(pair())
    assert pair_from_json(pair_to_json(judged)) == judged


def test_what_the_schedule_and_the_statistics_ask_for_has_a_column() -> None:
    row = pair_row(replace(judge(pair()), block=3, attempted=2, proven=False, again=True), "now")
    assert (row.block, row.attempted, row.proven, row.again, row.saved_at) == (3, 2, False, True, "now")


def test_an_attempt_is_one_row_and_one_for_each_check_exchange_and_file() -> None:
    judged = judge(pair(candidate=attempt(Arm.CANDIDATE, life_position=4)))
    rows = list(attempt_rows(judged, judged.candidate))
    assert [type(row) for row in rows] == [AttemptRow, *[CheckRow] * 10, *[ExchangeRow] * 2, EvidenceRow]
    assert isinstance(rows[0], AttemptRow)
    assert rows[0].life_position == 4
