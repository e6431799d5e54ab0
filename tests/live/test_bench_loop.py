"""A bench on the real llama-server: every drafting method, its acceptance, its text, and drafts that do not fit."""

import json
from pathlib import Path

import pytest

from agent_ab.bench import loop, requests
from agent_ab.bench.methods import parse
from agent_ab.bench.result import Plan
from agent_ab.bench.stats import ALL
from agent_ab.config import Draft, Profile, Speculation, load_profile
from agent_ab.model import Task
from agent_ab.models import drafts, models
from tests.command import ROOT
from tests.conftest import ignore
from tests.test_drafts import SCRIPT
from tests.tiny_task import tiny_task


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """Return a task whose script says about 150 tokens."""
    return tiny_task(tmp_path_factory.mktemp("bench"), {"scripts/solve.toml": SCRIPT})


@pytest.fixture(scope="module")
def profile(task: Task, scripted: models.Model, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """Return the scripted bench's profile with two drafts that do not fit: of another target, and of another kind."""
    foreign = tmp_path_factory.mktemp("foreign") / "eagle3.gguf"
    drafts.write(scripted.path, drafts.Wanted("draft-eagle3", 3, 0.7), foreign)
    misfits = {
        "foreign": Speculation(type="draft-eagle3", n_max=3, draft=Draft(path=str(foreign))),
        "kind": Speculation(type="draft-dflash", n_max=3, draft=Draft(path=str(foreign))),
    }
    base = load_profile("scripted-bench", ROOT / "profiles")
    return base.model_copy(update={"methods": {**base.methods, **misfits}})


def test_every_method_shows_its_chosen_acceptance_and_the_baselines_text(
    task: Task, profile: Profile, tmp_path: Path
) -> None:
    found = requests.find("", profile, task, tmp_path)
    methods = parse("none,mtp-2,mtp-4,eagle3,dflash,foreign,kind", profile)
    plan = Plan(profile, methods, found, rounds=2, tokens=requests.SCRIPT_TOKENS, seed=1)
    result = loop.play(plan, task, tmp_path, ignore)

    rows = {row.method: row for row in result.rows if row.kind == ALL}
    assert list(rows) == ["none", "mtp-2", "mtp-4", "eagle3", "dflash"]
    for name in ("mtp-2", "mtp-4", "eagle3", "dflash"):
        row, standing = rows[name], result.standings[name]
        assert row.same_text == row.replies == 2 * len(found)
        assert row.acceptance == pytest.approx(standing.expected), name
        assert row.by_position[0] >= row.by_position[-1] > 0
        assert standing.proof and standing.rss_mib
    assert rows["eagle3"].acceptance == pytest.approx(0.7, abs=0.03)
    assert rows["dflash"].acceptance == pytest.approx(0.5, abs=0.03)

    assert "its architecture is eagle3, not dflash" in result.standings["kind"].not_applied
    assert (
        "none of" in result.standings["foreign"].not_applied
        or "llama-server" in result.standings["foreign"].not_applied
    )

    lines = [json.loads(line) for line in (tmp_path / "replies.jsonl").read_text().splitlines()]
    lives = list(dict.fromkeys((line["round"], line["method"]) for line in lines))
    first = [name for number, name in lives if number == 0 and name != "foreign"]
    assert (
        [name for number, name in lives if number == 1] == first[::-1] == ["dflash", "eagle3", "mtp-4", "mtp-2", "none"]
    )
    assert json.loads((tmp_path / "plan.json").read_text())["methods"]["mtp-2"]["n_max"] == 2
