"""Turns one request into calls of the candidate's freshcache, and tells what they returned."""

import math
import threading
import time
import weakref
from decimal import Decimal
from fractions import Fraction

LIMIT_S = 5.0
"""How long to wait for something that must happen; reached only by a candidate that hangs."""
GRACE_S = 0.1
"""How long to look out for something that must not happen."""

ODD = {
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "decimal": Decimal("5"),
    "fraction": Fraction(5, 2),
    "complex": 5j,
    "bytes": b"5",
}


class Boom(Exception):
    """What a computation raises on purpose."""


class Halt(BaseException):
    """The same, as KeyboardInterrupt and SystemExit do it."""


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


class Thing:
    """A value whose end can be watched."""


def number(value):
    """Return a number or an odd value that JSON cannot carry."""
    if isinstance(value, dict):
        return 10 ** value["power"] if "power" in value else ODD[value["odd"]]
    return value


def plain(value):
    """Return `value` if JSON can carry it as it is, else a word about it."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if type(value) is float and not math.isfinite(value):
        return f"the float {value!r}"
    return value if value is None or type(value) in (bool, int, float, str) else "a " + type(value).__name__


def outcome(action):
    """Return what `action` returns, or which kind of exception it raises."""
    try:
        return plain(action())
    except BaseException as error:
        for kind in (TypeError, ValueError, Boom, Halt):
            if isinstance(error, kind):
                return {"raises": kind.__name__}
        return {"raises": type(error).__name__, "message": str(error)[:200]}


class Player:
    """Plays steps on one cache."""

    def __init__(self, request):
        from freshcache import ExpiringCache

        self.clock = Clock(number(request.get("start", 0)))
        self.cache = ExpiringCache(request.get("capacity", 10), self.clock)

    def play(self, steps):
        return [outcome(lambda s=step: getattr(self, "do_" + s[0])(*s[1:])) for step in steps]

    def do_at(self, now):
        self.clock.now = number(now)

    def do_set(self, key, value, ttl):
        return self.cache.set(key, value, number(ttl))

    def do_get(self, key):
        return self.cache.get(key, "absent")

    def do_in(self, key):
        return key in self.cache

    def do_len(self):
        return len(self.cache)

    def do_delete(self, key):
        return self.cache.delete(key)

    def do_remaining(self, key):
        left = self.cache.remaining(key)
        return left if left is None else float(left)

    def do_evictions(self):
        return self.cache.stats.evictions

    def do_keys(self):
        return list(self.cache)

    def do_compute(self, key, value, ttl, inner=()):
        """Compute `value` (or raise it) after playing the steps `inner`; tell how often the function ran."""
        runs = []

        def compute():
            runs.append(key)
            self.play(inner)
            if value == "raise Boom":
                raise Boom(value)
            if value == "raise Halt":
                raise Halt(value)
            return value

        returned = outcome(lambda: self.cache.get_or_compute(key, compute, number(ttl)))
        return {"returned": returned, "runs": len(runs)}

    def do_walk(self, over, between):
        """Iterate; after the item number N play `between[N]`."""
        seen = []
        for item in self.cache.items() if over == "items" else self.cache:
            seen.append(list(item) if isinstance(item, tuple) else item)
            if len(seen) <= len(between):
                self.play(between[len(seen) - 1])
        return seen

    def do_within(self, seconds, steps):
        """Play `steps` on a thread that may take so long; tell when it does not come back."""
        results = []
        thread = threading.Thread(target=lambda: results.append(self.play(steps)), daemon=True)
        thread.start()
        thread.join(seconds)
        return results[0] if results else "hangs"

    def do_alive(self, how, rounds):
        """Store a value and get rid of it, so many times; tell how many of these values are still in memory."""
        watched = []
        for turn in range(rounds):
            thing = Thing()
            watched.append(weakref.ref(thing))
            self.cache.set("same" if how == "replace" else turn, thing, 1000)
            if how == "delete":
                self.cache.delete(turn)
            del thing
        return sum(ref() is not None for ref in watched)


class Race:
    """One caller computes; others come while it does."""

    def __init__(self, request):
        self.player = Player(request)
        self.cache = self.player.cache
        self.others = request["others"]
        self.guard = threading.Lock()
        self.runs = []
        self.returned = {}
        self.computing = threading.Event()
        self.second = threading.Event()
        self.go_on = threading.Event()
        self.arrived = threading.Semaphore(0)

    def function(self, name, leader_raises):
        def compute():
            with self.guard:
                self.runs.append(name)
                if len(self.runs) > 1:
                    self.second.set()
            self.computing.set()
            if name == "leader":
                self.go_on.wait(LIMIT_S)
                if leader_raises:
                    raise Boom(name)
            return "from " + name

        return compute

    def caller(self, name, leader_raises):
        def ask():
            self.arrived.release()
            value = outcome(lambda: self.cache.get_or_compute("shared", self.function(name, leader_raises), 50))
            with self.guard:
                self.returned[name] = value

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread

    def play(self, leader_raises, meanwhile, after):
        """Return who computed, what everyone got, and what the steps `meanwhile` and `after` gave."""
        threads = [self.caller("leader", leader_raises)]
        self.computing.wait(LIMIT_S)
        threads += [self.caller(f"waiter {n}", leader_raises) for n in range(self.others)]
        for _ in threads:
            self.arrived.acquire(timeout=LIMIT_S)
        elsewhere = self.player.do_within(LIMIT_S, meanwhile)
        self.second.wait(GRACE_S)
        before = len(self.runs)
        self.go_on.set()
        deadline = time.monotonic() + LIMIT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self.guard:
            leader = self.returned.pop("leader", "hangs")
            waiters = sorted(str(value) for value in self.returned.values())
            runs = list(self.runs)
        return {
            "runs before": before,
            "runs": runs,
            "leader": leader,
            "waiters": waiters,
            "meanwhile": elsewhere,
            "after": self.player.do_within(LIMIT_S, after),
        }


def main(request):
    if "others" in request:
        return Race(request).play(request["raises"], request["meanwhile"], request["after"])
    return Player(request).play(request["steps"])
