"""A run grows until its evidence decides, and not a block longer. One that never decides is in test_apparatus.py."""

from pathlib import Path

import pytest

from tests.command import agent_ab
from tests.live.test_apparatus import SHORT
from tests.small_suite import SmallSuite, small_suite

FORCED = "n_max = 3\nn_min = 0\np_min = 0.0\n"


def extended(small: SmallSuite, policy: str) -> dict[str, object]:
    """Play one seed, extend, and return the verdict's data."""
    (small.folder / "gate.toml").write_text(policy, encoding="utf-8")
    words = small.words("--policy", "gate.toml", "--extend", "--json")
    words[words.index("--seeds") + 1] = "4242"
    done = agent_ab(small.folder, *words, timeout_s=900)
    assert done.status == 0, done.stderr
    verdict: dict[str, object] = agent_ab(small.folder, "gate", "--json").data
    return verdict


@pytest.mark.long
def test_a_known_bad_candidate_is_played_until_it_is_rejected(tmp_path: Path) -> None:
    small = small_suite(tmp_path, 1, {**SHORT, FORCED: f"{FORCED}synth_rates = [1.0, 1.0, 1.0]\n"})
    verdict = extended(small, "alpha = 0.45\nmax_pairs = 10\n")
    counts = verdict["counts"]
    assert isinstance(counts, dict)
    # Half of the checks are lost in each pair: four of them are enough for so large an alpha, three are not.
    assert (verdict["verdict"], counts["planned"], counts["counted"], counts["blocks"]) == ("REJECT", 4, 4, 4)


@pytest.mark.long
def test_a_run_that_has_decided_does_not_grow(tmp_path: Path) -> None:
    verdict = extended(
        small_suite(tmp_path, 2), "margin = 0.99\nalpha = 0.45\nmax_time_ratio = 1000.0\nmax_pairs = 10\n"
    )
    counts = verdict["counts"]
    assert isinstance(counts, dict)
    assert (verdict["verdict"], counts["planned"]) == ("ADOPT", 2)
