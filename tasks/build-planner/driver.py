"""Turns one request into calls of the candidate's kiln, and tells what they returned."""

import gc
import hashlib
import sys

QUESTIONS = 1000000
"""After so many questions to one files object the planner is stopped."""


class Files:
    """Files in memory that count what they are asked."""

    def __init__(self, contents):
        self.clock = 1000
        self.contents = {}
        self.times = {}
        self.asked = {}
        for name, text in contents.items():
            self.write(name, text)

    def write(self, name, text, mtime=None):
        self.clock += 1
        self.contents[name] = text.encode()
        self.times[name] = self.clock if mtime is None else mtime

    def count(self, question, name):
        key = (question, name)
        self.asked[key] = self.asked.get(key, 0) + 1
        if len(self.asked) + self.asked[key] > QUESTIONS:
            raise RuntimeError("too many questions about files")

    def most(self, question):
        """Return how often the file that was asked about most was asked this question."""
        return max((times for (kind, _), times in self.asked.items() if kind == question), default=0)

    def exists(self, name):
        self.count("exists", name)
        return name in self.contents

    def read(self, name):
        self.count("read", name)
        return self.found(self.contents, name)

    def mtime(self, name):
        self.count("mtime", name)
        return self.found(self.times, name)

    def found(self, table, name):
        if name not in table:
            raise FileNotFoundError(name)
        return table[name]


class Player:
    """Plays steps on one graph with its files and its state."""

    def __init__(self, request):
        import kiln

        self.kiln = kiln
        self.files = Files(request.get("files", {}))
        self.state = kiln.State()
        self.last = []
        self.do_declare(request.get("targets", []))

    def play(self, steps):
        return [getattr(self, "do_" + step[0])(*step[1:]) for step in steps]

    def do_declare(self, targets):
        self.targets = {name: kiln_target(self.kiln, name, inputs, command) for name, inputs, command in targets}
        self.graph = self.kiln.Graph(list(self.targets.values()))

    def do_write(self, name, text):
        self.files.write(name, text)

    def do_sneak(self, name, text):
        """Change a file without changing its modification time."""
        self.files.write(name, text, self.files.times[name])

    def do_remove(self, name):
        del self.files.contents[name], self.files.times[name]

    def do_rename(self, name, new):
        self.files.contents[new] = self.files.contents.pop(name)
        self.files.times[new] = self.files.times.pop(name)

    def do_exchange(self, one, other):
        for table in (self.files.contents, self.files.times):
            table[one], table[other] = table[other], table[one]

    def do_make(self, name, text):
        """Build a target so that its file has the content `text`, and record it."""
        self.files.write(name, text)
        self.kiln.record(self.graph, self.files, self.state, name)

    def do_build(self, *names):
        """Build and record targets; what they become depends on their command and inputs."""
        for name in names:
            target = self.targets[name]
            whole = hashlib.sha256(target.command.encode())
            for each in sorted(target.inputs):
                whole.update(each.encode() + b"\0" + self.files.contents[each] + b"\0")
            self.do_make(name, whole.hexdigest())
        self.do_reload()

    def do_build_plan(self):
        """Build and record what the last plan listed, in its order."""
        self.do_build(*self.last)

    def do_reload(self):
        """Go on with the state as another process would find it."""
        self.state = self.kiln.State.from_json(self.state.to_json())

    def do_state(self, text=None):
        """Return the state as text, or set it."""
        if text is None:
            return self.state.to_json()
        self.state = self.kiln.State.from_json(text)

    def do_plan(self, goals=None):
        self.files.asked.clear()
        try:
            self.last = [target.name for target in self.kiln.plan(self.graph, self.files, self.state, goals).steps]
        except Exception as error:
            self.last = []
            return problem(self.kiln, error)
        return self.last

    def do_most(self):
        """Return how often the last plan asked the same question about one file, at most."""
        return [self.files.most("exists"), self.files.most("read")]


def kiln_target(kiln, name, inputs, command):
    return kiln.Target(name, tuple(inputs), command)


def problem(kiln, error):
    """Return an exception as JSON."""
    if isinstance(error, kiln.CycleError):
        return {"raises": "CycleError", "path": [str(name) for name in error.path]}
    if isinstance(error, kiln.MissingInput):
        return {"raises": "MissingInput", "name": str(error.name), "needed_by": str(error.needed_by)}
    if isinstance(error, kiln.UnknownTarget):
        return {"raises": "UnknownTarget", "name": str(error.name)}
    return {"raises": type(error).__name__, "message": str(error)[:200]}


def large(request):
    """Plan a chain of `deep` targets, none of them built, beside `wide` built ones under one that is not."""
    gc.disable()  # half of the time
    deep, wide = request["deep"], request["wide"]
    chain = [f"c{number}" for number in range(deep)]
    fan = [f"w{number}" for number in range(wide)]
    below = [*chain[1:], "chained"]
    targets = [[name, [below[number]], "make"] for number, name in enumerate(chain)]
    targets += [[name, ["shared"], "make"] for name in fan]
    targets.append(["all", [chain[0], *fan], "gather"])
    player = Player({"targets": targets, "files": {"chained": "1", "shared": "1"}})
    for name in fan:
        player.do_make(name, "made")
    limit = sys.getrecursionlimit()
    answer = player.do_plan()
    if isinstance(answer, list):
        answer = {"length": len(answer), "sha256": hashlib.sha256(" ".join(answer).encode()).hexdigest()}
    asked = sum(player.files.asked.values())
    return {"plan": answer, "asked": asked, "recursion limit": [limit, sys.getrecursionlimit()]}


def main(request):
    if "deep" in request:
        return large(request)
    return Player(request).play(request["steps"])
