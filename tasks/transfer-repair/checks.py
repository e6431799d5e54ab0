"""The hidden checks: each lets the candidate work on a wallet that the judge made, and reads the file afterwards."""

import random
import sqlite3

from agent_ab.judging import Candidate, check, expect, fail
from agent_ab.model import Json

SCHEMA = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE transfers (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, destination TEXT NOT NULL, amount INTEGER NOT NULL
);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, transfer_id INTEGER REFERENCES transfers (id), account TEXT NOT NULL, amount INTEGER NOT NULL
);
CREATE TABLE idempotency_keys (key TEXT PRIMARY KEY, transfer_id INTEGER NOT NULL REFERENCES transfers (id));
"""
LARGEST = 2**63 - 1
ROUNDS = 16
"""More than the statements of any reasonable transfer; later rounds are two transfers one after the other."""


def wallet(balances: dict[str, int], more_sql: str = "") -> bytes:
    """Return the file of a wallet with these accounts, each opened by one entry."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(SCHEMA)
    for name, balance in balances.items():
        connection.execute("INSERT INTO accounts VALUES (?, ?)", (name, balance))
        connection.execute("INSERT INTO entries (account, amount) VALUES (?, ?)", (name, balance))
    connection.executescript(more_sql)
    data = connection.serialize()
    connection.close()
    return data


def moved(
    balances: dict[str, int], transfers: list[tuple[str, str, int]], keys: dict[str, int] | None = None
) -> dict[str, Json]:
    """Return what a wallet must hold after exactly `transfers`; `keys` maps a key to its transfer's number."""
    after = dict(balances)
    entries = [(None, name, balance) for name, balance in balances.items()]
    for number, (source, destination, amount) in enumerate(transfers, 1):
        after[source] -= amount
        after[destination] += amount
        entries += [(number, source, -amount), (number, destination, amount)]
    return {
        "accounts": sorted(after.items()),
        "transfers": [(number, *transfer) for number, transfer in enumerate(transfers, 1)],
        "entries": sorted(entries, key=repr),
        "idempotency_keys": sorted((keys or {}).items()),
    }


def contents(candidate: Candidate, file: str) -> dict[str, Json]:
    """Return all rows of a wallet that the candidate left, in the form of `moved`."""
    database = candidate.database(file)
    return {
        "accounts": database.execute("SELECT name, balance FROM accounts ORDER BY name").fetchall(),
        "transfers": database.execute("SELECT id, source, destination, amount FROM transfers ORDER BY id").fetchall(),
        "entries": sorted(database.execute("SELECT transfer_id, account, amount FROM entries").fetchall(), key=repr),
        "idempotency_keys": database.execute("SELECT key, transfer_id FROM idempotency_keys ORDER BY key").fetchall(),
    }


def play(candidate: Candidate, file: str, transfers: list[list[Json]]) -> list[Json]:
    """Run transfers one after the other over one connection and return their results."""
    results = candidate.call([{"do": "transfers", "file": file, "transfers": transfers}])[0]
    if len(results) != len(transfers):
        fail(f"{len(results)} results for {len(transfers)} transfers")
    return list(results)


def refused(result: Json, error: str, what: str) -> None:
    """Fail unless `result` is an error of the class `error`."""
    if result.get("error", [""])[0] != error:
        fail(f"{what}: expected {error}, got {outcome(result)}")


def accepted(result: Json, receipt: list[Json], what: str) -> None:
    """Fail unless `result` is this receipt."""
    if "receipt" not in result:
        fail(f"{what}: expected a receipt, got {outcome(result)}")
    expect(result["receipt"], receipt, f"{what}: the receipt")


def outcome(result: Json) -> str:
    """Return a result in a few words."""
    return f"the receipt {result['receipt']}" if "receipt" in result else str(result["error"][0])


@check(
    "atomicity",
    rule="When anything fails on the way, whatever it is and however late, none of this has happened, "
    "not even after the caller's next commit.",
)
def atomicity(candidate: Candidate) -> None:
    balances = {"nora": 900, "omar": 40, "pia": 8, "quin": 8}
    stages = {
        "debit": "UPDATE ON accounts WHEN NEW.name = 'nora'",
        "credit": "UPDATE ON accounts WHEN NEW.name = 'omar'",
        "transfer": "INSERT ON transfers WHEN NEW.destination = 'omar'",
        "first entry": "INSERT ON entries WHEN NEW.account = 'nora'",
        "second entry": "INSERT ON entries WHEN NEW.account = 'omar'",
        "key": "INSERT ON idempotency_keys WHEN NEW.key = 'broken'",
    }
    steps = []
    for stage, event in stages.items():
        trigger = f"CREATE TRIGGER disk BEFORE {event} BEGIN SELECT RAISE(ABORT, 'out of order'); END;"
        candidate.put(f"{stage}.db", wallet(balances, trigger))
        work = [["nora", "omar", 250, "broken"], ["pia", "quin", 5, "sound"]]
        steps.append({"do": "transfers", "file": f"{stage}.db", "transfers": work})
    for stage, results in zip(stages, candidate.call(steps), strict=True):
        what = f"a failure at the {stage}"
        refused(results[0], "IntegrityError", what)
        accepted(results[1], [1, "pia", "quin", 5], f"after {what}, another transfer")
        expect(contents(candidate, f"{stage}.db"), moved(balances, [("pia", "quin", 5)], {"sound": 1}), f"after {what}")


@check(
    "insufficient-funds",
    rule="The source must hold at least the amount: less raises `InsufficientFunds` and changes nothing, exactly the "
    "amount is enough.",
)
def insufficient_funds(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 0, "pia": 55}
    candidate.put("funds.db", wallet(balances))
    work = [["nora", "omar", 701, None], ["omar", "pia", 1, None], ["nora", "pia", 10**12, "fund-3"]]
    work += [["pia", "omar", 55, None], ["nora", "omar", 700, None], ["nora", "omar", 1, None]]
    results = play(candidate, "funds.db", work)
    for number in (0, 1, 2, 5):
        refused(results[number], "InsufficientFunds", f"{work[number][2]} from an account that holds less")
    accepted(results[3], [1, *work[3][:3]], "all that an account holds")
    accepted(results[4], [2, *work[4][:3]], "all that an account holds")
    expect(contents(candidate, "funds.db"), moved(balances, [("pia", "omar", 55), ("nora", "omar", 700)]), "the wallet")


@check("unknown-account", rule="If either account does not exist, `UnknownAccount` is raised and nothing changes.")
def unknown_account(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12}
    candidate.put("names.db", wallet(balances))
    work = [["nora", "nobody", 30, None], ["nobody", "nora", 30, None], ["nora", "NORA", 30, None]]
    work += [["nora", "omar ", 30, "spelt"], ["nora", "", 30, None], ["nora", "omar", 30, None]]
    results = play(candidate, "names.db", work)
    for request, result in zip(work[:5], results, strict=False):
        refused(result, "UnknownAccount", f"from {request[0]!r} to {request[1]!r}")
    accepted(results[5], [1, *work[5][:3]], "between accounts that exist")
    expect(contents(candidate, "names.db"), moved(balances, [("nora", "omar", 30)]), "the wallet")


@check("self-transfer", rule="A transfer from an account to itself raises `SameAccount` and changes nothing.")
def self_transfer(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12}
    candidate.put("self.db", wallet(balances))
    results = play(
        candidate, "self.db", [["nora", "nora", 7, None], ["omar", "omar", 12, "me"], ["nora", "omar", 9, None]]
    )
    refused(results[0], "SameAccount", "from an account to itself")
    refused(results[1], "SameAccount", "from an account to itself, all that it holds")
    accepted(results[2], [1, "nora", "omar", 9], "between two accounts")
    expect(contents(candidate, "self.db"), moved(balances, [("nora", "omar", 9)]), "the wallet")


@check(
    "amount-validation",
    rule="Anything else raises `InvalidAmount` and changes nothing: zero, negative numbers, `bool`, `float` (whole ones "
    "too), `Decimal`, text, `None`.",
)
def amount_validation(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12}
    candidate.put("amounts.db", wallet(balances))
    amounts: list[Json] = [0, -1, -(2**63), True, False, 5.0, 0.5, -3.0, {"decimal": "5"}, "5", "", None, [5]]
    work = [["nora", "omar", amount, f"amount {number}"] for number, amount in enumerate(amounts)]
    results = play(candidate, "amounts.db", [*work, ["nora", "omar", 1, None]])
    for amount, result in zip(amounts, results, strict=False):
        refused(result, "InvalidAmount", f"the amount {amount!r}")
    accepted(results[-1], [1, "nora", "omar", 1], "the amount 1")
    expect(contents(candidate, "amounts.db"), moved(balances, [("nora", "omar", 1)]), "the wallet")


@check(
    "idempotency-keys",
    rule="A request that is sent again with the same key, source, destination and amount returns the first receipt and "
    "moves nothing, even if the source could not pay any more. The same key with another source, destination or amount "
    "raises `KeyConflict` and changes nothing. Every string is a key, the empty one too; a request that failed does not "
    "use up its key.",
)
def idempotency_keys(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12, "pia": 400}
    candidate.put("keys.db", wallet(balances))
    first: list[Json] = ["nora", "omar", 650, "K"]
    results = play(candidate, "keys.db", [first, first, ["nora", "pia", 900, "retry"], ["nora", "omar", 40, "retry"]])
    accepted(results[0], [1, *first[:3]], "a request with a key")
    accepted(results[1], [1, *first[:3]], "the same request again, which the source could not pay now")
    refused(results[2], "InsufficientFunds", "a request that fails")
    accepted(results[3], [2, "nora", "omar", 40], "another request with the key of one that failed")
    others = [
        ["pia", "omar", 650, "K"],
        ["nora", "pia", 650, "K"],
        ["nora", "omar", 649, "K"],
        ["omar", "nora", 650, "K"],
    ]
    more = [["pia", "omar", 3, ""], ["pia", "omar", 3, ""], ["pia", "omar", 4, ""], ["pia", "omar", 3, "k"], first]
    results = play(candidate, "keys.db", [*others, *more])
    for request, result in zip(others, results, strict=False):
        refused(result, "KeyConflict", f"{request[:3]} with a key that was used for {first[:3]}")
    accepted(results[4], [3, "pia", "omar", 3], "a request with the empty key")
    accepted(results[5], [3, "pia", "omar", 3], "the same request again with the empty key")
    refused(results[6], "KeyConflict", "another request with the empty key")
    accepted(results[7], [4, "pia", "omar", 3], "a key that differs from a used one by case")
    accepted(results[8], [1, *first[:3]], "the first request again, over another connection")
    made = [("nora", "omar", 650), ("nora", "omar", 40), ("pia", "omar", 3), ("pia", "omar", 3)]
    expect(contents(candidate, "keys.db"), moved(balances, made, {"K": 1, "retry": 2, "": 3, "k": 4}), "the wallet")


@check(
    "balance-overflow",
    rule="A transfer that would take the destination beyond it raises `BalanceOverflow` and changes nothing.",
)
def balance_overflow(candidate: Candidate) -> None:
    balances = {"nora": 800, "omar": LARGEST - 500, "pia": 2**62 + 7}
    candidate.put("large.db", wallet(balances))
    work = [["nora", "omar", 501, "over"], ["pia", "omar", 2**62, None], ["omar", "pia", 2**62, None]]
    work += [["nora", "omar", 500, "over"], ["nora", "omar", 1, None], ["omar", "nora", 1, None]]
    results = play(candidate, "large.db", work)
    for number in (0, 1, 2, 4):
        refused(results[number], "BalanceOverflow", f"{work[number][2]} to {work[number][1]}")
    accepted(results[3], [1, *work[3][:3]], "up to the largest balance")
    accepted(results[5], [2, *work[5][:3]], "away from the largest balance")
    after = moved(balances, [("nora", "omar", 500), ("omar", "nora", 1)], {"over": 1})
    expect(contents(candidate, "large.db"), after, "the wallet")


@check(
    "open-transaction",
    rule="Whether `transfer` returns or raises, for whatever reason, it leaves no transaction open on the connection, "
    "and no lock on the file.",
)
def open_transaction(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": LARGEST, "pia": 5}
    trigger = "CREATE TRIGGER disk BEFORE INSERT ON entries WHEN NEW.amount = 77 BEGIN SELECT RAISE(ABORT, 'x'); END;"
    candidate.put("open.db", wallet(balances, trigger))
    candidate.put("busy.db", wallet(balances))
    work: list[list[Json]] = [["nora", "pia", 20, "open"], ["nora", "pia", 20, "open"], ["nora", "pia", 21, "open"]]
    work += [
        ["pia", "nora", 900, None],
        ["pia", "omar", 1, None],
        ["nora", "nobody", 1, None],
        ["nobody", "pia", 1, None],
    ]
    work += [
        ["nora", "nora", 1, None],
        ["nora", "pia", -1, None],
        ["nora", "pia", "x", None],
        ["nora", "pia", 77, None],
    ]
    steps: list[Json] = [{"do": "transfers", "file": "open.db", "transfers": work}]
    steps.append({"do": "against_reader", "file": "busy.db", "transfer": ["nora", "pia", 20, None]})
    results, busy = candidate.call(steps)
    for request, result in zip(work, results, strict=True):
        what = f"after {outcome(result)} for {request[:3]}"
        expect(result["open"], False, f"{what}: an open transaction")
        expect(result["locked"], False, f"{what}: a lock on the file")
    what = f"after {outcome(busy)} while another connection was reading"
    expect(busy["open"], False, f"{what}: an open transaction")
    expect(busy["locked"], False, f"{what}: a lock on the file")
    accepted(results[0], [1, *work[0][:3]], "the first transfer")
    refused(results[-1], "IntegrityError", "the last transfer")


@check(
    "double-spend",
    rule="The same money is never spent twice: a transfer that comes too late raises `InsufficientFunds`, or "
    "`sqlite3.OperationalError` if the file stays locked for longer than the connection's timeout.",
)
def double_spend(candidate: Candidate) -> None:
    balances: dict[str, int] = {}
    rounds: list[Json] = []
    for k in range(ROUNDS):
        balances |= {f"payer{k}": 100, f"shop{k}": 3, f"rival{k}": 4}
        rounds.append([[f"payer{k}", f"shop{k}", 70, None], [f"payer{k}", f"rival{k}", 70, None]])
    candidate.put("race.db", wallet(balances))
    played = candidate.call([{"do": "race", "file": "race.db", "rounds": rounds}])[0]
    for number, (results, requests) in enumerate(zip(played, rounds, strict=True), 1):
        what = f"with a rival before statement {number}" if results["inside"] else "one after the other"
        winners = [k for k, name in enumerate(("first", "rival")) if "receipt" in results[name]]
        if len(winners) != 1:
            fail(f"{what}: {len(winners)} of two transfers of 70 out of 100 went through")
        loser = results["first" if winners == [1] else "rival"]
        if not results["inside"] or loser["error"][0] != "OperationalError":
            refused(loser, "InsufficientFunds", f"{what}: the transfer that came too late")
        payer, payee, amount, _ = requests[winners[0]]
        balances[payer] -= amount
        balances[payee] += amount
    expect(contents(candidate, "race.db")["accounts"], sorted(balances.items()), "the balances")


@check(
    "conservation",
    rule="Transfers never change the sum of all balances, to the cent, however large the balances are. Every balance is "
    "the sum of its account's entries, and the two entries of a transfer are minus the amount for the source and plus "
    "the amount for the destination.",
)
def conservation(candidate: Candidate) -> None:
    dice = random.Random(20240101)
    balances = {name: dice.randrange(2**58, 2**60) * 2 + 1 for name in ("nora", "omar", "pia", "quin", "rosa")}
    candidate.put("sum.db", wallet(balances))
    work: list[tuple[str, str, int]] = []
    for _ in range(40):
        source, destination = dice.sample(sorted(balances), 2)
        work.append((source, destination, dice.choice([1, 99, 12_345, dice.randrange(2**53, 2**54)])))
    results = play(candidate, "sum.db", [[*request, None] for request in work])
    for number, (request, result) in enumerate(zip(work, results, strict=True), 1):
        accepted(result, [number, *request], f"transfer {number}")
    expect(contents(candidate, "sum.db"), moved(balances, work), "the wallet")
