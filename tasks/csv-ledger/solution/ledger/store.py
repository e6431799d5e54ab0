"""The SQLite file."""

import sqlite3
from typing import List, Optional, Tuple

from . import money
from .model import Posting, Transaction

# Other programs read these tables: the schema does not change.
SCHEMA = """
CREATE TABLE IF NOT EXISTS transactions (
    number INTEGER PRIMARY KEY,            -- 1, 2, ... in the order of import
    id     TEXT NOT NULL UNIQUE,
    date   TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS postings (
    txn      INTEGER NOT NULL REFERENCES transactions (number),
    position INTEGER NOT NULL,             -- 1, 2, ... in the order of the transaction's rows
    account  TEXT NOT NULL,
    amount   TEXT NOT NULL,                -- plain decimal notation
    memo     TEXT NOT NULL,
    PRIMARY KEY (txn, position)
);
"""


class Ledger:
    """An open ledger file."""

    def __init__(self, path: str) -> None:
        """Open `path`, which is made when it is not there."""
        self.connection = sqlite3.connect(path)
        self.connection.executescript(SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def accounts(self) -> List[str]:
        """Return the names of all accounts, sorted."""
        rows = self.connection.execute("SELECT DISTINCT account FROM postings ORDER BY account")
        return [account for (account,) in rows]

    def balance(self, account: str) -> money.Amount:
        """Return the sum of everything that was posted to `account`."""
        rows = self.connection.execute("SELECT amount FROM postings WHERE account = ?", (account,))
        return money.total(money.parse(amount) for (amount,) in rows)

    def add(self, transaction: Transaction) -> None:
        """Add `transaction` as the last one; the caller commits."""
        query = "INSERT INTO transactions (id, date) VALUES (?, ?)"
        number = self.connection.execute(query, (transaction.id, transaction.date)).lastrowid
        self.connection.executemany(
            "INSERT INTO postings VALUES (?, ?, ?, ?, ?)",
            [
                (number, position, posting.account, money.spell(posting.amount), posting.memo)
                for position, posting in enumerate(transaction.postings, start=1)
            ],
        )

    def find(self, txn: str) -> Optional[Transaction]:
        """Return the transaction with the id `txn`, or None."""
        row = self.connection.execute("SELECT number, date FROM transactions WHERE id = ?", (txn,)).fetchone()
        return Transaction(txn, row[1], self._postings(row[0])) if row else None

    def journal(self) -> List[Transaction]:
        """Return all transactions by date, those of one date in the order of import."""
        rows = self.connection.execute("SELECT number, id, date FROM transactions ORDER BY date, number")
        return [Transaction(txn, date, self._postings(number)) for number, txn, date in rows.fetchall()]

    def _postings(self, number: int) -> Tuple[Posting, ...]:
        query = "SELECT account, amount, memo FROM postings WHERE txn = ? ORDER BY position"
        rows = self.connection.execute(query, (number,))
        return tuple(Posting(account, money.parse(amount), memo) for account, amount, memo in rows)
