"""The one way to a model server: nothing of the environment's proxies, and the certificates are read once."""

import os
import re
import ssl
from functools import cache

import httpx

from agent_ab.errors import UserError

KEY = re.compile("[!-~]{8,}")
"""What a key may be: it goes into a header as it is, and its text is replaced wherever evidence holds it."""


def client(url: str, key: str, timeout_s: float = 5.0, **headers: str) -> httpx.Client:
    """Return a client of the server at `url` that sends `key`, if there is one, and waits `timeout_s` for each answer."""
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False, verify=_certificates())


def key_from(variable: str, option: str) -> str:
    """Return the key that the environment's `variable` holds; empty without a variable. Raises UserError naming `option`."""
    key = os.environ.get(variable, "") if variable else ""
    if variable and not key:
        raise UserError(f"{option}: the environment has no {variable}; export it")
    if key and not KEY.fullmatch(key):
        raise UserError(
            f"{option}: what {variable} holds cannot be a key: a key has at least 8 characters, all of them visible ASCII"
            " (a server that checks no key needs none)"
        )
    return key


@cache
def _certificates() -> ssl.SSLContext:
    # A client reads them all anew, 40 ms each time, and a pair makes sixty clients.
    return httpx.create_ssl_context(trust_env=False)
