"""Accounts and their balances, in cents."""

from wallet import ledger
from wallet.errors import AccountExists, BalanceOverflow, InsufficientFunds, InvalidAmount, UnknownAccount

MAX_BALANCE = 2**63 - 1
"""The greatest integer that SQLite holds; past it, its sums turn into floating point."""


def open_account(connection, name, balance=0):
    """Create an account; an opening balance is booked as an entry without a transfer."""
    if balance < 0:
        raise InvalidAmount("an account cannot open with a debt")
    with connection:
        if find(connection, name) is not None:
            raise AccountExists(name)
        connection.execute("INSERT INTO accounts (name, balance) VALUES (?, ?)", (name, balance))
        if balance:
            ledger.add_entry(connection, None, name, balance)


def find(connection, name):
    """Return the balance of an account, or None when there is no such account."""
    row = connection.execute("SELECT balance FROM accounts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def balance(connection, name):
    """Return the balance of an account."""
    cents = find(connection, name)
    if cents is None:
        raise UnknownAccount(name)
    return cents


def listing(connection):
    """Return all (name, balance), sorted by name."""
    return connection.execute("SELECT name, balance FROM accounts ORDER BY name").fetchall()


def withdraw(connection, name, amount):
    """Take `amount` from an account; the caller commits."""
    held = balance(connection, name)
    if held < amount:
        raise InsufficientFunds(f"{name} is {amount - held} short")
    connection.execute("UPDATE accounts SET balance = ? WHERE name = ?", (held - amount, name))


def deposit(connection, name, amount):
    """Add `amount` to an account; the caller commits."""
    total = balance(connection, name) + amount
    if total > MAX_BALANCE:
        raise BalanceOverflow(name)
    connection.execute("UPDATE accounts SET balance = ? WHERE name = ?", (total, name))
