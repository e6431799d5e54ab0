"""Files that others wrote: read whole, or refused in one line of our own words."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_ab.errors import UserError
from agent_ab.model import Arm
from agent_ab.reading import DEEPEST, explain, json_data, toml


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(1, ge=1, le=9)
    layers: int | str | None = None
    names: tuple[str, ...] = Field(("a",), min_length=1)


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner = Inner()
    share: float = Field(0.5, gt=0, lt=1, allow_inf_nan=False)
    arm: Arm = Arm.BASELINE
    on: bool = False
    date: str = Field("1", pattern=r"^\d$")
    must: int


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "key 'must' is missing"),
        ({"must": 1, "more": 2}, "unknown key 'more'"),
        ({"must": "x1"}, "key 'must': must be a whole number, not 'x1'"),
        ({"must": 1.5}, "key 'must': must be a whole number, not 1.5"),
        ({"must": float("nan")}, "key 'must': must be a finite number, not nan"),
        ({"must": None}, "key 'must': must be a whole number, not nothing"),
        ({"must": 1, "share": 1.5}, "key 'share': must be below 1, not 1.5"),
        ({"must": 1, "share": "a"}, "key 'share': must be a number, not 'a'"),
        ({"must": 1, "share": float("inf")}, "key 'share': must be a finite number, not inf"),
        ({"must": 1, "on": "perhaps"}, "key 'on': must be true or false, not 'perhaps'"),
        ({"must": 1, "arm": "left"}, "key 'arm': must be 'baseline' or 'candidate', not 'left'"),
        ({"must": 1, "date": "x"}, r"key 'date': must be text like ^\d$, not 'x'"),
        ({"must": 1, "inner": 3}, "key 'inner': must be a table of keys, not 3"),
        ({"must": 1, "inner": {"size": 10**30}}, f"key 'inner.size': must be at most 9, not {10**30}"),
        ({"must": 1, "inner": {"size": 10**5000}}, "key 'inner.size': must be at most 9, not a number of many digits"),
        ({"must": 1, "inner": {"layers": [1]}}, "key 'inner.layers': must be a whole number or text, not a list"),
        ({"must": 1, "inner": {"names": []}}, "key 'inner.names': must have at least 1 entry, not an empty list"),
        ({"must": 1, "inner": {"names": 3}}, "key 'inner.names': must be a list, not 3"),
        ({"must": 1, "inner": {"names": [True]}}, "key 'inner.names.0': must be text, not true"),
        ([1], "must be a table of keys, not a list"),
        (
            {"must": "\x1b[2J\n::error::x\u202e"},
            "key 'must': must be a whole number, not '\\x1b[2J\\n: :error: :x\\u202e'",
        ),
        ({"must": 1, "::error::\n": 1}, "unknown key ': :error: :'"),
    ],
)
def test_a_fault_names_its_key_what_is_wanted_and_what_stands_there(data: Any, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(data)
    assert explain(caught.value) == words


def test_a_fault_within_an_arm_names_the_arm() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({})
    assert explain(caught.value, prefix="candidate") == "key 'candidate.must' is missing"


def test_a_byte_order_mark_is_no_part_of_a_file() -> None:
    assert toml("\ufeffa = 1", "f") == {"a": 1}
    assert json_data("\ufeff[1]", "f") == [1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = ", "f: not valid TOML: Invalid value"),
        ("\na = " + "9" * 5000, "f: line 2: a number has more than 4300 digits"),
        ("a = " + "[" * 100_000, "f: is nested more than 64 tables or lists deep"),
        ("a = " + "{b = " * 100 + "1" + "}" * 100, "f: is nested more than 64 tables or lists deep"),
        (".".join("a" * 50_000) + " = 1", "f: a key has more than 32 dots"),
        ("[" + " . ".join("a" * 40) + "]", "f: a key has more than 32 dots"),
        ("x = 'a' # it's\n" + ".".join(["'a.b'", '"\\""'] * 20) + " = 1", "f: a key has more than 32 dots"),
        ("a = {" + ".".join("a" * 40) + " = 1}", "f: a key has more than 32 dots"),
        ('x = "' + '\\"' * 400_000, "f: not valid TOML: Unterminated string"),
        ("x = " + "'''" * 300_001, "f: not valid TOML: "),
    ],
)
def test_toml_that_cannot_be_read_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        toml(text, "f")
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "f: not valid JSON: "),
        ('{"a":\n' + "9" * 5000 + "}", "f: line 2: a number has more than 4300 digits"),
        ("[" * 100_000, "f: is nested more than 64 tables or lists deep"),
        ("[" * 100 + "]" * 100, "f: is nested more than 64 tables or lists deep"),
    ],
)
def test_json_that_cannot_be_read_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        json_data(text, "f")
    assert str(caught.value).startswith(words)


def test_what_is_nested_as_deep_as_allowed_is_read() -> None:
    text = "[" * DEEPEST + "]" * DEEPEST
    assert json_data(text, "f") == json.loads(text)
    assert json_data("null", "f") is None


def test_dots_that_make_no_key_are_no_bomb() -> None:
    dots = "a." * 100
    text = f"""# {dots}
    a = '{dots}'
    b = "{dots}"
    c = '''
{dots}'''
    d = [{"1.5, " * 100}]
    {".".join("e" * 30)} = 1
    """
    found = toml(text, "f")
    assert (found["a"], found["b"], found["c"], len(found["d"])) == (dots, dots, dots, 100)


def test_what_holds_too_many_values_is_refused_before_it_is_parsed() -> None:
    dense = "{}," * 5_000_000 + "1]"
    for load, text in ((json_data, f"[{dense}"), (toml, f"a = [{dense}")):
        with pytest.raises(UserError, match=r"^f: holds more than 10,000,000 values$"):
            load(text, "f")
