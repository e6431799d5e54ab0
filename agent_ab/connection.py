"""The one way to a model server: nothing of the environment's proxies, and the certificates are read once."""

import ssl
from functools import cache

import httpx


def client(url: str, key: str, timeout_s: float = 5.0, **headers: str) -> httpx.Client:
    """Return a client of the server at `url` that sends `key`, if there is one, and waits `timeout_s` for each answer."""
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False, verify=_certificates())


@cache
def _certificates() -> ssl.SSLContext:
    # A client reads them all anew, 40 ms each time, and a pair makes sixty clients.
    return httpx.create_ssl_context(trust_env=False)
