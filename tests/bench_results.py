"""A small bench, as if it had been played."""

from agent_ab.bench.methods import parse
from agent_ab.bench.result import Plan, Result, Standing
from agent_ab.bench.stats import Reply
from agent_ab.config import load_profile
from agent_ab.model import Drafting
from agent_ab.requests import Recorded
from tests.command import ROOT

METHODS = "none,mtp-2,eagle3,misfit"
SPEED = {"none": 100.0, "mtp-2": 130.0, "eagle3": 90.0}


def result(rounds: int = 9) -> Result:
    """Return what nine rounds of two requests came to; `misfit` was never applied."""
    profile = load_profile("scripted-bench", ROOT / "profiles")
    methods = parse(METHODS, profile)
    recorded = (Recorded("code-1", "code", {"messages": []}), Recorded("prose-1", "prose", {"messages": []}))
    standings = {method.name: Standing(method, proof="proven", rss_mib=50.0) for method in methods}
    standings["misfit"].not_applied = "the draft does not fit draft-eagle3"
    standings["eagle3"].expected = 0.7
    replies = [
        Reply(
            method=name,
            round=number,
            request=request.id,
            kind=request.kind,
            prompt_n=100,
            prompt_ms=20.0,
            predicted_n=51,
            predicted_ms=50_000 / (speed * (1 + number / 100)),
            ttft_s=0.02,
            wall_s=50 / speed,
            drafting=None if name == "none" else Drafting(20, 60, 42, (18, 14, 10)),
            text_sha256=request.id,
            finish="stop",
        )
        for number in range(rounds)
        for name, speed in SPEED.items()
        for request in recorded
    ]
    plan = Plan(profile, methods, recorded, rounds, tokens=64, seed=4242)
    return Result(plan, tuple(replies), standings, {"model": "m.gguf", "engine": "e"}, rounds)
