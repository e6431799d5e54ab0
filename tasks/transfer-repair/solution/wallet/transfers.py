"""Money from one account to another."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Optional

from wallet import accounts, idempotency, ledger
from wallet.errors import InvalidAmount, KeyConflict, SameAccount


@dataclass(frozen=True)
class Receipt:
    """What was moved, for the caller to keep."""

    id: int
    source: str
    destination: str
    amount: int


def transfer(connection, source, destination, amount, key: Optional[str] = None) -> Receipt:
    """Move `amount` cents from `source` to `destination`, or raise and change nothing.

    A caller that may have to send its request again gives it a `key`.
    """
    if type(amount) is not int or amount <= 0:
        raise InvalidAmount(repr(amount))
    if source == destination:
        raise SameAccount(source)
    with _transaction(connection):
        if key is not None:
            earlier = idempotency.find(connection, key)
            if earlier is not None:
                return _replay(connection, earlier, (source, destination, amount))
        accounts.withdraw(connection, source, amount)
        accounts.deposit(connection, destination, amount)
        transfer_id = ledger.record(connection, source, destination, amount)
        if key is not None:
            idempotency.remember(connection, key, transfer_id)
    return Receipt(transfer_id, source, destination, amount)


@contextmanager
def _transaction(connection):
    # Immediate: the lock is ours before the first balance is read.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _replay(connection, transfer_id, request):
    made = ledger.find_transfer(connection, transfer_id)
    if made != request:
        raise KeyConflict(f"the key belongs to transfer {transfer_id}")
    return Receipt(transfer_id, *made)
