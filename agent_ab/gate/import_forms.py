"""A file of results from elsewhere -> its pairs: TOML, JSON or CSV, read strictly (docs/verdict.md has the forms)."""

import csv
import datetime
import io
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent_ab.config import nearest
from agent_ab.errors import UserError
from agent_ab.model import Arm, Json
from agent_ab.reading import MOST_VALUES, crowded, explain, json_data, shown, toml
from agent_ab.wording import counted, plain_line

CHECKS = 10
"""Scored checks of an attempt, unless the file says otherwise."""
CHECK_COLUMN = "check:"
COLUMNS = ("task", "seed", "arm")
OPTIONAL = ("repeat", "first_arm", "checks_passed", "checks_scored", "wall_s", "timed_out")
INTEGERS = ("seed", "repeat", "checks_passed", "checks_scored")
WHOLE = re.compile(r"[+-]?[0-9]{1,4300}")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
TRUE, FALSE = ("1", "true", "yes", "pass"), ("0", "false", "no", "fail")
INTEGER = 2**63 - 1
"""SQLite's greatest."""
MOST_CHECKS = 10**6
MOST_NAMED = 10_000
"""Checks of one attempt that have names; the largest public test suites have some thousand."""
SHORTEST_S, LONGEST_S = 1e-6, 1e9


def _nameable(text: str) -> str:
    odd = next((c for c in text if unicodedata.category(c) in ("Cc", "Cs")), None)
    if odd is not None:
        raise ValueError(f"must hold no control character (U+{ord(odd):04X}), as {shown(text)} does")
    return text


def _plausible(seconds: float) -> float:
    # What is no number, or negative, is a fault of the data that the gate tells; beyond these, sums overflow.
    if math.isfinite(seconds) and seconds and not SHORTEST_S <= abs(seconds) <= LONGEST_S:
        raise ValueError(f"must lie between 0.000001 and 1,000,000,000 seconds, not {shown(seconds)}")
    return seconds


Label = Annotated[str, Field(max_length=200), AfterValidator(_nameable)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_nameable)]
Stated = Annotated[str, Field(max_length=1000), AfterValidator(_nameable)]
Integer = Annotated[int, Field(strict=True, ge=-INTEGER, le=INTEGER)]
Repeat = Annotated[int, Field(strict=True, ge=0, le=INTEGER)]
Number = Annotated[int, Field(strict=True, ge=-MOST_CHECKS, le=MOST_CHECKS)]
Seconds = Annotated[float, Field(strict=True), AfterValidator(_plausible)]
Flag = Annotated[bool, Field(strict=True)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Result(_Form):
    """One attempt: its checks by id, or their number."""

    checks: Annotated[dict[Name, Flag], Field(max_length=MOST_NAMED)] | None = None
    checks_passed: Number | None = None
    checks_scored: Number = CHECKS
    wall_s: Seconds | None = None
    """Seconds of the agent's wall clock."""
    timed_out: Flag = False
    edited_production_code: Flag | None = None

    @model_validator(mode="after")
    def _agrees(self) -> "Result":
        if self.checks is not None:
            if self.checks_passed not in (None, self.passed):
                raise ValueError(f"checks_passed is {self.checks_passed}, but {self.passed} of the checks passed")
            if "checks_scored" in self.model_fields_set and self.checks_scored != self.scored:
                raise ValueError(f"checks_scored is {self.checks_scored}, but there are {self.scored} checks")
        return self

    @property
    def passed(self) -> int:
        """Return how many checks passed."""
        return sum(self.checks.values()) if self.checks is not None else self.checks_passed or 0

    @property
    def scored(self) -> int:
        """Return how many checks were scored."""
        return len(self.checks) if self.checks is not None else self.checks_scored


class ResultPair(_Form):
    """Both arms' attempts on one task with one seed."""

    task: Name
    seed: Integer = 0
    repeat: Repeat = 0
    label: Label = ""
    """What the source calls the pair; part of its id."""
    first_arm: Arm | None = None
    baseline: Result | None = None
    candidate: Result | None = None


class Results(_Form):
    """A file of results; the JSON form."""

    variable: Stated = "not stated"
    pairs: tuple[ResultPair, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Read:
    """What a file holds."""

    results: Results
    source: Json = None
    """Whatever else it tells, to be kept with the run."""
    faults: tuple[str, ...] = ()
    """What is wrong with lines that are in no pair."""


def read(path: Path, text: str) -> Read:
    """Return the results in `text`, by the ending of `path`. Raises UserError."""
    try:
        match path.suffix.lower():
            case ".toml":
                return _from_toml(toml(text, str(path)))
            case ".json":
                data = json_data(text, str(path), _object)
                if twice := _repeated(data):
                    raise UserError(f"{path}: key {plain_line('.'.join(twice))!r} is there twice")
                return Read(Results.model_validate(data))
            case ".csv":
                if crowded(text, ",\n"):
                    raise UserError(f"{path}: holds more than {MOST_VALUES:,} fields")
                return _from_csv(text.removeprefix("\ufeff"), str(path))
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error)}") from None
    raise UserError(f"{path}: the form is known by the ending, which must be .toml, .json or .csv")


class _Repeating(dict[str, Json]):
    """An object in which a key occurs twice."""

    again: str


def _object(items: Sequence[tuple[str, Json]]) -> Json:
    found = dict(items)
    if len(found) == len(items):
        return found
    repeating = _Repeating(found)
    keys = [key for key, _ in items]
    repeating.again = next(key for number, key in enumerate(keys) if key in keys[:number])
    return repeating


def _repeated(data: Json) -> tuple[str, ...]:
    if isinstance(data, _Repeating):
        return (data.again,)
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return next(((str(key), *found) for key, value in inner if (found := _repeated(value))), ())


class _Setup(BaseModel):
    baseline: Stated | None = None
    candidate: Stated | None = None
    task_time_limit_s: float = Field(math.inf, gt=0, strict=True)


class _TomlPair(ResultPair):
    pair: Label = Field("", coerce_numbers_to_str=True)
    """The label, as the published experiment's file calls it."""


class _Toml(BaseModel):
    """The form of published_experiment.toml; whatever else it tells is kept with the run."""

    setup: _Setup = _Setup()
    pairs: tuple[_TomlPair, ...] = Field(min_length=1)


def _from_toml(source: Mapping[str, Json]) -> Read:
    form = _Toml.model_validate(source)
    seen: dict[str, int] = {}
    pairs = []
    for entry in form.pairs:
        told = {name: getattr(entry, name) for name in entry.model_fields_set - {"pair"}}
        for arm in Arm:
            result = told.get(arm)
            if result and result.wall_s is not None and "timed_out" not in result.model_fields_set:
                timed_out = result.wall_s >= form.setup.task_time_limit_s
                told[arm] = result.model_copy(update={"timed_out": timed_out})
        number = seen[entry.task] = seen.get(entry.task, -1) + 1
        pairs.append(ResultPair.model_construct(**{"seed": number, "label": entry.pair, **told}))
    stated = [words for arm in Arm if (words := getattr(form.setup, arm))]
    variable = " against ".join(stated) or "not stated"
    equal = len(stated) == 2 and len({" ".join(words.casefold().split()) for words in stated}) == 1
    faults = (f"setup: both arms are {shown(stated[0])}: nothing differed that could be compared",) if equal else ()
    return Read(Results.model_construct(variable=variable, pairs=tuple(pairs)), _kept(source), faults)


def _kept(value: Json) -> Json:
    """Return what TOML can say as what JSON can."""
    match value:
        case dict():
            return {key: _kept(inner) for key, inner in value.items()}
        case list():
            return [_kept(inner) for inner in value]
        case datetime.date() | datetime.time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return str(value)
        case int() if abs(value) > INTEGER:
            return hex(value)
    return value


class _Line(Result):
    """A line of the CSV form."""

    task: Name
    seed: Integer
    arm: Arm
    repeat: Repeat = 0
    first_arm: Arm | None = None


Slot = tuple[str, int, int]


def _from_csv(text: str, name: str) -> Read:
    """Read one line an attempt: task, seed, arm, and checks_passed with checks_scored, or a `check:<id>` column each."""
    rows = _rows(text, name)
    header = _header(next(rows, (1, []))[1], f"{name}: line 1")
    attempts: dict[Slot, dict[Arm, Result]] = {}
    lines: dict[tuple[Slot, Arm], int] = {}
    first: dict[Slot, tuple[int, Arm]] = {}
    faults = []
    for number, fields in rows:
        line = _line(header, fields, f"{name}: line {number}")
        slot = (line.task, line.seed, line.repeat)
        if line.first_arm is not None:
            before = first.setdefault(slot, (number, line.first_arm))
            if before[1] is not line.first_arm:
                raise UserError(
                    f"{name}: line {number}: first_arm is {line.first_arm}, but line {before[0]} of the same pair says"
                    f" {before[1]}"
                )
        played = attempts.setdefault(slot, {})
        if line.arm in played:
            faults.append(
                f"{'-'.join(map(str, slot))}: line {number} is a duplicate attempt of the {line.arm}, which line"
                f" {lines[slot, line.arm]} has: task, seed and repeat are the same"
            )
            continue
        told = {key: getattr(line, key) for key in line.model_fields_set & Result.model_fields.keys()}
        played[line.arm], lines[slot, line.arm] = Result.model_construct(**told), number
    if not attempts:
        raise UserError(f"{name}: holds no line of results below the first")
    pairs = tuple(
        ResultPair.model_construct(
            task=slot[0],
            seed=slot[1],
            repeat=slot[2],
            first_arm=first[slot][1] if slot in first else None,
            baseline=played.get(Arm.BASELINE),
            candidate=played.get(Arm.CANDIDATE),
        )
        for slot, played in attempts.items()
    )
    return Read(Results.model_construct(pairs=pairs), None, tuple(faults))


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each line that is not blank, with the number of the first of its lines in the file."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    number = 1
    try:
        for fields in reader:
            if any(fields):
                yield number, [field.strip() for field in fields]
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{name}: line {number}: not valid CSV: {error}") from None


def _header(columns: Sequence[str], where: str) -> Sequence[str]:
    """Return the names of the columns. Raises UserError."""
    columns = [CHECK_COLUMN + c[len(CHECK_COLUMN) :].strip() if c.startswith(CHECK_COLUMN) else c for c in columns]
    if len(columns) == 1 and (mark := next((m for m in (";", "\t") if m in columns[0]), "")):
        used = "semicolons" if mark == ";" else "tabs"
        raise UserError(f"{where}: the columns are separated by {used}; this form takes commas (save it as such)")
    if missing := [column for column in COLUMNS if column not in columns]:
        raise UserError(f"{where}: must name the columns; missing: {', '.join(missing)}")
    known = [*COLUMNS, *OPTIONAL]
    for number, column in enumerate(columns, start=1):
        told = plain_line(repr(column), 60)
        if column in columns[: number - 1]:
            raise UserError(f"{where}: column {told} is there twice")
        if column.startswith(CHECK_COLUMN) and column != CHECK_COLUMN:
            continue
        if column not in known:
            raise UserError(
                f"{where}: unknown column {told} (number {number}){nearest(column, [*known, 'check:<id>'])}"
            )
    return columns


def _line(header: Sequence[str], fields: Sequence[str], where: str) -> _Line:
    if len(fields) != len(header):
        raise UserError(f"{where}: has {counted(len(fields), 'field')}, and the first line {len(header)}")
    cells = {column: cell for column, cell in zip(header, fields, strict=True) if cell or column in COLUMNS}
    flags = {
        column: _flag(cell, f"{where}: column {plain_line(repr(column), 60)}")
        for column, cell in cells.items()
        if column == "timed_out" or column.startswith(CHECK_COLUMN)
    }
    checks = {column.removeprefix(CHECK_COLUMN): flag for column, flag in flags.items() if column != "timed_out"}
    told: dict[str, Json] = {column: _value(column, cell) for column, cell in cells.items() if column not in flags}
    told |= {"timed_out": flags.get("timed_out", False)} | ({"checks": checks} if checks else {})
    try:
        return _Line.model_validate(told)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error, noun='column')}") from None


def _value(column: str, cell: str) -> Json:
    """Return a cell's number where it is one as CSV writes it; Python would also read `1_0` and other scripts' digits."""
    if column in INTEGERS and WHOLE.fullmatch(cell):
        return int(cell)
    if column == "wall_s" and DECIMAL.fullmatch(cell):
        return float(cell)
    return cell


def _flag(cell: str, where: str) -> bool:
    word = cell.lower()
    if word not in TRUE + FALSE:
        raise UserError(f"{where}: must be {', '.join(TRUE)}, or {', '.join(FALSE)}, not {shown(cell)}")
    return word in TRUE
