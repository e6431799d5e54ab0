"""How many pairs a margin takes."""

import importlib
import inspect
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import typer

from agent_ab.cli.app import COMMANDS, app
from agent_ab.errors import UserError
from agent_ab.gate import planning
from agent_ab.gate.policy import Policy
from tests import stored
from tests.command import here

POLICY = Policy()


def test_a_given_deviation_plans_the_pairs_of_the_table() -> None:
    (row,) = planning.sizes(0.31819805, POLICY, (0.10,), 600.0)
    assert (row.fixed, row.difference, row.anytime) == (64, 82, 105)
    assert (row.fixed_s, row.anytime_s) == (64 * 600, 105 * 600)


def test_without_variation_only_the_gates_own_evidence_can_be_planned() -> None:
    (row,) = planning.sizes(0.0, POLICY, (0.10,), None)
    assert (row.anytime, row.fixed, row.difference, row.anytime_s) == (36, None, None, None)


def test_an_aa_run_plans_with_its_own_spread_and_time(tmp_path: Path) -> None:
    store = stored.database(tmp_path)
    pairs = [stored.pair("aa", n, 10, 10 if n else 1) for n in range(8)]
    pairs = [replace(p, candidate=replace(p.candidate, settings=p.baseline.settings)) for p in pairs]
    stored.save(store, "aa", pairs, kind="aa")
    store.close()
    basis = planning.from_aa(tmp_path / "runs.db", "", POLICY)
    assert (round(basis.sd, 4), basis.pair_s) == (0.3182, 24.0)
    assert basis.sd_interval == pytest.approx((0.2104, 0.6476), abs=5e-5)
    assert "from 8 pairs of the A/A run aa (95 % interval 0.2104 to 0.6476" in basis.sentence
    done = here(tmp_path, "plan", "--margin", "0.1", "--json")
    assert (done.status, done.data["sizes"][0]["fixed"], done.data["sizes"][0]["fixed_s"]) == (0, 64, 64 * 24.0)


def test_without_an_aa_run_a_deviation_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="or give --sd"):
        planning.from_aa(tmp_path / "runs.db", "", POLICY)
    store = stored.database(tmp_path)
    stored.save(store, "suite", [])
    store.close()
    with pytest.raises(UserError, match="holds no A/A run; `agent-ab aa` plays one"):
        planning.from_aa(tmp_path / "runs.db", "", POLICY)
    with pytest.raises(UserError, match="holds no A/A run 'suite'"):
        planning.from_aa(tmp_path / "runs.db", "suite", POLICY)


def test_a_deviation_of_one_pair_is_none(tmp_path: Path) -> None:
    store = stored.database(tmp_path)
    stored.save(store, "aa", [stored.pair("aa", 0)], kind="aa")
    store.close()
    with pytest.raises(UserError, match="holds 1 valid pairs; it takes two"):
        planning.from_aa(tmp_path / "runs.db", "aa", POLICY)


def test_the_page_has_the_table_that_the_command_prints(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "statistics.md").read_text(encoding="utf-8")
    (sd,) = re.findall(r"agent-ab plan --sd ([0-9.]+)", page)
    rows = re.findall(r"^\| (0\.\d\d) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    sizes = here(tmp_path, "plan", "--sd", sd, "--json").data["sizes"]
    planned = [(f"{s['margin']:.2f}", *(str(s[key]) for key in ("anytime", "fixed", "difference"))) for s in sizes]
    assert rows == planned


@pytest.mark.parametrize("margin", ["0.001", "0.005", "0.025", "0.1"])
def test_a_margin_is_printed_as_it_was_given(tmp_path: Path, margin: str) -> None:
    assert f"\n{margin} " in here(tmp_path, "plan", "--sd", "0.1", "--margin", margin).stdout


def test_numbers_that_are_not_there_are_explained(tmp_path: Path) -> None:
    far = here(tmp_path, "plan", "--sd", "1", "--margin", "0.001").stdout
    assert "-: more than 100 000 pairs, out of reach; a wider margin takes fewer" in far
    still = here(tmp_path, "plan", "--sd", "0").stdout
    assert "-: a t test needs pairs that vary" in still and "out of reach" not in still
    assert "-:" not in here(tmp_path, "plan", "--sd", "0.1").stdout


def test_a_run_and_a_deviation_together_are_refused(tmp_path: Path) -> None:
    done = here(tmp_path, "plan", "--aa", "some", "--sd", "0.1")
    assert (done.status, done.error) == (
        2,
        "error: --aa and --sd: the standard deviation comes from the one or the other; give one of them",
    )


def test_that_few_pairs_did_not_vary_is_told_to_be_no_certainty(tmp_path: Path) -> None:
    store = stored.database(tmp_path)
    stored.save(store, "aa", [stored.pair("aa", n) for n in range(2)], kind="aa")
    store.close()
    sentence = planning.from_aa(tmp_path / "runs.db", "", POLICY).sentence
    assert "no variation in 2 pairs is no certainty: up to 77.6 % of all pairs may differ" in sentence
    assert "certainty" not in planning.Basis(0.0, None, None, "given").sentence


@pytest.mark.parametrize("value", ["inf", "1e308", "nan", "-1"])
def test_minutes_that_nobody_waits_are_refused_in_one_line(tmp_path: Path, value: str) -> None:
    done = here(tmp_path, "plan", "--sd", "0.1", "--pair-minutes", value)
    assert (done.status, done.stdout) == (2, "")
    assert "'--pair-minutes'" in done.error


def test_every_number_option_is_bounded_and_refuses_what_is_none() -> None:
    for name in COMMANDS.values():
        importlib.import_module(f"agent_ab.cli.{name}")
    checked = 0
    for command in app.registered_commands:
        assert command.callback
        for name, parameter in inspect.signature(command.callback).parameters.items():
            kind, *options = get_args(parameter.annotation) or (None,)
            if kind is float or float in get_args(kind) or list[float] in get_args(kind):
                (option,) = options
                assert None not in (option.min, option.max), name
                for given in (math.nan, [1.0, math.nan]):
                    with pytest.raises(typer.BadParameter):
                        option.callback(given)
                assert option.callback(1.0) == 1.0 and option.callback(None) is None
                checked += 1
    assert checked >= 7
