"""Runs inside the box: answer one request through the task's driver. Standard library only, Python 3.9 or newer.

    python3 -I -B harness.py DRIVER IMPORT_PATH  < {"token": ..., "request": ...}

The reply is one line, `TOKEN JSON`, on what was fd 1. The candidate's own prints go to stderr, so they cannot spoil it;
whoever writes to the reply channel without the token spoils only itself.
"""

import importlib.util
import json
import os
import sys
import traceback
from typing import Any


def plain(value: Any, where: str = "reply") -> Any:
    """Return `value`, made of exact built-in JSON types all through. Raises TypeError naming the place."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise TypeError(f"{where} has a key of type {type(key).__name__}")
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where} is of type {kind.__name__}, which is not a plain JSON type")


def main(driver_path: str, import_path: str) -> None:
    """Answer the request on stdin and end the process at once, whatever the candidate left running."""
    # Taken before any code of the candidate runs, so that it cannot swap them.
    write, leave, dumps, check, print_exc = os.write, os._exit, json.dumps, plain, traceback.print_exc
    channel = os.dup(1)
    os.dup2(2, 1)
    envelope = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    token = envelope["token"]
    status = 1
    try:
        # Appended, so that a json.py of the candidate never stands in for the standard library's.
        sys.path.append(import_path)
        spec = importlib.util.spec_from_file_location("driver", driver_path)
        assert spec is not None and spec.loader is not None
        driver = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(driver)
        reply = check(driver.main(envelope["request"]))
        line = f"{token} {dumps(reply, allow_nan=False)}\n".encode("ascii")
        while line:
            line = line[write(channel, line) :]
        status = 0
    except BaseException:  # noqa: BLE001 - the candidate's SystemExit too; no reply is a failed check
        print_exc()
        sys.stderr.flush()
    finally:
        leave(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
