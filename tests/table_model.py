"""A target for the judge that is a table: after each token, the logits of what may follow."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float32]
FLOOR = -30.0


class TableGrammar:
    """Lets through what a function of the tokens so far lets through."""

    def __init__(self, size: int, allowed: Callable[[list[int], int], bool]) -> None:
        """Begin at the reply's beginning."""
        self._size, self._allowed = size, allowed
        self._path: list[int] = []
        self.closed = False

    def allows(self, token: int) -> bool:
        return self._allowed(self._path, token)

    def mask(self) -> npt.NDArray[np.bool_]:
        return np.array([self.allows(token) for token in range(self._size)])

    def accept(self, token: int) -> bool:
        if not self.allows(token):
            return False
        self._path.append(token)
        return True

    def close(self) -> None:
        self.closed = True


class TableModel:
    """A bigram model over whole words; the prompt's last token counts as the one before the reply."""

    def __init__(
        self,
        words: Sequence[str],
        after: Mapping[str, Mapping[str, float]],
        *,
        end: str = "<end>",
        noise: float = 0.0,
        rewinds: bool = True,
        allowed: Callable[[list[int], int], bool] | None = None,
    ) -> None:
        """Take the vocabulary and, for each word, the logits of the words after it; all others are unlikely."""
        self.words = [*words, end]
        self.pieces = [word.encode() for word in self.words]
        self.ends = (len(words),)
        self.suppressed: tuple[int, ...] = ()
        self.size = len(self.words)
        self.noise, self.rewinds = noise, rewinds
        self.batches: list[int] = []
        self._after, self._allowed = after, allowed
        self._read: list[int] = []

    def id(self, word: str) -> int:
        return self.words.index(word)

    def ids(self, *words: str) -> tuple[int, ...]:
        return tuple(self.id(word) for word in words)

    def tokenize(self, text: str, whole: bool) -> list[int]:
        """Cut the longest word each time, as a tokenizer of merges does more or less."""
        found: list[int] = []
        while text:
            fitting = [i for i, word in enumerate(self.words) if word and text.startswith(word)]
            if not fitting:
                return found
            best = max(fitting, key=lambda i: len(self.words[i]))
            found.append(best)
            text = text[len(self.words[best]) :]
        return found

    def _row(self, last: int, crowd: int) -> Row:
        row = np.full(self.size, FLOOR, np.float32)
        for word, logit in self._after.get(self.words[last], {}).items():
            row[self.id(word)] = logit
        if crowd > 1 and self.noise:
            row[1::2] += self.noise
        return row

    def begin(self, prompt: Sequence[int]) -> Row:
        self._read = list(prompt)
        return self._row(prompt[-1], 1)

    def feed(self, tokens: Sequence[int]) -> Row:
        self.batches.append(len(tokens))
        self._read += tokens
        return np.array([self._row(token, len(tokens)) for token in tokens])

    def rewind(self, count: int) -> bool:
        if not self.rewinds:
            return False
        del self._read[len(self._read) - count :]
        return True

    def grammar(self, settings: Mapping[str, Any], prefilled: bool) -> TableGrammar | None:
        return TableGrammar(self.size, self._allowed) if self._allowed and prefilled else None


SETTINGS: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 20,
    "top_p": 0.95,
    "min_p": 0.0,
    "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
}
"""The parts of `generation_settings` that the judge needs."""


def settings(**changes: Any) -> dict[str, Any]:
    return {**SETTINGS, **changes}
