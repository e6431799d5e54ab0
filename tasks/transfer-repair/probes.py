"""Edge cases beyond the instruction's letter: shown in review, never scored."""

from agent_ab.judging import Candidate, expect, fail, probe

from .checks import ROUNDS, accepted, contents, moved, outcome, play, refused, wallet


@probe("power-cut", about="The process dies in the middle of a transfer, after both balances were written.")
def power_cut(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12}
    trigger = "CREATE TRIGGER power AFTER INSERT ON entries WHEN NEW.account = 'omar' BEGIN SELECT power_cut(); END;"
    candidate.put("power.db", wallet(balances, trigger))
    status = candidate.call([{"do": "power_cut", "file": "power.db", "transfer": ["nora", "omar", 5, None]}])[0]
    expect(status, 9, "the exit status of the process that dies")
    expect(contents(candidate, "power.db"), moved(balances, []), "the wallet")


@probe("rolled-back-by-sqlite", about="SQLite itself rolls back, as on a full disk: the first error is the one raised.")
def rolled_back_by_sqlite(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12}
    trigger = "CREATE TRIGGER full BEFORE INSERT ON entries WHEN NEW.amount = 6 BEGIN SELECT RAISE(ROLLBACK, 'x'); END;"
    candidate.put("full.db", wallet(balances, trigger))
    results = play(candidate, "full.db", [["nora", "omar", 6, None], ["nora", "omar", 7, None]])
    refused(results[0], "IntegrityError", "a transfer that SQLite rolled back")
    accepted(results[1], [1, "nora", "omar", 7], "the next transfer")
    expect(contents(candidate, "full.db"), moved(balances, [("nora", "omar", 7)]), "the wallet")


@probe("callers-own-transaction", about="A caller that has a change of its own pending can still roll it back.")
def callers_own_transaction(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12}
    candidate.put("own.db", wallet(balances))
    transfer = ["nora", "omar", 5, None]
    result = candidate.call([{"do": "inside_own_transaction", "file": "own.db", "transfer": transfer}])[0]
    expect(contents(candidate, "own.db"), moved(balances, []), f"after {outcome(result)} and a rollback: the wallet")


@probe(
    "amount-beyond-sqlite", about="An amount that SQLite cannot hold is refused like any other, not by OverflowError."
)
def amount_beyond_sqlite(candidate: Candidate) -> None:
    balances = {"nora": 700, "omar": 12}
    candidate.put("beyond.db", wallet(balances))
    amounts = [2**63, 10**30, 10**400]
    results = play(candidate, "beyond.db", [["nora", "omar", amount, None] for amount in amounts])
    for result in results:
        if "WalletError" not in result.get("error", []):
            fail(f"an amount beyond 64 bits: expected a WalletError, got {outcome(result)}")
    expect(contents(candidate, "beyond.db"), moved(balances, []), "the wallet")


@probe("same-key-at-once", about="Two connections send the same request under one key: it is carried out once.")
def same_key_at_once(candidate: Candidate) -> None:
    balances: dict[str, int] = {}
    rounds = []
    for k in range(ROUNDS):
        balances |= {f"payer{k}": 100, f"shop{k}": 3}
        rounds.append([[f"payer{k}", f"shop{k}", 20, f"key{k}"]] * 2)
    candidate.put("keys.db", wallet(balances))
    played = candidate.call([{"do": "race", "file": "keys.db", "rounds": rounds}])[0]
    for number, results in enumerate(played, 1):
        receipts = [results[name]["receipt"] for name in ("first", "rival") if "receipt" in results[name]]
        if not receipts or receipts[0] != receipts[-1]:
            fail(f"round {number}: {outcome(results['first'])} and {outcome(results['rival'])}")
    expect(len(contents(candidate, "keys.db")["transfers"]), ROUNDS, "the number of transfers")


@probe("odd-names", about="Names with quotes, other alphabets, line breaks and great length are names like any other.")
def odd_names(candidate: Candidate) -> None:
    names = ["o'neil; --", "Žofie", "two\nlines", "x" * 5000, " "]
    balances = dict.fromkeys(names, 10)
    candidate.put("names.db", wallet(balances))
    work = list(zip(names, names[1:], range(1, 5), strict=False))
    results = play(candidate, "names.db", [[*request, request[0]] for request in work])
    for number, (request, result) in enumerate(zip(work, results, strict=True), 1):
        accepted(result, [number, *request], "a transfer between odd names")
    keys = {request[0]: number for number, request in enumerate(work, 1)}
    found = contents(candidate, "names.db")
    expected = moved(balances, work, keys)
    found["idempotency_keys"] = sorted(found["idempotency_keys"])
    expect(found, expected, "the wallet")
