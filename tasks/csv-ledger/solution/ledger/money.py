"""Amounts: read, written, added up."""

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Iterable

Amount = Decimal

_PLAIN = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
# The default context would round sums to 28 digits.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def parse(text: str) -> Amount:
    """Return the amount that `text` spells. Raises ValueError."""
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"{text!r} is not an amount")
    return Decimal(text)


def spell(amount: Amount) -> str:
    """Return `amount` in plain decimal notation, as the database and the reports show it."""
    return f"{amount:f}"


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the exact sum of `amounts`."""
    result = Decimal(0)
    for amount in amounts:
        result = _EXACT.add(result, amount)
    return result
