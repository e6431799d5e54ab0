"""The ten checks of build-planner."""

import hashlib
from typing import Any

from agent_ab.judging import Candidate, check, expect, fail

Declaration = list[Any]
"""A target: its name, its inputs, its command."""


def play(candidate: Candidate, targets: list[Declaration], files: dict[str, str], *steps: list[Any]) -> list[Any]:
    """Return the result of each step on a new project."""
    reply = candidate.call({"targets": targets, "files": files, "steps": list(steps)})
    expect(len(reply), len(steps), "the number of results")
    return list(reply)


def plans(
    candidate: Candidate,
    targets: list[Declaration],
    files: dict[str, str],
    *story: tuple[list[list[Any]], str, list[str]],
) -> None:
    """Play each chapter of `story`: steps, then a plan, which must list these targets in whatever order."""
    steps = [step for before, _, _ in story for step in [*before, ["plan", *_goals(before)]] if step[0] != "for"]
    answers = [r for step, r in zip(steps, play(candidate, targets, files, *steps), strict=True) if step[0] == "plan"]
    for (_, when, names), answer in zip(story, answers, strict=True):
        expect(_sorted(answer), sorted(names), f"the plan {when}, sorted,")


def _goals(before: list[list[Any]]) -> list[list[str]]:
    return [step[1:] for step in before if step[0] == "for"]


def _sorted(answer: Any) -> Any:
    return sorted(answer) if isinstance(answer, list) else answer


SITE: list[Declaration] = [
    ["site", ["index", "about", "style"], "pack"],
    ["index", ["index.md", "layout"], "render index"],
    ["about", ["about.md", "layout"], "render about"],
    ["style", ["style.scss"], "sass"],
]
SITE_FILES = {"index.md": "Hello", "about.md": "We", "layout": "<html>", "style.scss": "a{}"}


@check(
    "wide-and-deep",
    rule="A graph of tens of thousands of targets, all in one chain or all under one target, is planned with Python's "
    "recursion limit as it stands, with a number of questions to `files` and of other steps that grows with the "
    "number of targets and inputs, not with its square.",
)
def wide_and_deep(candidate: Candidate) -> None:
    deep, wide = 25_000, 24_999
    reply = candidate.call({"deep": deep, "wide": wide})
    # Of the chain always one target is ready, and it is declared before "all".
    names = [*(f"c{number}" for number in reversed(range(deep))), "all"]
    expected = {"length": len(names), "sha256": hashlib.sha256(" ".join(names).encode()).hexdigest()}
    files = deep + wide + 3
    expect(reply["plan"], expected, f"the plan for {deep + wide + 1} targets of which a chain is to be built")
    if reply["asked"] > 4 * files:
        fail(f"planning asks {reply['asked']} questions about {files} files")
    limit, after = reply["recursion limit"]
    expect(after, limit, "Python's recursion limit after planning")


@check(
    "minimal-rebuild",
    rule="A plan lists exactly the targets that the goals need (without goals: all) and that are out of date: those "
    "never recorded, those whose file is gone, those whose command is not the recorded one, those with changed "
    "inputs, and those that depend on such a target.",
)
def minimal_rebuild(candidate: Candidate) -> None:
    flagged = [
        SITE[0],
        ["index", ["index.md", "layout"], "render --draft index"],
        *SITE[2:],
        ["notes", ["notes.md"], "txt"],
    ]
    plans(
        candidate,
        SITE,
        SITE_FILES | {"notes.md": "..."},
        ([["for", "about"]], "for one goal at first", ["about"]),
        ([["build", "index", "about", "style", "site"]], "when all is built", []),
        ([["write", "about.md", "You"]], "after a source changed", ["about", "site"]),
        ([["for", "index", "style"]], "for goals that it does not concern", []),
        ([["for", "about"]], "for a goal below the top", ["about"]),
        ([["build", "about", "site"], ["remove", "style"]], "after a file of a target was removed", ["style", "site"]),
        (
            [["build", "style", "site"], ["declare", flagged]],
            "after a changed command and a new target",
            ["index", "site", "notes"],
        ),
        ([["build", "index", "notes", "site"]], "when all of that is built", []),
    )


@check(
    "dirt-spreads",
    rule="Being out of date spreads from a target to whatever depends on it, over any number of levels, although the "
    "contents of the files in between have not changed yet.",
)
def dirt_spreads(candidate: Candidate) -> None:
    chain = ["image", "rootfs", "package", "program", "object"]
    below = [*chain[1:], "source"]
    targets = [[name, [need], f"make {name}"] for name, need in zip(chain, below, strict=True)]
    targets += [["manual", ["pages"], "print"], ["pages", ["text"], "typeset"]]
    build_all = ["build", *reversed(chain), "pages", "manual"]
    plans(
        candidate,
        targets,
        {"source": "1", "text": "2"},
        ([build_all, ["write", "source", "3"]], "after the source of a chain of five changed", chain),
        ([build_all, ["remove", "package"]], "after a file in the middle was removed", chain[:3]),
        ([build_all, ["write", "text", "4"]], "after the source of another chain changed", ["manual", "pages"]),
    )


@check(
    "stable-order",
    rule="The next target of a plan is always, among those whose dependencies in this plan are all listed already, the "
    "one that is declared first; nothing else has an influence on the order.",
)
def stable_order(candidate: Candidate) -> None:
    targets: list[Declaration] = [
        ["walnut", ["cherry", "apple"], "1"],
        ["elm", ["source"], "2"],
        ["zelkova", ["source"], "3"],
        ["apple", ["source"], "4"],
        ["maple", ["zelkova"], "5"],
        ["cherry", ["maple"], "6"],
        ["birch", [], "7"],
        ["aspen", ["walnut", "birch"], "8"],
    ]
    order = ["elm", "zelkova", "apple", "maple", "cherry", "walnut", "birch", "aspen"]
    turned = [[name, inputs[::-1], command] for name, inputs, command in targets]
    changed = [
        [name, inputs, "new" if name in ("walnut", "elm", "birch") else command] for name, inputs, command in targets
    ]
    replies = play(
        candidate,
        targets,
        {"source": "1"},
        ["plan"],
        ["declare", turned],
        ["plan"],
        ["plan", ["aspen", "maple", "elm"]],
        ["declare", targets],
        ["build", *order],
        ["declare", changed],
        ["plan"],
    )
    expect(replies[0], order, "the first plan")
    expect(replies[2], order, "the first plan with the inputs listed the other way round")
    expect(replies[3], order, "the first plan with three goals")
    expect(replies[7], ["walnut", "elm", "birch", "aspen"], "a plan for a part of the targets")


@check(
    "cycle-path",
    rule="Targets that depend on each other in a circle raise `CycleError`, and its `path` goes once around the circle "
    "and contains nothing else: it begins and ends with that target of the circle which is declared first, and "
    "each target in it is followed by one of its inputs.",
)
def cycle_path(candidate: Candidate) -> None:
    targets: list[Declaration] = [
        ["app", ["source", "parser"], "1"],
        ["lexer", ["source", "tables", "common"], "2"],
        ["tables", ["parser", "source"], "3"],
        ["common", ["source"], "4"],
        ["parser", ["common", "lexer"], "5"],
    ]
    own: list[Declaration] = [["app", ["mirror"], "1"], ["mirror", ["source", "mirror"], "2"]]
    steps = (["plan"], ["plan", ["app"]], ["declare", own], ["plan"])
    replies = play(candidate, targets, {"source": "1"}, *steps)
    expected = {"raises": "CycleError", "path": ["lexer", "tables", "parser", "lexer"]}
    expect(replies[0], expected, "a plan with a circle of three")
    expect(replies[1], expected, "the same for a goal above the circle")
    expect(replies[3], {"raises": "CycleError", "path": ["mirror", "mirror"]}, "a target that is its own input")


@check(
    "inputs-by-name",
    rule="The inputs of a target have changed when a name among them was added, removed or replaced, even where a file "
    "was only renamed and every content is as before, and also when two inputs have exchanged their contents; the "
    "order in which the inputs are listed does not matter.",
)
def inputs_by_name(candidate: Candidate) -> None:
    def bundle(*inputs: str) -> list[Declaration]:
        return [["release", ["bundle", "extra"], "zip"], ["bundle", list(inputs), "cat"], ["extra", ["e"], "copy"]]

    stale = ["bundle", "release"]
    rebuild = ["build", *stale]
    plans(
        candidate,
        bundle("a", "b", "c"),
        {"a": "one", "b": "two", "c": "three", "e": "four"},
        ([["build", "extra", *stale], ["declare", bundle("c", "a", "b")]], "with the inputs in another order", []),
        ([["declare", bundle("a", "b")]], "with one input less", stale),
        ([rebuild, ["declare", bundle("a", "b", "e")]], "with one input more", stale),
        ([rebuild, ["rename", "b", "d"], ["declare", bundle("a", "d", "e")]], "with an input renamed", stale),
        ([rebuild, ["exchange", "a", "d"]], "with the contents of two inputs exchanged", stale),
        ([rebuild], "when that is built", []),
    )


@check(
    "content-decides",
    rule="Whether an input of the same name has changed is decided by its content alone, never by its modification "
    "time or its size: compared are the bytes that it had when the target was recorded and those that it has now, "
    "for source files as for files made by other targets.",
)
def content_decides(candidate: Candidate) -> None:
    targets: list[Declaration] = [["app", ["lib", "main"], "link"], ["lib", ["head", "tail"], "join"]]
    files = {"main": "main", "head": "abc", "tail": "def"}
    plans(
        candidate,
        targets,
        files,
        (
            [["make", "lib", "L"], ["make", "app", "A"], ["reload"], ["write", "main", "main"]],
            "after writing the same again",
            [],
        ),
        ([["sneak", "main", "niam"]], "after a change that keeps size and modification time", ["app"]),
        (
            [["make", "app", "B"], ["write", "head", "abcd"], ["write", "tail", "ef"]],
            "after bytes moved over",
            ["app", "lib"],
        ),
        ([["make", "lib", "L"]], "after a target was rebuilt into the same bytes", []),
        ([["write", "tail", "gh"], ["make", "lib", "M"], ["reload"]], "after it was rebuilt into other bytes", ["app"]),
        ([["sneak", "main", "main"], ["make", "app", "C"]], "when that is built", []),
    )


@check(
    "missing-input",
    rule="An input that is neither a target nor an existing file raises `MissingInput`, whether or not the targets "
    "that list it are out of date for another reason: its `name` is the input, its `needed_by` the first declared "
    "target that lists it.",
)
def missing_input(candidate: Candidate) -> None:
    targets: list[Declaration] = [
        ["all", ["tool", "docs"], "1"],
        ["tool", ["object", "header"], "2"],
        ["docs", ["header"], "3"],
        ["object", ["source", "header"], "4"],
    ]
    replies = play(
        candidate,
        targets,
        {"source": "1"},
        ["plan"],
        ["write", "header", "2"],
        ["build", "object", "tool", "docs", "all"],
        ["plan"],
        ["rename", "header", "elsewhere"],
        ["plan"],
        ["plan", ["docs"]],
        ["rename", "elsewhere", "header"],
        ["plan"],
    )

    def missing(needed_by: str) -> dict[str, str]:
        return {"raises": "MissingInput", "name": "header", "needed_by": needed_by}

    expect(replies[0], missing("tool"), "the first plan without a source")
    expect(replies[3], [], "the plan when all is there and built")
    expect(replies[5], missing("tool"), "the plan after a source was removed")
    if not isinstance(replies[6], dict) or replies[6].get("raises") != "MissingInput":
        fail("a plan for a goal whose source was removed does not raise MissingInput")
    expect(replies[8], [], "the plan after the source came back")


@check(
    "every-thing-once",
    rule="However many ways lead to a target or to a file, a plan lists the target once, and one call of `plan` reads "
    "no file more than once and asks no more than once whether it exists.",
)
def every_thing_once(candidate: Candidate) -> None:
    floors = 12
    targets: list[Declaration] = []
    for n in reversed(range(floors)):
        below = f"roof{n - 1:02}" if n else "ground"
        targets.append([f"roof{n:02}", [f"left{n:02}", f"right{n:02}"], "join"])
        targets += [[f"{side}{n:02}", [below, "common", f"{side}.txt"], side] for side in ("left", "right")]
    names = [target[0] for target in targets]
    upwards = ["build", *reversed(names)]
    files = {"ground": "1", "common": "2", "left.txt": "3", "right.txt": "4"}
    steps = [["plan"], ["most"], upwards, ["plan"], ["most"], ["write", "ground", "5"], ["plan"], ["most"]]
    steps += [upwards, ["write", "left.txt", "6"], ["plan"], ["most"]]
    replies = play(candidate, targets, files, *steps)
    everything = sorted(names)
    for index, when, expected in (
        (0, "at first", everything),
        (3, "when all is built", []),
        (6, "after the ground of twelve diamonds changed", everything),
        (10, "after one side of each diamond changed", [name for name in everything if name != "right00"]),
    ):
        expect(_sorted(replies[index]), expected, f"the plan {when}, sorted,")
        exists, read = replies[index + 1]
        expect(
            exists <= 1 and read <= 1, True, f"one question per file, {when} ({exists} times exists, {read} times read)"
        )


@check(
    "planning-is-pure",
    rule="Planning changes neither the files nor the state, so that planning again gives the same plan, and when each "
    "target of a plan has been built and recorded in the order of the plan, the next plan is empty.",
)
def planning_is_pure(candidate: Candidate) -> None:
    look = [["state"], ["plan"], ["state"], ["plan"]]
    replies = play(
        candidate,
        SITE,
        SITE_FILES,
        *look,
        ["build_plan"],
        *look,
        ["write", "layout", "<html lang=en>"],
        *look,
        ["write", "layout", "<html>"],
        *look,
    )
    for begin, when, expected in (
        (0, "at first", ["about", "index", "site", "style"]),
        (5, "after building the plan", []),
        (10, "after a source changed", ["about", "index", "site"]),
        (15, "after the source was changed back", []),
    ):
        before, first, after, second = replies[begin : begin + 4]
        expect(_sorted(first), expected, f"the plan {when}, sorted,")
        expect(second, first, f"the same plan once more {when}")
        expect(after, before, f"the state after planning {when}")
