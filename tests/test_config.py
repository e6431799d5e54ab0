"""Profiles and seeds: what is read, and what is refused with one clear line."""

from pathlib import Path

import pytest

from agent_ab.config import differing, load_profile, load_seeds
from agent_ab.errors import UserError
from agent_ab.model import Arm
from agent_ab.pair.speculation import KINDS
from agent_ab.pair.variable import named
from agent_ab.vllm.command import METHODS

ROOT = Path(__file__).parent.parent
GOOD = """
variable = "server.speculation"
[server]
context = 4096
[baseline.server.speculation]
type = "none"
[candidate.server.speculation]
type = "draft-mtp"
n_max = 3
"""


def load(tmp_path: Path, text: str) -> object:
    (tmp_path / "p.toml").write_text(text)
    return load_profile("p", tmp_path)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_profile_loads_and_differs_in_its_variable_only(path: Path) -> None:
    profile = load_profile(path.stem, path.parent)
    for one in [profile.only(name) for name in profile.candidates] or [profile]:
        names = differing(one.arm(Arm.BASELINE), one.arm(Arm.CANDIDATE))
        assert names and all(named(profile.variable).covers(name) for name in names)
    assert profile.description


def test_an_unknown_profile_is_named_with_its_neighbours() -> None:
    with pytest.raises(UserError, match="did you mean cpu-demo"):
        load_profile("cpu-dmo", ROOT / "profiles")


def test_an_unknown_key_is_named_with_file_table_and_neighbour(tmp_path: Path) -> None:
    message = refusal(tmp_path, GOOD.replace("context", "contxt"))
    assert "p.toml" in message and "'server.contxt'" in message and "context" in message


def test_an_unknown_key_of_an_arm_is_named(tmp_path: Path) -> None:
    assert "'candidate.server.speculation.nmax'" in refusal(tmp_path, GOOD.replace("n_max", "nmax"))


def test_a_value_of_the_wrong_type_names_its_key(tmp_path: Path) -> None:
    assert "'server.context'" in refusal(tmp_path, GOOD.replace("4096", '"big"'))


def test_a_value_that_an_arm_overrides_badly_names_the_arm(tmp_path: Path) -> None:
    assert "'candidate.server.speculation.n_max'" in refusal(tmp_path, GOOD.replace("n_max = 3", "n_max = 0"))


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    assert "line 3" in refusal(tmp_path, 'variable = "server.speculation"\n[server]\ncontext = = 3\n')


def test_a_difference_outside_the_declared_variable_is_refused_before_anything_runs(tmp_path: Path) -> None:
    message = refusal(tmp_path, GOOD + "[candidate.agent]\nmax_turns = 3\n")
    assert "agent.max_turns" in message and "server.speculation" in message


def test_a_variable_that_nothing_is_known_of_is_refused_with_its_neighbours(tmp_path: Path) -> None:
    message = refusal(tmp_path, GOOD.replace('"server.speculation"', '"server.kv_typ"'))
    assert "key 'variable'" in message and "server.kv_type" in message


def test_a_variable_may_cover_settings_that_belong_together(tmp_path: Path) -> None:
    arms = '[candidate.server]\nkv_type_k = "q8_0"\nkv_type_v = "q8_0"\n'
    text = GOOD.split("[baseline")[0].replace("server.speculation", "server.kv_type") + arms
    load(tmp_path, text)
    assert "server.kv_type_v" in refusal(tmp_path, text.replace('"server.kv_type"', '"server.kv_type_k"'))


def test_several_candidates_are_each_checked_and_named(tmp_path: Path) -> None:
    base = GOOD.split("[candidate")[0]
    arms = '[candidates.two.server.speculation]\ntype = "draft-mtp"\nn_max = 2\n[candidates.four.server]\n'
    load(tmp_path, base + arms)
    assert "'candidates.four.server.nonsense'" in refusal(tmp_path, base + arms + "nonsense = 1\n")
    assert "of candidates.four differ in server.context" in refusal(tmp_path, base + arms + "context = 8192\n")
    assert "both 'candidate' and 'candidates'" in refusal(tmp_path, GOOD + arms)


def test_the_arm_order_comes_from_the_seeds_file() -> None:
    seeds = load_seeds(ROOT / "seeds.toml")
    assert seeds.first_arm(4242) is Arm.BASELINE
    assert seeds.first_arm(8675309) is Arm.CANDIDATE


def test_unlisted_seeds_are_played_in_both_orders() -> None:
    seeds = load_seeds(ROOT / "seeds.toml")
    assert {seeds.first_arm(seed) for seed in range(20)} == set(Arm)


def methods(name: str, rest: str = 'type = "draft-dflash"', engine: str = "") -> str:
    return f"{GOOD.replace('[server]', '[server]' + engine)}[methods.{name}]\n{rest}\n"


@pytest.mark.parametrize(
    ("engine", "kind", "nearest"),
    [
        ("", "draft-dlfash", "draft-dflash"),
        ("", "ngram-mod, draft-mpt", "draft-mtp"),
        ("\nengine = 'vllm'", "eagel3", "eagle3"),
    ],
)
def test_a_methods_type_that_no_server_has_is_refused_before_anything_is_played(
    tmp_path: Path, engine: str, kind: str, nearest: str
) -> None:
    message = refusal(tmp_path, methods("mine", f'type = "{kind}"', engine))
    assert "'methods.mine.type'" in message and f"did you mean {nearest}" in message


def test_every_type_of_an_engine_can_be_a_method(tmp_path: Path) -> None:
    for kind in KINDS["llama-server"]:
        load(tmp_path, methods("mine", f'type = "{kind}"'))
    assert tuple(METHODS) == KINDS["vllm"]


def test_an_unknown_key_is_named_in_tables_by_name_in_optional_ones_and_in_lists(tmp_path: Path) -> None:
    draft = 'type = "draft-eagle3"\ndraft = { source = "generated", acceptence = 0.7 }'
    message = refusal(tmp_path, methods("mine", draft))
    assert "unknown key 'methods.mine.draft.acceptence'; did you mean acceptance?" in message
    assert "'methods.mine.n_mx'; did you mean n_max" in refusal(tmp_path, methods("mine", "n_mx = 3"))
    in_arm = GOOD + "[candidate.server.speculation.draft]\nsuorce = 'self'\n"
    assert "'candidate.server.speculation.draft.suorce'; did you mean source" in refusal(tmp_path, in_arm)
    (tmp_path / "seeds.toml").write_text("[[seeds]]\nseed = 1\nfirst = 'baseline'\n[[seeds]]\nseeed = 2\n")
    with pytest.raises(UserError, match=r"unknown key 'seeds\.1\.seeed'; did you mean seed"):
        load_seeds(tmp_path / "seeds.toml")


def test_a_method_may_not_take_the_baselines_name(tmp_path: Path) -> None:
    assert "'methods.none': is the baseline" in refusal(tmp_path, methods("none"))


@pytest.mark.parametrize(
    "name", ["a,b", "a b", " a", r"a\tb", r"a\nb", r"\u001b[31m", r"a\u202eb", "a/b", "", "a" * 61]
)
def test_a_name_that_can_never_be_chosen_or_written_is_refused_with_its_key(tmp_path: Path, name: str) -> None:
    message = refusal(tmp_path, methods(f'"{name}"'))
    assert "key 'methods." in message and "letters, digits" in message and message.isprintable()
    arms = GOOD[: GOOD.index("[candidate.")] + f'[candidates."{name}".server.speculation]\ntype = "draft-mtp"\n'
    assert "key 'candidates." in refusal(tmp_path, arms)
    assert load(tmp_path, methods('"EAGLE-3.1_b+c"'))
