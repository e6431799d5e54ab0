"""Runs in the candidate's process: plays a list of steps on ledgers and tells what could be seen from outside."""

import errno
import io
import sqlite3

FAILURES = {"io": OSError(errno.EIO, "the disk is gone"), "cut": EOFError("the stream ended early")}
REFUSALS = ("BadFile", "BadRow", "DuplicateTransaction", "UnbalancedTransaction")
CHUNK = 64


class Source(io.RawIOBase):
    """Bytes in small pieces; when they are used up, the end of the file or an exception."""

    def __init__(self, data, failure):
        self._data, self._failure, self._at = data, failure, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        return self._at

    def readinto(self, buffer):
        piece = self._data[self._at : self._at + min(CHUNK, len(buffer))]
        if not piece and self._failure is not None:
            raise self._failure
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def main(request):
    """Return one reply per step of `request`."""
    import ledger

    books = {}

    def opened(name):
        if name not in books:
            books[name] = ledger.Ledger(name)
        return books[name]

    return [STEPS[step["do"]](ledger, opened(step["books"]), step) for step in request]


def do_import(ledger, books, step):
    """Import `content`, one character for one byte; with `failure`, the source raises when all is read."""
    failure = FAILURES.get(step.get("failure"))
    source = io.BufferedReader(Source(step["content"].encode("latin-1"), failure))
    try:
        result = ledger.import_csv(books, source)
        return {"added": result.added, "skipped": result.skipped}
    except (ledger.LedgerError, OSError, EOFError) as error:
        refused = [name for name in REFUSALS if isinstance(error, getattr(ledger, name))]
        reply = {"refused": refused, "raised": type(error).__name__, "says": str(error), "same": error is failure}
        if "BadRow" in refused:
            reply["row"] = error.row
        return reply


def do_balance(ledger, books, step):
    """Tell an account's balance."""
    return str(books.balance(step["account"]))


def do_journal(ledger, books, step):
    """Tell all transactions."""
    return [
        {"id": t.id, "postings": [{"account": p.account, "amount": str(p.amount)} for p in t.postings]}
        for t in books.journal()
    ]


def do_write(ledger, books, step):
    """Tell whether another program can write to the file now."""
    other = sqlite3.connect(step["books"], timeout=0, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        other.close()


STEPS = {"import": do_import, "balance": do_balance, "journal": do_journal, "write": do_write}
