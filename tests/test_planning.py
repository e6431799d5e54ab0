"""How many pairs a margin takes."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.gate import planning
from agent_ab.gate.policy import Policy
from tests import stored
from tests.command import here

POLICY = Policy()


def test_a_given_deviation_plans_the_pairs_of_the_table() -> None:
    (row,) = planning.sizes(0.31819805, POLICY, (0.10,), 600.0)
    assert (row.fixed, row.difference, row.anytime) == (64, 82, 99)
    assert (row.fixed_s, row.anytime_s) == (64 * 600, 99 * 600)


def test_without_variation_only_the_gates_own_evidence_can_be_planned() -> None:
    (row,) = planning.sizes(0.0, POLICY, (0.10,), None)
    assert (row.anytime, row.fixed, row.difference, row.anytime_s) == (43, None, None, None)


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
