"""Edge cases of csv-ledger that are looked at and not scored."""

from decimal import Decimal

from agent_ab.judging import Candidate, expect, fail, probe

from .checks import asking, expect_done, expect_refused, held, importing, lines, move, rows_of


@probe(
    "huge-amounts", about="Amounts above 10**30, more digits than decimal's default context keeps, stay exact in sums."
)
def huge(candidate: Candidate) -> None:
    large = "1" + "0" * 30 + ".01"
    rows = (*move("g1", "2022-01-02", large, "assets:vault"), *move("g2", "2022-01-03", "0.02", "assets:vault"))
    off = ["g3,2022-01-04,assets:vault," + large + ",", "g3,2022-01-04,assets:giro,-1" + "0" * 30 + ","]
    done, balance, refused = candidate.call(
        [importing(lines(*rows)), asking("balance", account="assets:vault"), importing(lines(*off))]
    )
    expect_done(done, 2, 0, "importing amounts above 10**30")
    expect(Decimal(balance), Decimal("1" + "0" * 30 + ".03"), "the balance")
    expect_refused(refused, "UnbalancedTransaction", "a transaction that is off by a cent above 10**30")


@probe(
    "fails-after-the-last-row", about="A source that fails after its last row, where its end should be, has failed too."
)
def fails_last(candidate: Candidate) -> None:
    (reply,) = candidate.call([importing(lines(*move("f1", "2022-02-03", "5")), failure="io")])
    if reply.get("same") is not True:
        fail(f"the source's own exception did not come through; there was {reply.get('raised', 'a result')}")
    expect(held(candidate), [], "the books")


@probe(
    "open-quote", about="A file that ends inside a quoted field was cut off: it is refused, and nothing of it is kept."
)
def open_quote(candidate: Candidate) -> None:
    rows = lines(*move("o1", "2022-03-04", "5"), *move("o2", "2022-03-05", "6", memo='"and so'))
    (reply,) = candidate.call([importing(rows)])
    if not reply.get("refused"):
        fail(f"the file was not refused, but gave {reply.get('raised', 'a result')}")
    expect(held(candidate), [], "the books")


@probe("long-memo", about="A memo longer than the csv module's default limit of 131,072 characters is imported.")
def long_memo(candidate: Candidate) -> None:
    (reply,) = candidate.call([importing(lines(*move("l1", "2022-04-05", "5", memo="m" * 140_000)))])
    expect_done(reply, 1, 0, "importing a long memo")
    expect([len(row[4]) for row in held(candidate)], [140_000] * 2, "the lengths of the memos")


@probe("compact-date", about="Dates such as 20220506 or 2022-W18-5, which newer Pythons read as ISO 8601, are refused.")
def compact_date(candidate: Candidate) -> None:
    days = ("20220506", "2022-W18-5")
    replies = candidate.call([importing(lines(*move("c1", day, "5"))) for day in days])
    for day, reply in zip(days, replies, strict=True):
        expect_refused(reply, "BadRow", f"the date {day}")


@probe(
    "respelled-amounts", about="Amounts of the same value, spelled otherwise in a later export, are the same content."
)
def respelled(candidate: Candidate) -> None:
    first, again = move("v1", "2022-06-07", "1.50"), move("v1", "2022-06-07", "+1.5")
    replies = candidate.call([importing(lines(*first)), importing(lines(*again))])
    expect_done(replies[1], 0, 1, "importing 1.5 where the books have 1.50")
    expect(held(candidate), rows_of(*first), "the books")


@probe("odd-utf16", about="UTF-16 that ends in the middle of a character is not valid in its encoding.")
def odd_utf16(candidate: Candidate) -> None:
    content = b"\xff\xfe" + lines(*move("w1", "2022-07-08", "5")).decode().encode("utf-16-le")
    (reply,) = candidate.call([importing(content[:-1])])
    expect_refused(reply, "BadFile", "UTF-16 with half a character at its end")


@probe("missing-rows", about="A known id with fewer rows than the books have for it is another content.")
def missing_rows(candidate: Candidate) -> None:
    rows = (*move("n1", "2022-08-09", "5"), *move("n1", "2022-08-09", "6"))
    first, fewer = candidate.call([importing(lines(*rows)), importing(lines(*rows[:2]))])
    expect_done(first, 1, 0, "the first import")
    expect_refused(fewer, "DuplicateTransaction", "a known id with half of its rows")
