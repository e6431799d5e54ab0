"""gate.toml: what it says, what is refused, and its hash."""

import os
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.gate.policy import Policy, changes, load_policy, shipped_policy, stored_policy
from agent_ab.schedule import digest

SHIPPED = (files("agent_ab") / "data" / "gate.toml").read_text(encoding="utf-8")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_file_says_the_defaults_and_explains_every_key() -> None:
    assert shipped_policy() == load_policy(None) == Policy()
    assert set(tomllib.loads(SHIPPED)) == set(Policy.model_fields)
    blocks = SHIPPED.split("\n\n")[1:]
    assert all(block.startswith("# ") for block in blocks)


def test_a_policy_is_the_same_again_after_it_was_stored() -> None:
    policy = Policy(margin=0.2, inside_margin="adopt")
    assert stored_policy(policy.to_json()) == policy


def test_the_hash_changes_with_every_key() -> None:
    changed = [
        Policy(margin=0.2),
        Policy(alpha=0.01),
        Policy(max_solved_loss=0.0),
        Policy(min_baseline_solved=0.5),
        Policy(max_time_ratio=1.2),
        Policy(solved_margin=0.2),
        Policy(inside_margin="adopt"),
        Policy(max_pairs=40),
        Policy(quarantine_after=0),
        Policy(void_retries=0),
    ]
    assert len(changed) == len(Policy.model_fields)
    assert len({policy.sha256() for policy in (Policy(), *changed)}) == len(changed) + 1
    assert all(len(changes(Policy(), policy)) == 1 for policy in changed)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("margni = 0.1", "unknown key 'margni'; did you mean margin"),
        ("margin = 1.5", "key 'margin': must be below 1, not 1.5"),
        ("margin = nan", "key 'margin': must be a finite number, not nan"),
        ("margin = true", "key 'margin': must be a number, not true"),
        ("margin = '0.1'", "key 'margin': must be a number, not '0.1'"),
        ("max_pairs = '12'", "key 'max_pairs': must be a whole number, not '12'"),
        ("max_pairs = 12.0", "key 'max_pairs': must be a whole number, not 12.0"),
        ("void_retries = true", "key 'void_retries': must be a whole number, not true"),
        ("void_retries = 1e9", "key 'void_retries': must be a whole number"),
        ("alpha = 0", "key 'alpha': must be above 0, not 0"),
        ("max_time_ratio = inf", "key 'max_time_ratio'"),
        ("inside_margin = 'perhaps'", "key 'inside_margin'"),
        ("margin = ", "not valid TOML"),
    ],
)
def test_a_wrong_policy_is_refused_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load_policy(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_a_policy_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_policy(tmp_path / "gate.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="UTF-8"):
        load_policy(tmp_path / "binary.toml")


def test_a_whole_number_is_a_number_too(tmp_path: Path) -> None:
    policy = load_policy(written(tmp_path, "max_solved_loss = 0\nmax_time_ratio = 1"))
    assert policy.sha256() == Policy(max_solved_loss=0.0).sha256()


def test_a_stored_policy_of_another_time_is_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match="name a file with --policy"):
        stored_policy({"margin": 0.1, "gone": 1})


def test_a_policy_from_before_solved_margin_keeps_its_hash() -> None:
    before = {key: value for key, value in Policy().to_json().items() if key != "solved_margin"}
    assert stored_policy(before) == Policy()
    assert Policy().has_hash(digest(before)) and Policy().has_hash(Policy().sha256())
    assert not Policy(margin=0.2).has_hash(digest(before)) and not Policy(solved_margin=0.2).has_hash(digest(before))


def test_a_policy_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate.toml")
    with pytest.raises(UserError, match=r"gate\.toml: cannot be read: is no regular file"):
        load_policy(tmp_path / "gate.toml")
