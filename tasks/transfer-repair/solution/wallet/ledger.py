"""The record of what was moved: one row per transfer, and one entry per account that it touched."""


def record(connection, source, destination, amount):
    """Write a transfer with its two entries and return its id; the caller commits."""
    cursor = connection.execute(
        "INSERT INTO transfers (source, destination, amount) VALUES (?, ?, ?)",
        (source, destination, amount),
    )
    add_entry(connection, cursor.lastrowid, source, -amount)
    add_entry(connection, cursor.lastrowid, destination, amount)
    return cursor.lastrowid


def add_entry(connection, transfer_id, account, amount):
    """Write one entry; an amount below zero left the account."""
    connection.execute(
        "INSERT INTO entries (transfer_id, account, amount) VALUES (?, ?, ?)",
        (transfer_id, account, amount),
    )


def find_transfer(connection, transfer_id):
    """Return (source, destination, amount) of a transfer."""
    return connection.execute(
        "SELECT source, destination, amount FROM transfers WHERE id = ?", (transfer_id,)
    ).fetchone()


def history(connection, account, limit=50):
    """Return the latest entries of an account as (transfer id, amount), newest first."""
    return connection.execute(
        "SELECT transfer_id, amount FROM entries WHERE account = ? ORDER BY id DESC LIMIT ?",
        (account, limit),
    ).fetchall()
