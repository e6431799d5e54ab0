"""A bench on disk: `bench.json`, written at its end and read back for a comparison."""

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agent_ab.bench.stats import Interval, Row
from agent_ab.config import nearest
from agent_ab.errors import UserError
from agent_ab.files import appearing
from agent_ab.model import Json

NAME = "bench.json"
_INTERVAL: TypeAdapter[Interval | None] = TypeAdapter(Interval | None)


def save(folder: Path, data: Json) -> None:
    """Write what `bench_view.data` made, whole or not at all."""
    with appearing(folder / NAME) as partial:
        partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def rows(folder: Path) -> tuple[Row, ...]:
    """Return the rows of an earlier bench. Raises UserError."""
    path = folder / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return tuple(_row(row) for row in found)
    except FileNotFoundError:
        known = sorted(p.parent.name for p in folder.parent.glob(f"*/{NAME}"))
        raise UserError(f"{path}: no finished bench there{nearest(folder.name, known)}") from None
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise UserError(f"{path}: not what a bench writes: {error}") from None


def _row(row: Json) -> Row:
    def interval(name: str) -> Interval | None:
        return _INTERVAL.validate_python(row[name])

    return Row(
        method=row["method"],
        kind=row["class"],
        replies=row["replies"],
        errors=row["errors"],
        decode=interval("decode"),
        prefill=interval("prefill"),
        ttft_s=interval("ttft_s"),
        wall_s=interval("wall_s"),
        decode_ratio=interval("decode_ratio"),
        prefill_ratio=interval("prefill_ratio"),
        speedup=interval("speedup"),
        drafted=row["drafted"],
        accepted=row["accepted"],
        by_position=tuple(row["acceptance_by_position"]),
        by_context=row["acceptance_by_prompt_length"],
        same_text=row["same_text"],
    )
