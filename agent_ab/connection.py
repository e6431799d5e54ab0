"""The one way to a model server: nothing of the environment's proxies, and the certificates are read once."""

import os
import re
import ssl
from functools import cache

import httpx

from agent_ab.errors import UserError

KEY = re.compile(r"[!-~]{8,}")
"""What can travel in a header, and is long enough not to be found by chance in what a model writes."""


def key(variable: str, option: str) -> str:
    """Return the key in an environment variable that `option` names, or "" where none is named. Raises UserError."""
    if not variable:
        return ""
    found = os.environ.get(variable, "")
    if not found:
        raise UserError(f"{option}: the environment has no {variable}; export it")
    if not KEY.fullmatch(found):
        raise UserError(
            f"{option}: the key in {variable} must be 8 or more visible ASCII characters without spaces;"
            f" a server that asks for no key needs no {option}"
        )
    return found


def client(url: str, key: str, timeout_s: float = 5.0, **headers: str) -> httpx.Client:
    """Return a client of the server at `url` that sends `key`, if there is one, and waits `timeout_s` for each answer."""
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False, verify=_certificates())


@cache
def _certificates() -> ssl.SSLContext:
    # A client reads them all anew, 40 ms each time, and a pair makes sixty clients.
    return httpx.create_ssl_context(trust_env=False)
