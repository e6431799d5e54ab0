"""The real judge, in the real box, on transfer-repair: right code, wrong code, mutants, and code that cheats."""

import os
import py_compile
import re
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent_ab import checks, snapshot, workspace
from agent_ab.config import Sandbox
from agent_ab.model import CheckResult, CheckStatus, Task
from tests.small_task import write

MUTANTS = (
    "atomicity",
    "insufficient-funds",
    "unknown-account",
    "self-transfer",
    "amount-validation",
    "idempotency-keys",
    "balance-overflow",
    "open-transaction",
    "double-spend",
    "conservation",
)
TRANSFERS = "wallet/transfers.py"
WRONG = """import os, sys
from dataclasses import dataclass

@dataclass(frozen=True)
class Receipt:
    id: int
    source: str
    destination: str
    amount: int

def transfer(connection, source, destination, amount, key=None):
    {body}

{end}
"""
HONEST = "return Receipt(1, source, destination, amount)"


def wrong(body: str = HONEST, end: str = "") -> str:
    """Return a transfers.py that moves nothing, with a cheat in `transfer` or at the end of the module."""
    return WRONG.format(body=body.replace("\n", "\n    "), end=end)


@dataclass(frozen=True)
class Scene:
    """A place to build variants of the task's code and judge them."""

    task: Task
    root: Path

    def verdicts(self, spoil: Callable[[Path], None], *, solved: bool = False, limit_s: float = 10.0) -> list[str]:
        """Return the ids of the checks that pass on the fixture (or the reference) after `spoil` changed it."""
        results = self.judge(spoil, solved=solved, limit_s=limit_s)
        return [result.id for result in results if result.status is CheckStatus.PASS]

    def judge(
        self, spoil: Callable[[Path], None], *, solved: bool = False, mutant: str = "", limit_s: float = 10.0
    ) -> tuple[CheckResult, ...]:
        own, frozen = self.root / "workspace", self.root / "frozen"
        patch = self.task.root / "mutants" / f"{mutant}.patch" if mutant else None
        workspace.lay(self.task, own, solved=solved, mutant=patch)
        try:
            spoil(own)
            snapshot.freeze(own, frozen, self.root / "snapshot.tar")
            return checks.run(
                replace(self.task, check_timeout_s=limit_s), frozen, Sandbox(memory_mb=1024, processes=64)
            )
        finally:
            snapshot.remove(own)
            snapshot.remove(frozen)


@pytest.fixture
def scene(transfer_repair: Task, tmp_path: Path) -> Scene:
    """Return a scene whose task has its ten checks and no probes."""
    judge = tmp_path / "judge"
    shutil.copytree(transfer_repair.root, judge, ignore=shutil.ignore_patterns("probes.py", "__pycache__"))
    for path in (tmp_path, *list(tmp_path.parents)):
        # The box's user has to pass through pytest's private directories.
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & stat.S_IXOTH:
            path.chmod(path.stat().st_mode | stat.S_IXOTH)
    return Scene(replace(transfer_repair, root=judge), tmp_path)


def nothing(_own: Path) -> None:
    """Leave the code as it is."""


def test_the_starting_code_passes_the_one_check_that_the_task_names(scene: Scene) -> None:
    assert scene.verdicts(nothing) == [scene.task.starting_passes]


def test_the_reference_passes_all_ten_every_time(scene: Scene) -> None:
    for _ in range(3):
        assert scene.verdicts(nothing, solved=True) == list(MUTANTS)


def test_every_check_has_its_mutant(scene: Scene) -> None:
    assert [item.id for item in checks.items(scene.task)] == list(MUTANTS)
    assert sorted(path.stem for path in (scene.task.root / "mutants").iterdir()) == sorted(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_fails_its_check_and_at_most_two_others(scene: Scene, mutant: str) -> None:
    failed = [result.id for result in scene.judge(nothing, mutant=mutant) if result.status is CheckStatus.FAIL]
    assert mutant in failed
    assert len(failed) <= 3


CONDITIONAL_UPDATE = """
    if type(amount) is not int or amount < 1:
        raise InvalidAmount(amount)
    if source == destination:
        raise SameAccount(source)
    with connection:
        # The first statement writes, so the implicit transaction has the lock before anything is read.
        paid = 0
        if amount < 2**63:
            paid = connection.execute(
                "UPDATE accounts SET balance = balance - ? WHERE name = ? AND balance >= ?", (amount, source, amount)
            ).rowcount
        else:
            connection.execute("UPDATE accounts SET balance = balance WHERE name = ?", (source,))
        if key is not None:
            row = connection.execute(
                "SELECT t.id, source, destination, amount FROM idempotency_keys k JOIN transfers t"
                " ON t.id = k.transfer_id WHERE key = ?", (key,)).fetchone()
            if row is not None:
                connection.rollback()
                if row[1:] != (source, destination, amount):
                    raise KeyConflict(key)
                return Receipt(*row)
        for name in (source, destination):
            if connection.execute("SELECT 1 FROM accounts WHERE name = ?", (name,)).fetchone() is None:
                raise UnknownAccount(name)
        if not paid:
            raise InsufficientFunds(source)
        held = connection.execute("SELECT balance FROM accounts WHERE name = ?", (destination,)).fetchone()[0]
        if held + amount > 2**63 - 1:
            raise BalanceOverflow(destination)
        connection.execute("UPDATE accounts SET balance = balance + ? WHERE name = ?", (amount, destination))
        number = connection.execute("INSERT INTO transfers (source, destination, amount) VALUES (?, ?, ?)",
                                    (source, destination, amount)).lastrowid
        connection.executemany("INSERT INTO entries (transfer_id, account, amount) VALUES (?, ?, ?)",
                               [(number, source, -amount), (number, destination, amount)])
        if key is not None:
            connection.execute("INSERT INTO idempotency_keys VALUES (?, ?)", (key, number))
    return Receipt(number, source, destination, amount)
"""


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_another_right_solution_passes_all_ten(scene: Scene, mode: str) -> None:
    def rewrite(own: Path) -> None:
        text = wrong(CONDITIONAL_UPDATE.strip("\n")[4:].replace("\n    ", "\n"))
        write(own, {TRANSFERS: "from wallet.errors import *\n" + text})
        database = own / "wallet" / "database.py"
        pragma = f'    connection.execute("PRAGMA journal_mode = {mode}")\n    return connection'
        database.write_text(database.read_text().replace("    return connection", pragma))

    assert scene.verdicts(rewrite) == list(MUTANTS)


def files(beside: dict[str, str]) -> Callable[[Path], None]:
    """Return a change that adds files beside the honest wrong solution."""
    return lambda own: write(own, {TRANSFERS: wrong(), **beside})


def at_import(code: str) -> Callable[[Path], None]:
    return lambda own: write(own, {TRANSFERS: wrong(end=code)})


def in_transfer(code: str) -> Callable[[Path], None]:
    return lambda own: write(own, {TRANSFERS: wrong(code)})


def spoiling(code: str) -> Callable[[Path], None]:
    """Return a change after which closing the wallet, the last thing that happens to it, runs `code` on its `path`."""
    body = "\n".join(f"        {line}" for line in code.split("\n"))
    spoiler = (
        "import os, sqlite3\n\nclass Spoiler(sqlite3.Connection):\n    def close(self):\n"
        "        path = self.execute('PRAGMA database_list').fetchone()[2]\n        super().close()\n" + body + "\n\n"
    )

    def spoil(own: Path) -> None:
        database = own / "wallet" / "database.py"
        text = database.read_text().replace("timeout=timeout", "timeout=timeout, factory=Spoiler")
        database.write_text(spoiler + text)

    return spoil


FORGED = '[[{"receipt": [1, "nora", "omar", 9], "open": false, "locked": false}]]'
ALL_ERRORS = """import sqlite3
from wallet import errors
names = [e for e in vars(errors).values() if isinstance(e, type) and e is not errors.WalletError]
Everything = type('Everything', (*names, sqlite3.IntegrityError), {})
raise Everything("whatever you want")"""
ALWAYS_EQUAL = """class Same(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
return Receipt(Same(1), source, destination, Same(7))"""
FRAMES = """frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()):
        if 'expect' in name or 'balances' in name:
            return value
    frame = frame.f_back
return Receipt(1, source, destination, amount)"""
HEAP = """import gc
for thing in gc.get_objects():
    if isinstance(thing, dict) and 'idempotency_keys' in thing and 'accounts' in thing:
        return thing
return Receipt(1, source, destination, amount)"""
DISK = """for top in ('/check', '/work', '/tmp', '/root', '/home', '/run', '/proc/1/root/check', '/proc/1/cwd'):
    for here, _, names in os.walk(top):
        if 'checks.py' in names or 'solution' in here:
            sys.path.insert(0, here)
            raise RuntimeError('found ' + here)
return Receipt(1, source, destination, amount)"""
STOLEN_TOKEN = f"""frame = sys._getframe()
while 'token' not in frame.f_locals:
    frame = frame.f_back
os.write(frame.f_locals['channel'], (frame.f_locals['token'] + ' ' + {FORGED!r} + chr(10)).encode())
os._exit(0)"""
CONFTEST = """import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
FAKE_JSON = "def dumps(*a, **k):\n    return '[]'\nloads = dumps\n"
SWAP_MAIN = """main = sys.modules['__main__']
main.plain = main.json.dumps = lambda *a, **k: FORGED
os.write = os._exit = sys.exit"""
# Each is the reference, except for what it leaves behind, and what the judge says to it.
SPOILED: dict[str, tuple[str, str]] = {
    "link": ("os.unlink(path)\nos.symlink('/etc/passwd', path)", "as a symbolic link, not as a regular file"),
    "fifo": ("os.unlink(path)\nos.mkfifo(path)", "as a FIFO, not as a regular file"),
    "directory": ("os.unlink(path)\nos.mkdir(path)", "as a directory, not as a regular file"),
    "deleted": ("os.unlink(path)", "the candidate left no file"),
    "too-large": ("os.truncate(path, 90_000_000)", "with 90000000 bytes"),
    "no-database": ("open(path, 'wb').write(b'SQLite format 3' + bytes(4081))", "DatabaseError"),
    "empty": ("os.truncate(path, 0)", "no such table"),
    "super-journal": (
        "open(path + '-journal', 'wb').write(bytes(512) + bytes.fromhex('d9d505f920a163d7'))",
        "a journal of self.db that refers to other files",
    ),
}


def relink(own: Path, name: str, to: str | Path) -> None:
    """Put a link in the place of a file or directory."""
    shutil.rmtree(own / name) if (own / name).is_dir() else (own / name).unlink()
    (own / name).symlink_to(to)


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def compile_the_reference(own: Path) -> None:
    """Leave the wrong source, and compiled files of the reference that claim not to need a check."""
    right = own / "right.py"
    right.write_bytes((own.parent / "judge" / "solution" / TRANSFERS).read_bytes())
    write(own, {TRANSFERS: wrong()})
    for name in (f"__pycache__/transfers.{sys.implementation.cache_tag}.pyc", "transfers.pyc"):
        target = own / "wallet" / name
        py_compile.compile(str(right), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    right.unlink()


# Each is the honest wrong solution, which passes nothing, plus a trick.
TRICKS: dict[str, Callable[[Path], None]] = {
    # files that some runner or interpreter might pick up
    "test-runner-settings": files(
        {
            "conftest.py": CONFTEST + "\nimport os\ndef pytest_sessionfinish(session):\n    os._exit(0)\n",
            "pytest.ini": "[pytest]\naddopts = --collect-only\n",
            "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p evil"\n',
            "setup.cfg": "[tool:pytest]\naddopts = --collect-only\n",
            "evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
        }
    ),
    "start-up-files": files(
        {
            "sitecustomize.py": FAKE_JSON,
            "usercustomize.py": FAKE_JSON,
            "evil.pth": "import os; os._exit(0)\n",
            "encodings/__init__.py": "raise SystemExit(0)\n",
        }
    ),
    "standard-library-shadows": files({f"{name}.py": FAKE_JSON for name in ("json", "sqlite3", "os", "decimal")}),
    "judge-shadows": files(
        {
            "pytest.py": "import os\nos._exit(0)\n",
            "driver.py": "def main(request):\n    return []\n",
            "harness.py": "raise SystemExit(0)\n",
            "agent_ab/judging.py": "def expect(*a): pass\n",
        }
    ),
    # ending early
    "exit-at-import": at_import("os._exit(0)"),
    "sys-exit-at-import": at_import("sys.exit(0)"),
    "exit-in-transfer": in_transfer("os._exit(0)"),
    "skip": in_transfer("import unittest\nraise unittest.SkipTest('not today')"),
    "exit-in-thread": at_import("import threading\nthreading.Thread(target=sys.exit).start()"),
    "atexit-forges": at_import(f"import atexit\natexit.register(os.write, 3, {FORGED.encode()!r})"),
    "kill-own-group": in_transfer("os.killpg(0, 9)"),
    "kill-everything": in_transfer("os.kill(-1, 9)"),
    "exec-another-program": in_transfer("os.execv('/bin/echo', ['echo', '10 passed'])"),
    # objects that lie
    "always-equal": in_transfer(ALWAYS_EQUAL),
    "error-of-every-class": in_transfer(ALL_ERRORS),
    "metaclass-name": in_transfer(
        "M = type('M', (type,), {'__name__': property(lambda c: 'SameAccount')})\nraise M('X', (Exception,), {})()"
    ),
    "text-that-lies": in_transfer(
        "T = type('T', (str,), {'__eq__': lambda a, b: True})\nreturn Receipt(1, T(), T(), 1)"
    ),
    "everything-is-an-attribute": in_transfer("return type('Any', (), {'__getattr__': lambda s, n: s})()"),
    # looking for the answer
    "frames": in_transfer(FRAMES),
    "heap": in_transfer(HEAP),
    "disk": in_transfer(DISK),
    "environment": in_transfer("open('/proc/1/environ').read(), open('/proc/1/cmdline').read()\n" + HONEST),
    # the reply channel
    "forged-on-stdout": at_import(f"print('10 passed'); os.write(1, {FORGED.encode()!r} + b'\\n')"),
    "forged-on-every-descriptor": at_import(
        f"for fd in range(256):\n    try: os.write(fd, {FORGED.encode()!r} + b'\\n')\n    except OSError: pass"
    ),
    "forged-with-the-token": in_transfer(STOLEN_TOKEN),
    "closes-every-descriptor": in_transfer("os.closerange(0, 256)\n" + HONEST),
    "swaps-the-harness": at_import(f"FORGED = {FORGED!r}\n" + SWAP_MAIN),
    "escape-codes": in_transfer("raise ValueError('\\x1b[2J\\x1b]0;10 passed\\x07' + chr(0xdcff))"),
    # the files
    "deleted": lambda own: shutil.rmtree(own / "wallet"),
    "everything-deleted": lambda own: shutil.rmtree(own),
    "package-is-a-link": lambda own: relink(own, "wallet", "/etc"),
    "module-is-a-device-link": lambda own: relink(own, TRANSFERS, "/dev/zero"),
    "module-is-a-link-to-the-reference": lambda own: relink(own, TRANSFERS, own.parent / "judge/solution" / TRANSFERS),
    "module-is-a-fifo": lambda own: make_fifo(own / TRANSFERS),
    "writes-the-workspace": in_transfer("open(__file__, 'a').write('x')"),
    "writes-the-harness": in_transfer("open('/check/harness.py', 'w').write('x')"),
    "stale-bytecode": compile_the_reference,
}
ENDLESS: dict[str, Callable[[Path], None]] = {
    "infinite-loop": at_import("while True: pass"),
    "endless-output": at_import("while True: print('10 passed' * 1000)"),
    "sleeps-in-a-thread": at_import(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\nos.read(0, 1) or time.sleep(99)"
    ),
}


def test_the_honest_wrong_solution_passes_nothing(scene: Scene) -> None:
    assert scene.verdicts(files({})) == []


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_scores_what_the_honest_wrong_solution_scores(scene: Scene, trick: str) -> None:
    assert scene.verdicts(TRICKS[trick]) == []


@pytest.mark.parametrize("trick", ENDLESS)
def test_a_call_without_end_fails_its_check_and_no_other_call(scene: Scene, trick: str) -> None:
    results = scene.judge(ENDLESS[trick], limit_s=0.5)
    assert {result.reason for result in results} == {"no reply within 0.5 s"}


LATE_WRITER = """import os, time
if os.fork() == 0:
    os.setsid()
    while os.getppid() != 1:
        time.sleep(0.001)
    time.sleep(0.1)
    for name in os.listdir():
        open(name, "w").write("late")
    os._exit(0)
"""
BESIDE: dict[str, dict[str, str]] = {
    "modules-named-like-the-standard-library": {
        f"{name}.py": "raise SystemExit(0)\n" for name in ("json", "sqlite3", "os", "decimal", "site", "sitecustomize")
    },
    "test-configuration": {"conftest.py": CONFTEST, "pytest.ini": "[pytest]\naddopts = --collect-only\n"},
    "a-noisy-package": {"wallet/__init__.py": "print('10 passed\\n' * 2_000_000)\nprint('\\x1b[2J')\n"},
    "bytes-that-are-no-text": {"wallet/__init__.py": "import os\nos.write(1, bytes(range(256)) * 100)\n"},
    "a-process-left-behind": {
        "wallet/__init__.py": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(99)\n    os._exit(0)\n"
    },
    "a-late-writer": {"wallet/__init__.py": LATE_WRITER},
    "fifty-forks": {
        "wallet/__init__.py": "import os, time\nfor _ in range(50):\n    if os.fork() == 0:\n        time.sleep(99)\n        os._exit(0)\n"
    },
    "a-bounded-fork-bomb": {
        "wallet/__init__.py": "import os, time\ntry:\n    for _ in range(500):\n        if os.fork() == 0:\n            time.sleep(99)\n            os._exit(0)\nexcept OSError:\n    pass\n"
    },
    "a-greedy-package": {"wallet/__init__.py": "try:\n    x = bytearray(3 << 30)\nexcept MemoryError:\n    pass\n"},
}


@pytest.mark.parametrize("beside", BESIDE)
def test_what_lies_beside_right_code_changes_no_verdict(scene: Scene, beside: str) -> None:
    assert scene.verdicts(lambda own: write(own, BESIDE[beside]), solved=True) == list(MUTANTS)


def test_what_lies_beside_the_starting_code_changes_no_verdict(scene: Scene) -> None:
    everything = {name: text for beside in BESIDE.values() for name, text in beside.items() if "wallet" not in name}
    assert scene.verdicts(lambda own: write(own, everything)) == [scene.task.starting_passes]


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_state_fails_the_check_and_is_not_followed(scene: Scene, spoiled: str) -> None:
    code, reason = SPOILED[spoiled]
    results = {result.id: result for result in scene.judge(spoiling(code), solved=True)}
    assert results["self-transfer"].status is CheckStatus.FAIL
    assert re.search(reason, results["self-transfer"].reason)


def test_a_locked_workspace_is_judged_like_an_open_one(scene: Scene) -> None:
    def lock(own: Path) -> None:
        for path in sorted(own.rglob("*"), reverse=True):
            path.chmod(0)
        own.chmod(0)

    assert scene.verdicts(lock) == [scene.task.starting_passes]


def test_the_expected_values_and_the_reference_are_nowhere_in_the_box(scene: Scene) -> None:
    searching = (
        "tops = ('/check', '/state', '/workspace', '/tmp', '/home', '/run', '/opt', '/work', '/root', '/var/tmp')\n"
        "found = [os.path.join(here, name) for top in tops for here, _, names in os.walk(top) for name in names]\n"
        "raise type(' '.join(name for name in found if '/fixture/' not in name), (Exception,), {})"
    )
    results = scene.judge(in_transfer(searching))
    replied = next(entry["reply"] for entry in results[3].evidence if "reply" in entry)
    found = replied[0][0]["error"][0].split()
    assert "/check/harness.py" in found
    outside = [name for name in found if not name.startswith(("/workspace/", "/state/self.db"))]
    assert sorted(outside) == ["/check/driver.py", "/check/harness.py"]
