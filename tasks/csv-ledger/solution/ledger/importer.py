"""Import of CSV files: all is read and checked first, then written in one database transaction."""

import codecs
import csv
import io
import re
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import BinaryIO, Iterator, List, Tuple

from . import money
from .errors import BadFile, BadRow, DuplicateTransaction, UnbalancedTransaction
from .model import Posting, Transaction
from .store import Ledger

COLUMNS = ("txn", "date", "account", "amount", "memo")
# The csv module's own limit, 128 KiB a field, is shorter than some memos.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class ImportResult:
    """What an import did, counted in transactions."""

    added: int
    skipped: int
    """They were in the ledger already."""


def import_csv(ledger: Ledger, source: BinaryIO) -> ImportResult:
    """Import the CSV file `source`, a binary file object. Raises LedgerError for a file that is refused."""
    transactions = _transactions(_text(source.read()))
    added = 0
    with ledger.connection:
        ledger.connection.execute("BEGIN IMMEDIATE")
        for transaction in transactions:
            known = ledger.find(transaction.id)
            if known is None:
                ledger.add(transaction)
                added += 1
            elif known != transaction:
                raise DuplicateTransaction(f"{transaction.id} is in the ledger with other rows")
    return ImportResult(added, len(transactions) - added)


def _text(data: bytes) -> str:
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(str(error)) from None


def _transactions(text: str) -> List[Transaction]:
    found = {}
    for (txn, day), rows in groupby(_rows(text), key=lambda row: row[:2]):
        if txn in found:
            raise DuplicateTransaction(f"{txn} comes twice, or with two dates")
        postings = tuple(posting for _, _, posting in rows)
        if money.total(posting.amount for posting in postings) != 0:
            raise UnbalancedTransaction(f"{txn} does not add up to zero")
        found[txn] = Transaction(txn, day, postings)
    return list(found.values())


def _rows(text: str) -> Iterator[Tuple[str, str, Posting]]:
    header: List[str] = []
    number = 0
    try:
        for number, fields in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), start=1):
            if fields and not header:
                header = fields
                for name in COLUMNS:
                    if name not in header:
                        raise BadFile(f"no column {name}")
            elif fields:
                yield _row(number, header, fields)
    except csv.Error as error:
        raise BadRow(number + 1, str(error)) from None


def _row(number: int, header: List[str], fields: List[str]) -> Tuple[str, str, Posting]:
    if len(fields) != len(header):
        raise BadRow(number, f"{len(fields)} fields, but {len(header)} columns")
    txn, day, account, amount, memo = (dict(zip(header, fields))[name] for name in COLUMNS)
    if not txn or not account:
        raise BadRow(number, "no transaction id or no account")
    try:
        if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", day):
            raise ValueError("a date is written YYYY-MM-DD")
        date.fromisoformat(day)
        return txn, day, Posting(account, money.parse(amount), memo)
    except ValueError as error:
        raise BadRow(number, str(error)) from None
