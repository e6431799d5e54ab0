"""The cache."""

import heapq
import itertools
import math
import threading
from collections import OrderedDict

from .clock import monotonic
from .stats import Stats


class _Entry:
    def __init__(self, value, deadline):
        self.value = value
        self.deadline = deadline


class _Flight:
    """A computation under way, and what its waiters need to know at its end."""

    def __init__(self):
        self.owner = threading.get_ident()
        self.done = threading.Event()
        self.failed = True
        self.value = None
        self.superseded = False  # its key was set or deleted meanwhile


class ExpiringCache:
    """At most `capacity` live entries, the least recently used of which makes room for a new one; shared by threads."""

    def __init__(self, capacity, clock=monotonic):
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError("the capacity must be an int")
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self.capacity = capacity
        self.stats = Stats()
        self._clock = clock
        self._now = clock()
        self._lock = threading.RLock()  # never held while a computation runs
        self._entries = OrderedDict()  # the least recently used first
        self._queue = []  # (deadline, number, key, entry), the next to expire first; replaced entries stay for a while
        self._numbers = itertools.count()
        self._flights = {}

    def set(self, key, value, ttl):
        """Store `value` under `key` for `ttl` units of the clock."""
        _check_ttl(ttl)
        with self._lock:
            self._supersede(key)
            self._store(key, value, ttl)

    def get(self, key, default=None):
        """Return the value under `key`, or `default`."""
        with self._lock:
            entry = self._use(key)
            if entry is None:
                self.stats.misses += 1
            return default if entry is None else entry.value

    def get_or_compute(self, key, compute, ttl):
        """Return the value under `key`; when there is none, call `compute` and keep what it returns for `ttl`."""
        _check_ttl(ttl)
        while True:
            with self._lock:
                entry = self._use(key)
                if entry is not None:
                    return entry.value
                flight = self._flights.get(key)
                if flight is None:
                    self.stats.misses += 1
                    own = self._flights[key] = _Flight()
                    break
            if flight.owner == threading.get_ident():
                raise RuntimeError("the computation of %r asks for its own result" % (key,))
            flight.done.wait()
            if not flight.failed:
                return flight.value
        return self._run(own, key, compute, ttl)

    def delete(self, key):
        """Remove the entry under `key`; return whether there was a live one."""
        with self._lock:
            self._expire()
            self._supersede(key)
            return self._entries.pop(key, None) is not None

    def remaining(self, key):
        """Return how long the entry under `key` still has, or None."""
        with self._lock:
            entry = self._find(key)
            return None if entry is None else entry.deadline - self._now

    def items(self):
        """Iterate over keys and values of live entries, from the least to the most recently used."""
        with self._lock:
            keys = list(self._entries)
        for key in keys:
            with self._lock:
                entry = self._find(key)
            if entry is not None:
                yield key, entry.value

    def __iter__(self):
        return (key for key, _ in self.items())

    def __contains__(self, key):
        with self._lock:
            return self._find(key) is not None

    def __len__(self):
        with self._lock:
            self._expire()
            return len(self._entries)

    def _run(self, flight, key, compute, ttl):
        try:
            flight.value = compute()
            with self._lock:
                if not flight.superseded:
                    self._store(key, flight.value, ttl)
            flight.failed = False
        finally:
            with self._lock:
                del self._flights[key]
            flight.done.set()
        return flight.value

    def _supersede(self, key):
        if key in self._flights:
            self._flights[key].superseded = True

    def _store(self, key, value, ttl):
        self._expire()
        if key not in self._entries and len(self._entries) >= self.capacity:
            self._entries.popitem(last=False)
            self.stats.evictions += 1
        try:
            deadline = self._now + ttl
        except OverflowError:  # a float clock and an int beyond every float
            deadline = math.inf
        entry = self._entries[key] = _Entry(value, deadline)
        self._entries.move_to_end(key)
        heapq.heappush(self._queue, (deadline, next(self._numbers), key, entry))
        if len(self._queue) > 2 * self.capacity:
            self._queue = [item for item in self._queue if self._entries.get(item[2]) is item[3]]
            heapq.heapify(self._queue)

    def _use(self, key):
        entry = self._find(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self.stats.hits += 1
        return entry

    def _find(self, key):
        self._expire()
        return self._entries.get(key)

    def _expire(self):
        """Let time go on, never back, and drop what has expired by now."""
        self._now = max(self._now, self._clock())
        while self._queue and self._queue[0][0] <= self._now:
            _, _, key, entry = heapq.heappop(self._queue)
            if self._entries.get(key) is entry:
                del self._entries[key]


def _check_ttl(ttl):
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
        raise TypeError("a TTL is an int or a float, not %s" % type(ttl).__name__)
    if not ttl > 0 or (isinstance(ttl, float) and math.isinf(ttl)):
        raise ValueError("a TTL must be positive and finite")
