"""What must be built now, and in which order."""

import hashlib
import heapq
from dataclasses import dataclass
from typing import Tuple

from .errors import CycleError, MissingInput
from .graph import Target


@dataclass(frozen=True)
class Plan:
    """The targets to build, in this order."""

    steps: Tuple[Target, ...]

    def __len__(self):
        return len(self.steps)


def plan(graph, files, state, goals=None):
    """Return what must be built so that `goals` (default: all targets) are up to date.

    Raises UnknownTarget, CycleError, MissingInput. Neither `files` nor `state` is changed.
    """
    needed = _needed(graph, goals)
    order = _ordered(graph, needed)
    seen = _Seen(files)
    for target in graph:
        if target.name in needed:
            for name in target.inputs:
                if name not in graph and not seen.exists(name):
                    raise MissingInput(name, target.name)
    dirty = set()
    for target in order:
        if _is_dirty(target, state.records.get(target.name), dirty, seen):
            dirty.add(target.name)
    return Plan(tuple(_ordered(graph, dirty)))


def record(graph, files, state, name):
    """Remember that the target `name` has just been built from its inputs as they are now."""
    target = graph[name]
    inputs = {each: _digest(files.read(each)) for each in target.inputs}
    state.records[name] = {"command": target.command, "inputs": inputs}


class _Seen:
    """Asks each question about a file once."""

    def __init__(self, files):
        self._files = files
        self._exists = {}
        self._digests = {}

    def exists(self, name):
        if name not in self._exists:
            self._exists[name] = self._files.exists(name)
        return self._exists[name]

    def digest(self, name):
        if name not in self._digests:
            self._digests[name] = _digest(self._files.read(name))
        return self._digests[name]


def _digest(content):
    return hashlib.sha256(content).hexdigest()


def _is_dirty(target, known, dirty, seen):
    if known is None or known["command"] != target.command or not seen.exists(target.name):
        return True
    if any(name in dirty for name in target.inputs) or set(known["inputs"]) != set(target.inputs):
        return True
    return any(seen.digest(name) != digest for name, digest in known["inputs"].items())


def _needed(graph, goals):
    """Return the names of the goals and of all targets that they depend on."""
    open_names = [target.name for target in graph] if goals is None else [graph[name].name for name in goals]
    needed = set(open_names)
    while open_names:
        for name in graph[open_names.pop()].inputs:
            if name in graph and name not in needed:
                needed.add(name)
                open_names.append(name)
    return needed


def _ordered(graph, names):
    """Return the targets `names` with inputs first and, where that leaves a choice, in the order of declaration."""
    targets = [target for target in graph if target.name in names]
    place = {target.name: number for number, target in enumerate(targets)}
    waits_for = []
    dependents = [[] for _ in targets]
    for number, target in enumerate(targets):
        inputs = {place[name] for name in target.inputs if name in place}
        waits_for.append(len(inputs))
        for each in inputs:
            dependents[each].append(number)
    ready = [number for number, inputs in enumerate(waits_for) if not inputs]  # ascending, so it is a heap
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(targets[number])
        for each in dependents[number]:
            waits_for[each] -= 1
            if not waits_for[each]:
                heapq.heappush(ready, each)
    if len(order) < len(targets):
        raise CycleError(_cycle(graph, {target.name for target, inputs in zip(targets, waits_for) if inputs}))
    return order


def _cycle(graph, stuck):
    """Return a cycle in `stuck`, a set of targets each of which has an input in the set."""
    name = min(stuck, key=graph.position)
    trail = {}  # in the order of the walk
    while name not in trail:
        trail[name] = len(trail)
        name = next(each for each in graph[name].inputs if each in stuck)
    circle = list(trail)[trail[name] :]
    first = circle.index(min(circle, key=graph.position))
    return circle[first:] + circle[: first + 1]
