"""Runs in the candidate's process: plays a list of steps against wallets in the working directory."""

import os
import sqlite3
from decimal import Decimal


def main(request):
    return [globals()["do_" + step["do"]](step) for step in request]


def open_wallet(name, timeout=5.0):
    from wallet.database import connect

    connection = connect(name, timeout=timeout)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def attempt(connection, arguments):
    """Return the receipt's fields, or the names of the error's classes."""
    from wallet.transfers import transfer

    source, destination, amount, key = arguments
    if isinstance(amount, dict):
        amount = Decimal(amount["decimal"])
    try:
        receipt = transfer(connection, source, destination, amount, key)
    except Exception as error:
        return {"error": [kind.__name__ for kind in type(error).__mro__]}
    return {"receipt": [getattr(receipt, field) for field in ("id", "source", "destination", "amount")]}


def is_locked(name):
    other = sqlite3.connect(name, timeout=0, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        return False
    except sqlite3.OperationalError:
        return True
    finally:
        other.close()


def do_transfers(step):
    """Transfers one after the other over one connection; then whatever the caller would do next: commit."""
    connection = open_wallet(step["file"])
    results = []
    for arguments in step["transfers"]:
        result = attempt(connection, arguments)
        result["open"] = connection.in_transaction
        result["locked"] = is_locked(step["file"])
        results.append(result)
        connection.commit()
    connection.close()
    return results


def do_against_reader(step):
    """One transfer while another connection reads, so that the commit may fail."""
    connection = open_wallet(step["file"], timeout=0)
    reader = sqlite3.connect(step["file"], isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM accounts").fetchall()
    result = attempt(connection, step["transfer"])
    result["open"] = connection.in_transaction
    reader.execute("COMMIT")
    result["locked"] = is_locked(step["file"])
    connection.close()
    reader.close()
    return result


def do_race(step):
    """In round k a rival's transfer, on its own connection, comes just before the k-th statement of the first one's."""
    return [race(step["file"], number, *names) for number, names in enumerate(step["rounds"], 1)]


def race(file, number, first, rival):
    one, other = open_wallet(file, timeout=0), open_wallet(file, timeout=0)
    rivals = []
    statements = 0

    def before_statement(_sql):
        nonlocal statements
        statements += 1
        if statements == number:
            rivals.append(attempt(other, rival))

    one.set_trace_callback(before_statement)
    outcome = attempt(one, first)
    one.set_trace_callback(None)
    inside = bool(rivals)
    if not inside:
        rivals.append(attempt(other, rival))
    one.close()
    other.close()
    return {"first": outcome, "rival": rivals[0], "inside": inside}


def do_power_cut(step):
    """One transfer in a process that dies when the database calls `power_cut()`."""
    child = os.fork()
    if child == 0:
        connection = open_wallet(step["file"])
        connection.create_function("power_cut", 0, lambda: os._exit(9))
        attempt(connection, step["transfer"])
        os._exit(0)
    return os.WEXITSTATUS(os.waitpid(child, 0)[1])


def do_inside_own_transaction(step):
    """One transfer while the caller has a change of its own pending, which the caller then rolls back."""
    connection = open_wallet(step["file"])
    connection.execute("BEGIN")
    connection.execute("INSERT INTO accounts (name, balance) VALUES ('pending', 0)")
    result = attempt(connection, step["transfer"])
    result["open"] = connection.in_transaction
    connection.rollback()
    connection.close()
    return result
