"""The tree that paths.py draws is the tree that it makes."""

from pathlib import Path

from agent_ab import paths
from agent_ab.model import Arm


def test_every_file_of_the_drawing_is_a_property_and_the_other_way_round() -> None:
    run = paths.RunPaths(Path("runs/r"))
    attempt = run.attempt("p", Arm.CANDIDATE)
    assert attempt.root == Path("runs/r/p/candidate")
    names = {
        getattr(attempt, name).name
        for name in dir(paths.AttemptPaths)
        if isinstance(getattr(paths.AttemptPaths, name), property)
    }
    assert names and all(name in (paths.__doc__ or "") for name in names)
    assert (run.plan.name, run.pair_json("p").name) == ("run.json", "pair.json")
