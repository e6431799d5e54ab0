"""The ten checks of expiring-cache."""

from typing import Any

from agent_ab.judging import Candidate, check, expect

Steps = list[Any]


def play(candidate: Candidate, *steps: Any, capacity: int = 10, start: Any = 0) -> list[Any]:
    """Return the result of each step on one new cache."""
    reply = candidate.call({"capacity": capacity, "start": start, "steps": list(steps)})
    expect(len(reply), len(steps), "the number of results")
    return list(reply)


def results(candidate: Candidate, what: str, *pairs: tuple[Any, Any], capacity: int = 10, start: Any = 0) -> None:
    """Play the steps of `pairs` on one new cache and compare every result that is not left open (`...`)."""
    replies = play(candidate, *(step for step, _ in pairs), capacity=capacity, start=start)
    for (step, expected), reply in zip(pairs, replies, strict=True):
        if expected is not ...:
            expect(reply, expected, f"{what}: the result of {step[0]} {step[1:]!r}")


def computed(value: Any, runs: int) -> dict[str, Any]:
    """Return what the driver tells of a `get_or_compute` that returned `value` and ran its function `runs` times."""
    return {"returned": value, "runs": runs}


def raised(kind: str) -> dict[str, str]:
    """Return what the driver tells of a step that raised `kind`."""
    return {"raises": kind}


@check(
    "expiry-boundary",
    rule="An entry that is stored at time `t` with TTL `d` is live while the time is less than `t + d`, and from `t + "
    "d` on it is gone for every operation, `in`, `len` and `remaining` included; a computed value is stored when "
    "its computation ends.",
)
def expiry_boundary(candidate: Candidate) -> None:
    results(
        candidate,
        "an entry near its end",
        (["set", "pear", "v", 7], None),
        (["compute", "plum", "w", 8, [["at", 104]]], computed("w", 1)),
        (["at", 106.5], None),
        (["get", "pear"], "v"),
        (["remaining", "pear"], 0.5),
        (["len"], 2),
        (["at", 107], None),
        (["remaining", "pear"], None),
        (["in", "pear"], False),
        (["get", "pear"], "absent"),
        (["len"], 1),
        (["at", 111.75], None),
        (["get", "plum"], "w"),
        (["at", 112], None),
        (["len"], 0),
        (["keys"], []),
        (["compute", "plum", "again", 8], computed("again", 1)),
        start=100,
    )


@check(
    "overwrite-renews",
    rule="`set` replaces an entry as a whole, so that the key has the new value for the new TTL from then on, whether "
    "the old TTL would have ended earlier or later; a value that is being computed for the key at that moment is "
    "returned to its callers but not stored.",
)
def overwrite_renews(candidate: Candidate) -> None:
    results(
        candidate,
        "after a second set",
        (["set", "pear", "old", 5], None),
        (["set", "plum", "old", 50], None),
        (["at", 3], None),
        (["set", "pear", "new", 20], None),
        (["set", "plum", "new", 20], None),
        (["at", 10], None),
        (["set", "fig", "other", 50], None),
        (["get", "pear"], "new"),
        (["remaining", "pear"], 13.0),
        (["get", "plum"], "new"),
        (["at", 30], None),
        (["get", "pear"], "absent"),
        (["get", "plum"], "absent"),
        (["compute", "date", "computed", 50, [["set", "date", "set", 20]]], computed("computed", 1)),
        (["get", "date"], "set"),
        (["remaining", "date"], 20.0),
        (["len"], 2),
    )


@check(
    "delete-reports",
    rule="`delete` returns `True` when it removes a live entry and `False` when there is none, be it that the key was "
    "never stored or that the entry has expired; a value that is being computed for the key at that moment is "
    "returned to its callers but not stored.",
)
def delete_reports(candidate: Candidate) -> None:
    results(
        candidate,
        "around delete",
        (["delete", "pear"], False),
        (["set", "pear", "v", 5], None),
        (["set", "plum", "w", 50], None),
        (["delete", "plum"], True),
        (["get", "plum"], "absent"),
        (["delete", "plum"], False),
        (["at", 6], None),
        (["delete", "pear"], False),
        (["compute", "fig", "computed", 50, [["delete", "fig"]]], computed("computed", 1)),
        (["get", "fig"], "absent"),
        (["len"], 0),
        (["compute", "fig", "fresh", 50], computed("fresh", 1)),
        (["compute", "fig", "unused", 50], computed("fresh", 0)),
        (["delete", "fig"], True),
    )


@check(
    "room-for-live",
    rule="An entry is evicted only when a key that is not in the cache is stored while `capacity` entries are live: "
    "expired entries take nobody's place, and `stats.evictions` counts evictions and nothing else.",
)
def room_for_live(candidate: Candidate) -> None:
    results(
        candidate,
        "a cache with room for three",
        (["set", "pear", 1, 100], None),
        (["set", "plum", 2, 5], None),
        (["set", "fig", 3, 100], None),
        (["set", "fig", 4, 100], None),
        (["compute", "pear", 5, 100], computed(1, 0)),
        (["len"], 3),
        (["evictions"], 0),
        (["at", 50], None),
        (["set", "date", 6, 100], None),
        (["len"], 3),
        (["in", "pear"], True),
        (["in", "fig"], True),
        (["evictions"], 0),
        (["compute", "kiwi", 7, 100], computed(7, 1)),
        (["len"], 3),
        (["evictions"], 1),
        (["at", 500], None),
        (["set", "lime", 8, 100], None),
        (["len"], 1),
        (["evictions"], 1),
        capacity=3,
    )


@check(
    "eviction-order",
    rule="The entry to be evicted is the one whose last use is longest ago, where storing a value and finding it with "
    "`get` or `get_or_compute` are uses, and `in`, `len`, `remaining` and iterating are not.",
)
def eviction_order(candidate: Candidate) -> None:
    keys = ["pear", "plum", "fig", "date", "kiwi"]
    steps: Steps = [["set", key, key, 100] for key in keys]
    steps += [["get", "pear"], ["compute", "plum", "unused", 100], ["set", "fig", "again", 100]]
    steps += [
        ["in", "date"],
        ["remaining", "date"],
        ["len"],
        ["in", "kiwi"],
        ["keys"],
        ["remaining", "kiwi"],
        ["in", "kiwi"],
    ]
    steps += [["walk", "items", []], ["in", "date"]]
    order = ["date", "kiwi", "pear", "plum", "fig"]
    for number, _victim in enumerate(order):
        steps += [["set", f"new {number}", number, 100], ["keys"]]
    replies = play(candidate, *steps, capacity=5)
    left = list(order)
    for number, victim in enumerate(order):
        left = [*left[1:], f"new {number}"]
        kept = replies[len(replies) - 2 * (len(order) - number) + 1]
        expect(sorted(kept), sorted(left), f"the keys after {victim} was the least recently used one")


@check(
    "ttl-validation",
    rule="A TTL is a positive, finite number: anything that is not an `int` or a `float`, and any `bool`, raises "
    "`TypeError`, and a number that is zero, negative, infinite or NaN raises `ValueError`; `set` and "
    "`get_or_compute` look at the TTL before anything else, so that a bad one changes nothing and computes "
    "nothing, whether or not the key is in the cache.",
)
def ttl_validation(candidate: Candidate) -> None:
    wrong_types = [
        True,
        False,
        None,
        "7",
        [7],
        *({"odd": name} for name in ("decimal", "fraction", "complex", "bytes")),
    ]
    wrong_values = [0, -1, 0.0, -0.0, -2.5, *({"odd": name} for name in ("nan", "inf", "-inf"))]
    pairs: list[tuple[Any, Any]] = [(["set", "pear", "kept", 40], None)]
    for kind, ttls in (("TypeError", wrong_types), ("ValueError", wrong_values)):
        for ttl in ttls:
            pairs += [
                (["set", "pear", "bad", ttl], raised(kind)),
                (["set", "plum", "bad", ttl], raised(kind)),
                (["compute", "pear", "bad", ttl], computed(raised(kind), 0)),
                (["compute", "fig", "bad", ttl], computed(raised(kind), 0)),
            ]
    pairs += [
        (["len"], 1),
        (["get", "pear"], "kept"),
        (["remaining", "pear"], 40.0),
        (["set", "plum", "good", 1], None),
        (["set", "date", "good", 0.125], None),
        (["compute", "fig", "good", 1e300], computed("good", 1)),
        (["get", "plum"], "good"),
        (["get", "date"], "good"),
    ]
    results(candidate, "a bad TTL", *pairs)


@check(
    "clock-backwards",
    rule="its time is the largest value that the clock has returned to it so far: when the clock goes back, time "
    "stands still until the clock has caught up, for the entries that are there as for those that are stored "
    "meanwhile.",
)
def clock_backwards(candidate: Candidate) -> None:
    results(
        candidate,
        "a clock that went back from 108 to 50",
        (["set", "pear", "v", 10], None),
        (["set", "plum", "w", 5], None),
        (["at", 108], None),
        (["get", "pear"], "v"),
        (["at", 50], None),
        (["get", "plum"], "absent"),
        (["remaining", "pear"], 2.0),
        (["set", "fig", "x", 10], None),
        (["remaining", "fig"], 10.0),
        (["at", 75], None),
        (["get", "fig"], "x"),
        (["len"], 2),
        (["at", 109], None),
        (["get", "pear"], "v"),
        (["at", 111], None),
        (["get", "pear"], "absent"),
        (["at", 117], None),
        (["get", "fig"], "x"),
        (["at", 119], None),
        (["get", "fig"], "absent"),
        start=100,
    )


@check(
    "iteration-meanwhile",
    rule="Iterating over the cache or over `items()` never raises because the cache changes or time passes meanwhile, "
    "and each entry is looked at when its turn comes: one that has expired or was deleted by then is not yielded.",
)
def iteration_meanwhile(candidate: Candidate) -> None:
    def fill(at: int) -> Steps:
        ttls = {"pear": 100, "plum": 5, "fig": 100, "date": 100, "kiwi": 20, "lime": 100}
        return [["at", at], *(["set", key, key.upper(), ttl] for key, ttl in ttls.items())]

    def between(at: int) -> list[Steps]:
        first: Steps = [["at", at + 10], ["delete", "date"], ["set", "new", "NEW", 100]]
        return [first, [["at", at + 30], ["get", "pear"]]]

    steps = [*fill(0), ["walk", "keys", between(0)], *fill(1000), ["walk", "items", between(1000)]]
    replies = play(candidate, *steps)
    for reply, expected in (
        (replies[7], ["pear", "fig", "lime"]),
        (replies[15], [["pear", "PEAR"], ["fig", "FIG"], ["lime", "LIME"]]),
    ):
        seen = [item for item in reply if item not in ("new", ["new", "NEW"])] if isinstance(reply, list) else reply
        expect(seen, expected, "what was yielded while entries expired")


@check(
    "compute-once",
    rule="For each key at most one computation runs at a time: callers who ask for the key meanwhile wait for it and "
    "return its value, and operations on other keys do not wait for it.",
)
def compute_once(candidate: Candidate) -> None:
    meanwhile = (
        (["set", "pear", "v", 50], None),
        (["get", "pear"], "v"),
        (["compute", "plum", "w", 50], computed("w", 1)),
        (["delete", "plum"], True),
        (["in", "pear"], True),
    )
    reply = candidate.call(
        {
            "others": 6,
            "raises": False,
            "meanwhile": [step for step, _ in meanwhile],
            "after": [["compute", "shared", "unused", 50]],
        }
    )
    expect(reply["meanwhile"], [result for _, result in meanwhile], "operations on other keys during a computation")
    expect(reply["runs"], ["leader"], "the callers that computed, of seven at once")
    expect(reply["leader"], "from leader", "the value for the caller that computed")
    expect(reply["waiters"], ["from leader"] * 6, "the values for the callers that waited")
    expect(reply["after"], [computed("from leader", 0)], "a later get_or_compute")


@check(
    "failed-computation",
    rule="A computation that raises stores nothing and its exception goes to the caller whose function it was, to "
    "nobody else: of the callers who were waiting one computes with its own function while the others wait for "
    "that one, and whoever comes later finds the key as if nothing had happened.",
)
def failed_computation(candidate: Candidate) -> None:
    alone = [
        (["compute", "pear", "raise Boom", 50], computed(raised("Boom"), 1)),
        (["get", "pear"], "absent"),
        (["len"], 0),
    ]
    again = (["within", 5, [["compute", "pear", "v", 50]]], [computed("v", 1)])
    results(candidate, "after a computation that raised", *alone, again)
    reply = candidate.call({"others": 4, "raises": True, "meanwhile": [], "after": [["get", "shared"]]})
    expect(reply["leader"], raised("Boom"), "what the caller whose function raised got")
    expect(len(reply["runs"]), 2, "the number of computations of five callers, the first of which raised")
    value = f"from {reply['runs'][1]}"
    expect(reply["waiters"], [value] * 4, "the values for the callers that waited for the one that raised")
    expect(reply["after"], [value], "the value stored in the end")
