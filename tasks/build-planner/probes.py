"""Edge cases of build-planner, not scored."""

from agent_ab.judging import Candidate, expect, fail, probe

from .checks import play

OLD_STATE = '{"version": 1, "records": {"app": {"main": 1001}}}'


@probe("long-circle", about="a circle of 5,000 targets is named within the recursion limit")
def long_circle(candidate: Candidate) -> None:
    size = 5_000
    targets = [[f"t{n}", [f"t{(n + 1) % size}"], "make"] for n in range(size)]
    (reply,) = play(candidate, targets, {}, ["plan"])
    expect(reply["raises"], "CycleError", "what a circle raises")
    expect(reply["path"], [*(f"t{n}" for n in range(size)), "t0"], "its path")


@probe("input-listed-twice", about="a target that lists an input twice is built once, and is up to date afterwards")
def input_listed_twice(candidate: Candidate) -> None:
    targets = [["app", ["lib", "main", "lib", "main"], "1"], ["lib", ["main"], "2"]]
    replies = play(candidate, targets, {"main": "1"}, ["plan"], ["build_plan"], ["plan"])
    expect(replies[0], ["lib", "app"], "the first plan")
    expect(replies[2], [], "the plan when that is built")


@probe("old-state", about="a state that the starting code wrote is no obstacle: what it records is built again")
def old_state(candidate: Candidate) -> None:
    replies = play(candidate, [["app", ["main"], "1"]], {"main": "1", "app": "2"}, ["state", OLD_STATE], ["plan"])
    expect(replies[1], ["app"], "the plan with a state of modification times")


@probe("empty-file", about="an empty source is a file, and differs from a missing one and from a filled one")
def empty_file(candidate: Candidate) -> None:
    steps = [["plan"], ["build_plan"], ["plan"], ["write", "main", "text"], ["plan"]]
    replies = play(candidate, [["app", ["main"], "1"]], {"main": ""}, *steps)
    expect([replies[0], replies[2], replies[4]], [["app"], [], ["app"]], "the plans around an empty source")


@probe("unknown-goal", about="a goal that is a source, not a target, raises UnknownTarget")
def unknown_goal(candidate: Candidate) -> None:
    (reply,) = play(candidate, [["app", ["main"], "1"]], {"main": "1"}, ["plan", ["main"]])
    expect(reply, {"raises": "UnknownTarget", "name": "main"}, "a plan for a source")


@probe("circle-elsewhere", about="what a circle that the goals do not need leads to: a plan or CycleError")
def circle_elsewhere(candidate: Candidate) -> None:
    targets = [["app", ["main"], "1"], ["hen", ["egg"], "2"], ["egg", ["hen"], "3"]]
    (reply,) = play(candidate, targets, {"main": "1"}, ["plan", ["app"]])
    circle = {"raises": "CycleError", "path": ["hen", "egg", "hen"]}
    if reply not in (["app"], circle):
        fail(f"neither a plan nor a named circle: {reply}")
