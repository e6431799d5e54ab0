"""The judge of csv-ledger: what an import answers, and what is in the SQLite file afterwards."""

from collections.abc import Sequence
from decimal import Decimal

from agent_ab.judging import Candidate, check, expect, fail
from agent_ab.model import Json

HEADER = "txn,date,account,amount,memo"
HELD = """
SELECT t.id, t.date, p.account, p.amount, p.memo
FROM transactions AS t LEFT JOIN postings AS p ON p.txn = t.number ORDER BY t.number, p.position
"""


def lines(*rows: str) -> bytes:
    """Return a CSV file with our header and `rows`."""
    return "".join(f"{row}\r\n" for row in (HEADER, *rows)).encode()


def move(txn: str, day: str, amount: str, to: str = "expenses:office", memo: str = "paper") -> tuple[str, str]:
    """Return the two rows that move `amount` from the bank to the account `to`."""
    back = amount[1:] if amount.startswith("-") else "-" + amount.lstrip("+")
    return f"{txn},{day},{to},{amount},{memo}", f"{txn},{day},assets:giro,{back},{memo}"


def importing(content: bytes, books: str = "books.db", failure: str | None = None) -> Json:
    """Return the step that imports `content` from a source that then ends, or fails."""
    return {"do": "import", "books": books, "content": content.decode("latin-1"), "failure": failure}


def asking(what: str, **more: str) -> Json:
    """Return another step."""
    return {"do": what, "books": "books.db", **more}


def expect_done(reply: Json, added: int, skipped: int, what: str) -> None:
    """Fail unless the import succeeded with these counts."""
    if "raised" in reply:
        fail(f"{what} raised {reply['raised']}: {reply['says']}")
    expect(reply, {"added": added, "skipped": skipped}, what)


def expect_refused(reply: Json, error: str, what: str) -> None:
    """Fail unless the import raised the named error of the package."""
    if error not in reply.get("refused", ()):
        fail(f"{what} was not refused with {error}, but gave {reply.get('raised', 'a result')}")


def held(candidate: Candidate, books: str = "books.db") -> list[tuple[Json, ...]]:
    """Return (id, date, account, amount, memo) of every posting in the file, in order of import."""
    rows = candidate.database(books).execute(HELD).fetchall()
    return [(txn, day, account, amount and Decimal(amount), memo) for txn, day, account, amount, memo in rows]


def rows_of(*rows: str) -> list[tuple[Json, ...]]:
    """Return what the file should hold for rows without quoting."""
    cells = [row.split(",") for row in rows]
    return [(txn, day, account, Decimal(amount), memo) for txn, day, account, amount, memo in cells]


@check(
    "rfc4180-quoting",
    rule="Fields are quoted as in RFC 4180: a quoted field may hold commas, doubled quotes and line breaks, and its content "
    "is kept exactly as it stands.",
)
def quoting(candidate: Candidate) -> None:
    memos = [
        'pens, ink and "blue" paper',
        "first line\nsecond line\r\nthird line\r\n",
        "  padded on both sides  ",
        '"',
        "page\x0cbreak, \x0btab and \u2028separator",
        "",
    ]
    account = "expenses:pens, ink"
    rows = ['"txn","date","account","amount","memo"']
    for number, memo in enumerate(memos):
        quoted = memo.replace('"', '""')
        rows += [f'q{number},2023-04-05,"{account}","12.75","{quoted}"', f'"q{number}",2023-04-05,assets:giro,-12.75,']
    (reply,) = candidate.call([importing("".join(row + "\r\n" for row in rows).encode())])
    expect_done(reply, len(memos), 0, "importing quoted fields")
    found = held(candidate)
    expect([row[4] for row in found[::2]], memos, "the memos")
    expect([row[2] for row in found[::2]], [account] * len(memos), "the quoted account")


@check(
    "text-encodings",
    rule="A file is UTF-8, with or without a byte order mark, or UTF-16 with one, in either byte order; the mark is not part of "
    "the first column's name, and bytes that are not valid in the file's encoding are refused with `BadFile`.",
)
def encodings(candidate: Candidate) -> None:
    rows = move("e1", "2023-05-06", "4.20", "expenses:café", "Zürich → Łódź 🧾")
    text = lines(*rows).decode()
    files = {
        "plain.db": text.encode(),
        "marked.db": b"\xef\xbb\xbf" + text.encode(),
        "little.db": b"\xff\xfe" + text.encode("utf-16-le"),
        "big.db": b"\xfe\xff" + text.encode("utf-16-be"),
    }
    steps = [importing(content, books) for books, content in files.items()]
    broken = lines(*move("e2", "2023-05-06", "4.20"), *move("e3", "2023-05-07", "4.20", memo="caf_")).replace(
        b"f_", b"f\xe9"
    )
    *replies, last = candidate.call([*steps, importing(broken, "broken.db")])
    for books, reply in zip(files, replies, strict=True):
        expect_done(reply, 1, 0, f"importing the {books[:-3]} file")
        expect(held(candidate, books), rows_of(*rows), f"what the {books[:-3]} file left")
    expect_refused(last, "BadFile", "a file with bytes that are not UTF-8")


@check(
    "read-failure",
    rule="Whatever the source raises while it is read reaches our caller as the very same exception object, and nothing of the "
    "file is in the books.",
)
def read_failure(candidate: Candidate) -> None:
    before = move("r0", "2023-06-07", "1.25")
    whole = lines(*move("r1", "2023-06-08", "2.50"), *move("r2", "2023-06-09", "3.75"))
    inside_a_row = lines(
        *move("r1", "2023-06-08", "2.50"), *move("r2", "2023-06-09", "3.75"), *move("r3", "2023-06-10", "5")
    )
    replies = candidate.call(
        [
            importing(lines(*before)),
            importing(inside_a_row[:-20], failure="io"),
            importing(whole, failure="cut"),
            importing(inside_a_row[:8], failure="cut"),
        ]
    )
    expect_done(replies[0], 1, 0, "importing a readable file")
    for reply in replies[1:]:
        if reply.get("same") is not True:
            fail(f"the source's own exception did not come through; there was {reply.get('raised', 'a result')}")
    expect(held(candidate), rows_of(*before), "the books after sources that failed")


@check(
    "malformed-rows",
    rule="A row is refused with `BadRow` when it has more or fewer fields than the header, an empty id or account, a date that is "
    "not a real day written `YYYY-MM-DD`, or an amount that is anything but an optional sign, ASCII digits and, optionally, a "
    "point followed by more ASCII digits.",
)
def malformed(candidate: Candidate) -> None:
    amounts = ["", "five", "1e3", "NaN", "-Infinity", "1_000", "0x10", "--5", "5.", ".5", "1.2.3", " 5", "٣", "５.0"]
    days = ["", "2023-02-29", "2023-13-01", "07.08.2023", "2023-7-8", "2023-07-08T00:00"]
    bad = [f"m2,2023-07-08,assets:giro,{amount}," for amount in amounts]
    bad += [f"m2,{day},assets:giro,5," for day in days]
    bad += [
        "m2,2023-07-08,assets:giro,5",
        "m2,2023-07-08,assets:giro,5,,",
        ",2023-07-08,assets:giro,5,",
        "m2,2023-07-08,,5,",
    ]
    good = (*move("m1", "2023-07-08", "+5.00"), *move("m0", "2024-02-29", "-007"))
    steps = [importing(lines(*good[:2], row, *good[2:])) for row in bad]
    *replies, last = candidate.call([*steps, importing(lines(*good), "good.db")])
    for row, reply in zip(bad, replies, strict=True):
        expect_refused(reply, "BadRow", f"the row {row!r}")
        expect(reply["row"], 4, "BadRow.row of the fourth row")
    expect_done(last, 2, 0, "importing amounts with signs and a leap day")


@check(
    "unbalanced-group",
    rule="The amounts of each transaction add up to exactly zero; otherwise the file is refused with `UnbalancedTransaction`, "
    "whatever the sum over the whole file is.",
)
def unbalanced(candidate: Candidate) -> None:
    files = {
        "two that cancel out": [
            "u1,2023-08-09,a,7,",
            "u1,2023-08-09,b,-6,",
            "u2,2023-08-09,a,6,",
            "u2,2023-08-09,b,-7,",
        ],
        "off by a tenth of a cent": ["u1,2023-08-09,a,20.001,", "u1,2023-08-09,b,-20,"],
        "off in the twentieth digit": ["u1,2023-08-09,a,0.1,", "u1,2023-08-09,b,-0.1000000000000000000001,"],
        "a single row": ["u1,2023-08-09,a,3,"],
    }
    steps = [importing(lines(*rows)) for rows in files.values()]
    fair = ["u1,2023-08-09,a,0.1,", "u1,2023-08-09,a,0.2,", "u1,2023-08-09,b,-0.3,"]
    *replies, last = candidate.call([*steps, importing(lines(*fair), "fair.db")])
    for name, reply in zip(files, replies, strict=True):
        expect_refused(reply, "UnbalancedTransaction", f"a file with an unbalanced transaction ({name})")
    expect(held(candidate), [], "the books after the refusals")
    expect_done(last, 1, 0, "importing 0.1 + 0.2 - 0.3")


@check(
    "repeated-id",
    rule="An id belongs to one transaction: a file in which it comes back after the rows of another transaction, or which gives "
    "it another date, account, amount or memo than the books have for it, is refused with `DuplicateTransaction`.",
)
def repeated(candidate: Candidate) -> None:
    first, second = move("d1", "2023-09-10", "8.80"), move("d2", "2023-09-11", "9.90")
    others: dict[str, Sequence[str]] = {
        "date": move("d1", "2023-09-12", "8.80"),
        "amount": move("d1", "2023-09-10", "8.81"),
        "account": move("d1", "2023-09-10", "8.80", to="expenses:travel"),
        "memo": move("d1", "2023-09-10", "8.80", memo="pencils"),
    }
    comeback = importing(lines(*first, *second, *first), "comeback.db")
    base, *replies, last = candidate.call(
        [importing(lines(*first)), *(importing(lines(*rows)) for rows in others.values()), comeback]
    )
    expect_done(base, 1, 0, "the first import")
    for what, reply in zip(others, replies, strict=True):
        expect_refused(reply, "DuplicateTransaction", f"a known id with another {what}")
    expect(held(candidate), rows_of(*first), "the books after the refusals")
    expect_refused(last, "DuplicateTransaction", "an id that comes back in the same file")


@check(
    "second-import",
    rule="A transaction that the books already hold with the same content is skipped and counted as `skipped`, so importing a "
    "file again adds nothing, and importing a longer export of the same account adds only what is new.",
)
def second_import(candidate: Candidate) -> None:
    old = (*move("s1", "2023-10-11", "+2.00"), *move("s2", "2023-10-12", "-007.10", memo="refund"))
    new = move("s3", "2023-10-09", "0.55")
    first, again = candidate.call([importing(lines(*old)), importing(lines(*old))])
    expect_done(first, 2, 0, "the first import")
    expect_done(again, 0, 2, "importing the same file again")
    (longer,) = candidate.call([importing(lines(*new, *old))])
    expect_done(longer, 1, 2, "importing a longer export in another process")
    expect(held(candidate), rows_of(*old, *new), "the books after all imports")


@check(
    "half-import",
    rule="An import is all or nothing: when `import_csv` returns, everything is committed; when it raises, the books hold what "
    "they held before and no database transaction is left open.",
)
def half_import(candidate: Candidate) -> None:
    before, after = move("h0", "2023-11-12", "6.10"), move("h9", "2023-11-19", "6.90")
    good = move("h1", "2023-11-13", "6.20")
    broken_row = lines(*good, "h2,2023-11-14,expenses:office,6.30,", "h2,2023-11-14,assets:giro,much,", *after)
    conflict = lines(*good, *move("h0", "2023-11-12", "6.11"))
    unbalanced_end = lines(*good, "h3,2023-11-15,expenses:office,6.40,")
    replies = candidate.call(
        [
            importing(lines(*before)),
            importing(broken_row),
            asking("write"),
            importing(conflict),
            asking("write"),
            importing(unbalanced_end),
            asking("write"),
            importing(lines(*after)),
        ]
    )
    expect_done(replies[0], 1, 0, "the first import")
    for reply, what in zip(replies[1:6:2], ("a broken row", "an id of the books", "an unbalanced end"), strict=True):
        if not reply.get("refused"):
            fail(f"a file with {what} was not refused, but gave {reply.get('raised', 'a result')}")
    expect(replies[2:7:2], [True] * 3, "whether another program could write after each refusal")
    expect_done(replies[7], 1, 0, "a good import after the refusals")
    expect(held(candidate), rows_of(*before, *after), "the books after all imports")


@check(
    "exact-amounts",
    rule="Amounts and balances are exact `decimal.Decimal` values, however large: no digit that was in the file is ever lost, "
    "neither in `postings.amount` nor in what `Ledger.balance` and `Ledger.journal` return.",
)
def exact(candidate: Candidate) -> None:
    rows = [
        *move("x1", "2023-12-13", "9007199254740993.01", "assets:vault"),
        *move("x2", "2023-12-14", "0.02", "assets:vault"),
        "x3,2023-12-15,assets:mint,12345678901234567890.12345678,",
        "x3,2023-12-15,assets:coins,-12345678901234567890,",
        "x3,2023-12-15,assets:dust,-0.12345678,",
    ]
    balances = {
        "assets:vault": "9007199254740993.03",
        "assets:giro": "-9007199254740993.03",
        "assets:mint": "12345678901234567890.12345678",
        "assets:coins": "-12345678901234567890",
        "assets:dust": "-0.12345678",
    }
    done, journal, *replies = candidate.call(
        [importing(lines(*rows)), asking("journal"), *(asking("balance", account=name) for name in balances)]
    )
    expect_done(done, 3, 0, "importing large amounts")
    expect(held(candidate), rows_of(*rows), "the stored postings")
    shown = [Decimal(posting["amount"]) for transaction in journal for posting in transaction["postings"]]
    expect(shown, [row[3] for row in rows_of(*rows)], "the amounts in the journal")
    expect([Decimal(r) for r in replies], [Decimal(b) for b in balances.values()], "the balances")


@check(
    "journal-order",
    rule="`Ledger.journal` lists transactions by date, those of one date in the order in which they were imported, and the "
    "postings of a transaction in the order of their rows.",
)
def order(candidate: Candidate) -> None:
    many = [
        f"t9,2023-03-02,{account},{amount}," for account, amount in [("z", "5"), ("b", "-2"), ("y", "-2"), ("a", "-1")]
    ]
    first = lines(*many, *move("t10", "2023-03-02", "3"), *move("t2", "2023-03-01", "4"))
    second = lines(*move("t1", "2023-03-02", "6"), *move("t8", "2023-02-28", "7"))
    one, two, journal = candidate.call([importing(first), importing(second), asking("journal")])
    expect_done(one, 3, 0, "the first import")
    expect_done(two, 2, 0, "the second import")
    expect([transaction["id"] for transaction in journal], ["t8", "t2", "t9", "t10", "t1"], "the order of the journal")
    accounts = [posting["account"] for posting in journal[2]["postings"]]
    expect(accounts, ["z", "b", "y", "a"], "the order of a transaction's postings")
