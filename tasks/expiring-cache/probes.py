"""Edge cases of expiring-cache, not scored."""

from agent_ab.judging import Candidate, expect, fail, probe

from .checks import computed, play, raised, results


@probe("huge-ttl", about="a TTL of 10**400, beyond every float, with a clock that returns ints")
def huge_ttl(candidate: Candidate) -> None:
    huge = {"power": 400}
    results(
        candidate,
        "a TTL of 10**400",
        (["set", "pear", "v", huge], None),
        (["compute", "plum", "w", huge], computed("w", 1)),
        (["at", {"power": 300}], None),
        (["get", "pear"], "v"),
        (["get", "plum"], "w"),
        (["at", {"power": 401}], None),
        (["get", "pear"], "absent"),
    )


@probe("huge-ttl-float-clock", about="a TTL of 10**400 with a clock that returns floats")
def huge_ttl_float_clock(candidate: Candidate) -> None:
    results(
        candidate,
        "a TTL of 10**400 with a float clock",
        (["set", "pear", "v", {"power": 400}], None),
        (["at", 1e300], None),
        (["get", "pear"], "v"),
        start=0.5,
    )


@probe("exact-integer-clock", about="a clock of ints beyond 2**53, where floats no longer tell neighbours apart")
def exact_integer_clock(candidate: Candidate) -> None:
    start = 2**60
    results(
        candidate,
        "a clock beyond 2**53",
        (["set", "pear", "v", 3], None),
        (["at", start + 2], None),
        (["get", "pear"], "v"),
        (["at", start + 3], None),
        (["get", "pear"], "absent"),
        start=start,
    )


@probe("none-is-a-value", about="a function that returns None is not called again while its value is live")
def none_is_a_value(candidate: Candidate) -> None:
    results(
        candidate,
        "a computed None",
        (["compute", "pear", None, 50], computed(None, 1)),
        (["compute", "pear", "unused", 50], computed(None, 0)),
        (["get", "pear"], None),
    )


@probe("interrupted-computation", about="a computation ended by a BaseException leaves its key usable")
def interrupted_computation(candidate: Candidate) -> None:
    results(
        candidate,
        "after an interrupted computation",
        (["compute", "pear", "raise Halt", 50], computed(raised("Halt"), 1)),
        (["within", 2, [["compute", "pear", "v", 50]]], [computed("v", 1)]),
    )


@probe("own-key-inside", about="a computation that asks for its own key raises or computes, but does not hang")
def own_key_inside(candidate: Candidate) -> None:
    (reply,) = play(candidate, ["within", 1, [["compute", "pear", "v", 50, [["compute", "pear", "inner", 50]]]]])
    if reply == "hangs":
        fail("a computation that asks for its own key waits for itself forever")


@probe("values-let-go", about="replaced, deleted and evicted values do not pile up in memory")
def values_let_go(candidate: Candidate) -> None:
    rounds = 2000
    for how in ("replace", "delete", "evict"):
        (alive,) = play(candidate, ["alive", how, rounds], capacity=10)
        expect(alive <= rounds // 10, True, f"at most a tenth of {rounds} values still in memory after {how} ({alive})")
