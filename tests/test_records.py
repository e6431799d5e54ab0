"""The shape of an export is documented, and the documentation is kept."""

from agent_ab.export import records
from agent_ab.model import Arm, CheckCount
from agent_ab.pair.pair import judge
from tests import data_docs
from tests.builders import attempt, pair


def test_the_json_schema_in_the_docs_is_the_models_own() -> None:
    assert data_docs.SCHEMA.read_text(encoding="utf-8") == data_docs.schema(), "run: python -m tests.data_docs"


def test_the_page_names_every_column() -> None:
    text = data_docs.PAGE.read_text(encoding="utf-8")
    assert text == data_docs.page(text), "run: python -m tests.data_docs"


def test_every_column_has_a_plain_type() -> None:
    for record in records.TABLES.values():
        for field in record.model_fields.values():
            assert records.plain_type(field.annotation)[0] in (str, int, float, bool, list)


def test_a_pair_gives_its_rows_table_by_table() -> None:
    names = [name for name, _ in records.of_pair(judge(pair()))]
    assert names == ["pairs", *(["attempts"] + ["checks"] * 10 + ["exchanges"] * 2) * 2]


def test_where_only_the_number_of_checks_is_known_no_flips_are_claimed() -> None:
    arms = (attempt(arm, checks=(), counted=CheckCount(9, 10)) for arm in Arm)
    rows = {name: row.model_dump() for name, row in records.of_pair(judge(pair(*arms)))}
    assert (rows["pairs"]["fixed"], rows["pairs"]["broken"]) == (None, None)
    assert (rows["attempts"]["passed"], rows["attempts"]["scored"]) == (9, 10)
