"""What docs/data.md and docs/data.schema.json must say. `python -m tests.data_docs` writes both."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from agent_ab.export import records

DOCS = Path(__file__).parent.parent / "docs"
SCHEMA, PAGE = DOCS / "data.schema.json", DOCS / "data.md"
BEGIN, END = "<!-- columns: generated -->\n", "<!-- end -->\n"
KINDS = {str: "text", int: "integer", float: "number", bool: "true or false", list: "list of text"}


def schema() -> str:
    """Return the JSON Schema as the file holds it."""
    return json.dumps(records.json_schema(), indent=1) + "\n"


def columns() -> str:
    """Return a table for each table of the export, from the records' own fields."""
    return "\n".join(line for name, record in records.TABLES.items() for line in _table(name, record)) + "\n"


def page(text: str) -> str:
    """Return the page with its generated part as it must be."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + columns() + END + rest.split(END)[1]


def _table(name: str, record: Any) -> Iterator[str]:
    yield f"### {name}\n\n{record.__doc__}\n\n| column | type | meaning |\n|---|---|---|"
    for field, info in record.model_fields.items():
        kind, nullable = records.plain_type(info.annotation)
        allowed = _values(info.annotation)
        meaning = " ".join(filter(None, (info.description, allowed))).replace("|", "\\|")
        yield f"| `{field}` | {KINDS[kind]}{' or null' if nullable else ''} | {meaning} |"
    yield ""


def _values(annotation: Any) -> str:
    kinds = [kind for kind in (annotation, *get_args(annotation)) if hasattr(kind, "__members__")]
    members = kinds[0].__members__ if kinds else None
    return f"One of {', '.join(f'`{member.value}`' for member in members.values())}." if members else ""


if __name__ == "__main__":
    SCHEMA.write_text(schema(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
