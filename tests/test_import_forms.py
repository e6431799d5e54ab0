"""The three forms of results from elsewhere: what is refused, with the line or key, what stands there and what must."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_ab.errors import UserError
from agent_ab.gate.import_forms import read


def _one(**changes: Any) -> str:
    return json.dumps({"pairs": [{"task": "a", "seed": 1, **changes}]})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("r.txt", "", "the form is known by the ending"),
        ("r.json", "{", "not valid JSON"),
        ("r.json", "[1]", "r.json: must be a table of keys, not a list"),
        ("r.json", '{"pairs": []}', "key 'pairs': must have at least 1 entry, not an empty list"),
        ("r.json", '{"pairs": [{"task": "a", "sede": 1}]}', "unknown key 'pairs.0.sede'"),
        ("r.json", '{"pairs": [{"task": "a", "seed": 1, "seed": 2}]}', "key 'pairs.0.seed' is there twice"),
        (
            "r.json",
            '{"pairs": [{"task": "a", "baseline": {"checks": {"x": true, "x": false}}}]}',
            "'pairs.0.baseline.checks.x'",
        ),
        ("r.json", '{"pairs": [{"task": "a", "seed": NaN}]}', "key 'pairs.0.seed': must be a whole number, not nan"),
        ("r.json", "[" * 100_000, "is nested more than 64"),
        ("r.json", '{"pairs": [{"seed": ' + "9" * 5000 + "}]}", "line 1: a number has more than 4300 digits"),
        ("r.json", _one(seed=10**30), "key 'pairs.0.seed': must be at most 9223372036854775807, not 1000"),
        ("r.json", _one(repeat=10**30), "key 'pairs.0.repeat': must be at most 9223372036854775807"),
        ("r.json", _one(task="\ud800"), "key 'pairs.0.task': must be text without half characters"),
        ("r.json", _one(task="a\0b"), "key 'pairs.0.task': must hold no control character .U.0000., as 'a.x00b' does"),
        ("r.json", _one(label="a\nb"), "key 'pairs.0.label': must hold no control character .U.000A."),
        ("r.json", _one(task="x" * 10**6), "key 'pairs.0.task': must have at most 200 characters"),
        (
            "r.json",
            _one(baseline={"checks_passed": 10**30}),
            "key 'pairs.0.baseline.checks_passed': must be at most 1000000",
        ),
        (
            "r.json",
            _one(baseline={"checks_scored": -(10**30)}),
            "'pairs.0.baseline.checks_scored': must be at least -1000000",
        ),
        (
            "r.json",
            _one(baseline={"checks": {"x\x1ey": True}}),
            "key 'pairs.0.baseline.checks.x.y': must hold no control",
        ),
        ("r.json", _one(baseline={"wall_s": 1e308}), "'pairs.0.baseline.wall_s': must lie between"),
        ("r.json", _one(baseline={"wall_s": 10**400}), "'pairs.0.baseline.wall_s': must be a number"),
        (
            "r.json",
            _one(baseline={"checks": {"x": True}, "checks_passed": 0}),
            "checks_passed is 0, but 1 of the checks passed",
        ),
        (
            "r.json",
            _one(baseline={"checks": {"x": True}, "checks_scored": 2}),
            "checks_scored is 2, but there are 1 checks",
        ),
        (
            "r.json",
            json.dumps({"variable": "x" * 2000, "pairs": []}),
            "key 'variable': must have at most 1 000 characters",
        ),
        ("r.toml", "pairs = 3", "key 'pairs': must be a list, not 3"),
        ("r.toml", "= 3", "not valid TOML"),
        ("r.toml", "x = " + "[" * 100_000, "is nested more than 64"),
        (
            "r.toml",
            "[[pairs]]\ntask = 'a'\nseed = " + "9" * 30,
            "key 'pairs.0.seed': must be at most 9223372036854775807",
        ),
        ("r.toml", "[[pairs]]\ntask = 'a'\npair = \"\\u001b\"", "key 'pairs.0.pair': must hold no control character"),
        (
            "r.toml",
            "[[pairs]]\ntask = 'a'\nbaseline = {wall_s = 'x'}",
            "key 'pairs.0.baseline.wall_s': must be a number, not 'x'",
        ),
        (
            "r.toml",
            "[setup]\ntask_time_limit_s = 'x'\n[[pairs]]\ntask = 'a'",
            "key 'setup.task_time_limit_s': must be a number",
        ),
        ("r.csv", "", "line 1: must name the columns; missing: task, seed, arm"),
        ("r.csv", "task,seed\n", "line 1: must name the columns; missing: arm"),
        ("r.csv", "task,seed,arm\n", "holds no line of results"),
        (
            "r.csv",
            "task;seed;arm\na;1;baseline\n",
            "line 1: the columns are separated by semicolons; this form takes commas",
        ),
        (
            "r.csv",
            "task,seed,arm,chekcs_passed\n",
            "line 1: unknown column 'chekcs_passed' .number 4.; did you mean checks_passed",
        ),
        ("r.csv", "task,seed,arm,seed\n", "line 1: column 'seed' is there twice"),
        ("r.csv", "task,seed,arm,check:x,check: x\n", "line 1: column 'check:x' is there twice"),
        ("r.csv", "task,seed,arm,\na,1,baseline,\n", "line 1: unknown column '' .number 4."),
        ("r.csv", "task,seed,arm\na,1,left\n", "line 2: column 'arm': must be 'baseline' or 'candidate', not 'left'"),
        (
            "r.csv",
            "task,seed,arm,check:x\na,1,baseline,perhaps\n",
            "line 2: column 'check:x': must be 1, true, .* not 'perhaps'",
        ),
        ("r.csv", "task,seed,arm\na,1\n", "line 2: has 2 fields, and the first line 3"),
        ("r.csv", "task,seed,arm\n\n\na,x,baseline\n", "line 4: column 'seed': must be a whole number, not 'x'"),
        (
            "r.csv",
            'task,seed,arm\n"a\nb",1,baseline\n',
            "line 2: column 'task': must hold no control character .U.000A.",
        ),
        (
            "r.csv",
            f"task,seed,arm\na,{10**30},baseline\n",
            "line 2: column 'seed': must be at most 9223372036854775807",
        ),
        ("r.csv", "task,seed,arm\na," + "9" * 5000 + ",baseline\n", "line 2: column 'seed': must be a whole number"),
        ("r.csv", f"task,seed,arm,repeat\na,1,baseline,{10**30}\n", "line 2: column 'repeat': must be at most"),
        (
            "r.csv",
            f"task,seed,arm,checks_scored\na,1,baseline,{10**30}\n",
            "line 2: column 'checks_scored': must be at most",
        ),
        ("r.csv", "task,seed,arm\na,1_0,baseline\n", "line 2: column 'seed': must be a whole number, not '1_0'"),
        ("r.csv", "task,seed,arm\na,1.0,baseline\n", "line 2: column 'seed': must be a whole number, not '1.0'"),
        ("r.csv", "task,seed,arm\na,\u0661,baseline\n", "line 2: column 'seed': must be a whole number"),
        (
            "r.csv",
            "task,seed,arm,wall_s\na,1,baseline,1_0.5\n",
            "line 2: column 'wall_s': must be a number, not '1_0.5'",
        ),
        *(
            ("r.json", f'{{"pairs": [{{"task": "a", {wrong}}}]}}', f"key 'pairs.0.{key}': must be {told}")
            for wrong, key, told in (
                ('"seed": true', "seed", "a whole number, not true"),
                ('"seed": "1"', "seed", "a whole number, not '1'"),
                ('"repeat": true', "repeat", "a whole number, not true"),
                ('"baseline": {"checks": {"x": "true"}}', "baseline.checks.x", "true or false, not 'true'"),
                ('"baseline": {"checks": {"x": 1}}', "baseline.checks.x", "true or false, not 1"),
                ('"baseline": {"timed_out": "no"}', "baseline.timed_out", "true or false, not 'no'"),
                ('"baseline": {"wall_s": "1"}', "baseline.wall_s", "a number, not '1'"),
                ('"baseline": {"wall_s": true}', "baseline.wall_s", "a number, not true"),
                ('"baseline": {"checks_passed": 1.0}', "baseline.checks_passed", "a whole number, not 1.0"),
            )
        ),
        ("r.csv", 'task,seed,arm,wall_s\na,1,baseline,"1,5"\n', "line 2: column 'wall_s': must be a number, not '1,5'"),
        ("r.csv", "task,seed,arm\n" + "x" * 200_000 + ",1,baseline\n", "line 2: not valid CSV: field larger than"),
        ("r.csv", 'task,seed,arm\na,1,baseline\n"b,1,baseline\n', "line 3: not valid CSV: unexpected end of data"),
        (
            "r.csv",
            "task,seed,arm,first_arm\na,1,baseline,baseline\na,1,candidate,candidate\n",
            "line 3: first_arm is candidate, but line 2 of the same pair says baseline",
        ),
    ],
)
def test_a_file_of_no_known_form_is_refused_with_its_place(name: str, content: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        read(Path(name), content)
    assert str(caught.value).startswith(f"{name}: ") and "\n" not in str(caught.value)
