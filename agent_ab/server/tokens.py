"""A server's own cut of a text into tokens, whichever way it tells, in the form of llama-server's `/tokenize`."""

from collections.abc import Iterator, Sequence

import httpx

from agent_ab.model import Json
from agent_ab.models.merges import ALPHABET

_BYTES = {letter: byte for byte, letter in enumerate(ALPHABET)}
"""The byte that each letter of a byte-level tokenizer's alphabet stands for."""


def from_llama(client: httpx.Client, text: str) -> Json | None:
    """Return the answer of llama-server's `/tokenize`; None: this server has none."""
    found = _ask(client, {"content": text, "with_pieces": True})
    cut = found.get("tokens") if isinstance(found, dict) else None
    return found if isinstance(cut, list) and all(isinstance(token, dict) for token in cut) else None


def from_vllm(client: httpx.Client, text: str, model: str) -> Json | None:
    """Return the answer of vLLM's `/tokenize`; None: it has none, or its pieces do not come to `text`."""
    body = {"model": model, "prompt": text, "add_special_tokens": False, "return_token_strs": True}
    found = _ask(client, body)
    if not isinstance(found, dict) or not isinstance(found.get("token_strs"), list):
        return None
    cut = pieces(found["token_strs"], text)
    if cut is None or len(cut) != len(found.get("tokens") or ()):
        return None
    return {"tokens": [{"id": number, "piece": piece} for number, piece in zip(found["tokens"], cut, strict=True)]}


def pieces(spelt: Sequence[str], text: str) -> list[str] | None:
    """Return the part of `text` that each token stands for; None when they do not come to it.

    A token is spelt as it reads, in a byte-level alphabet (a space is `Ġ`), or with `▁` for a space. Bytes that are no
    UTF-8 by themselves become U+FFFD, as llama-server's pieces do.
    """
    whole = text.encode("utf-8", "replace")
    at = 0
    cut = []
    for word in spelt:
        found = next((data for data in _readings(word) if data and whole.startswith(data, at)), None)
        if found is None:
            return None
        at += len(found)
        cut.append(found.decode("utf-8", "replace"))
    return cut if at == len(whole) else None


def _readings(word: str) -> Iterator[bytes]:
    if all(letter in _BYTES for letter in word):
        yield bytes(_BYTES[letter] for letter in word)
    yield word.encode("utf-8", "replace")
    yield word.replace("\u2581", " ").encode("utf-8", "replace")


def _ask(client: httpx.Client, body: Json) -> Json | None:
    try:
        response = client.post("/tokenize", json=body)
        return response.json() if response.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError):
        return None
