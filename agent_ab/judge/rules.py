"""What may be said at one place of a reply: the sampler's support, within the request's grammar. Pure but for the target it asks.

llama-server samples first without the grammar; only when the grammar forbids that token it masks the logits and samples
again (`common_sampler_sample`). So a token is possible when the grammar allows it and either drawing can give it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from agent_ab.judge.case import TokenScore
from agent_ab.judge.sampler_support import (
    Head,
    Logits,
    Sampler,
    adjusted,
    likely,
    log_probability,
    margin,
    rank,
    supports,
)
from agent_ab.model import Json

MOST = 64
"""Most tokens of a support that are looked at when a text is cut anew."""
KEPT_ROWS = 32
"""So many rows of logits are kept; each is as long as the vocabulary."""


class GrammarState(Protocol):
    """A grammar after some tokens."""

    def allows(self, token: int) -> bool:
        """Return whether `token` may follow."""
        ...

    def mask(self) -> npt.NDArray[np.bool_]:
        """Return for every token whether it may follow."""
        ...

    def accept(self, token: int) -> bool:
        """Go on past `token`; False when it is forbidden."""
        ...

    def close(self) -> None:
        """Free it."""
        ...


class Target(Protocol):
    """A model that gives logits; `judge_binding.Binding` is the real one."""

    @property
    def pieces(self) -> Sequence[bytes]:
        """Return every token's text."""
        ...

    @property
    def ends(self) -> Sequence[int]:
        """Return the tokens that end a reply."""
        ...

    @property
    def suppressed(self) -> Sequence[int]:
        """Return the tokens that the model forbids."""
        ...

    def tokenize(self, text: str, whole: bool) -> list[int]:
        """Cut a text; `whole` for a prompt."""
        ...

    def begin(self, prompt: Sequence[int]) -> npt.NDArray[np.float32]:
        """Start anew with `prompt` and return the row after it."""
        ...

    def feed(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Read `tokens` as one batch and return a row for each."""
        ...

    def rewind(self, count: int) -> bool:
        """Forget the last tokens; False when that cannot be done."""
        ...

    def grammar(self, settings: Mapping[str, Json], prefilled: bool) -> GrammarState | None:
        """Return the request's grammar at the reply's beginning."""
        ...


class Place:
    """One place of a reply: its row of logits, and what may follow."""

    def __init__(self, target: Target, row: Logits, sampler: Sampler, grammar: GrammarState | None) -> None:
        """Take the row after bias and penalties."""
        self.row = row
        self._target, self._sampler, self._grammar = target, sampler, grammar
        self._plain = Head.of(row, sampler)
        self._masked: Head | None = None

    def possible(self, token: int, slack: float = 0.0) -> bool:
        """Return whether `token` could have been said here."""
        return any(supports(*head.around(token), self._sampler, slack) for head in self._heads(token))

    def margin(self, token: int) -> float:
        """Return the token's margin; infinite when the grammar or the model forbids it."""
        if self.possible(token):
            return 0.0
        # A margin may be large, and then tokens count that no head holds.
        found = (margin(head.row, token, self._sampler) for head in self._heads(token))
        return min(found, default=float("inf"))

    def choices(self, slack: float) -> list[int]:
        """Return what could have been said here, the most probable first."""
        found = self._likely(self._plain, slack)
        if self._grammar is None:
            return found
        allowed = [token for token in found if self._grammar.allows(token)]
        return list(dict.fromkeys([*allowed, *self._likely(self._within_grammar(), slack)]))

    def rivals(self, said: Sequence[int]) -> list[int]:
        """Return the tokens between which the sampler chose: its support, never less than two, and those that were said."""
        best = self._plain.ids[:2].tolist()
        return list(dict.fromkeys([*best, *self._likely(self._plain, 0.0), *said]))

    def score(self, token: int) -> TokenScore:
        """Return everything that is told of one token."""
        distance = self.margin(token)
        return TokenScore(
            token=token,
            piece=self._target.pieces[token].decode("utf-8", "replace"),
            logp=log_probability(self.row, token) if np.isfinite(self.row[token]) else None,
            rank=rank(self.row, token),
            margin=distance if np.isfinite(distance) else None,
        )

    def _heads(self, token: int) -> Iterator[Head]:
        """Yield the distributions from which `token` can have been drawn: without the grammar, then within it."""
        if self._grammar is None:
            yield self._plain
        elif self._grammar.allows(token):
            yield self._plain
            yield self._within_grammar()

    def _likely(self, head: Head, slack: float) -> list[int]:
        return [int(head.ids[i]) for i in likely(head.values, self._sampler, slack, MOST)]

    def _within_grammar(self) -> Head:
        if self._masked is None:
            assert self._grammar is not None
            self._masked = Head.of(np.where(self._grammar.mask(), self.row, -np.inf), self._sampler)
        return self._masked


class Reading:
    """A prompt and a reply that is read token by token, backwards too, with its grammar."""

    def __init__(self, target: Target, prompt: Sequence[int], sampler: Sampler, settings: Mapping[str, Json]) -> None:
        """Read nothing yet."""
        self.prompt = list(prompt)
        self.target, self.sampler, self.settings = target, sampler, settings
        self.constrained = bool(settings.get("grammar"))
        self._prefilled = True
        self._read: list[int] | None = None
        self._rows: dict[int, npt.NDArray[np.float32]] = {}
        self._grammar: GrammarState | None = None
        self._grammar_at: list[int] = []

    def place(self, path: Sequence[int]) -> Place | None:
        """Return the place after `path`, read one token at a time; None when the grammar does not go along."""
        row = self._row(path)
        history = self.prompt[-1024:] + list(path)
        state = None
        if self.constrained:
            state = self._state(path)
            if state is None:
                return None
        return Place(self.target, adjusted(row, self.sampler, history), self.sampler, state)

    def grammar_fits(self, tokens: Sequence[int]) -> bool:
        """Find out whether the grammar begins before the generation prompt or after it, by which of them takes `tokens`."""
        for prefilled in (True, False):
            self.begin_grammar(prefilled)
            if self._state(tokens) is not None:
                return True
        return False

    def begin_grammar(self, prefilled: bool) -> None:
        """Begin the grammar anew, past the generation prompt (`prefilled`) or not."""
        self._forget_grammar()
        self._prefilled = prefilled

    def close(self) -> None:
        """Free the grammar."""
        self._forget_grammar()

    def _row(self, path: Sequence[int]) -> npt.NDArray[np.float32]:
        path = list(path)
        same = self._back_to(path)
        for index in range(same, len(path)):
            self._rows[index + 1] = self.target.feed([path[index]])[0]
            if index + 1 > KEPT_ROWS:
                self._rows.pop(index + 1 - KEPT_ROWS, None)
        self._read = path
        return self._rows[len(path)]

    def _back_to(self, path: list[int]) -> int:
        """Forget what was read beyond `path`; return how many of its tokens are still read, the row after them kept."""
        if self._read is None:
            return self._start()
        same = 0
        while same < min(len(path), len(self._read)) and path[same] == self._read[same]:
            same += 1
        # The row after a token comes with reading it, so one whose row is gone is read again.
        while same and same not in self._rows:
            same -= 1
        surplus = len(self._read) - same
        if same not in self._rows or (surplus and not self.target.rewind(surplus)):
            return self._start()
        for index in [index for index in self._rows if index > same]:
            del self._rows[index]
        return same

    def _start(self) -> int:
        self._rows = {0: self.target.begin(self.prompt)}
        return 0

    def _state(self, path: Sequence[int]) -> GrammarState | None:
        path = list(path)
        if self._grammar is None or self._grammar_at != path[: len(self._grammar_at)]:
            self._forget_grammar()
            self._grammar = self.target.grammar(self.settings, self._prefilled)
        if self._grammar is None:
            return None
        for token in path[len(self._grammar_at) :]:
            if not self._grammar.accept(token):
                self._forget_grammar()
                return None
            self._grammar_at.append(token)
        return self._grammar

    def _forget_grammar(self) -> None:
        if self._grammar is not None:
            self._grammar.close()
        self._grammar, self._grammar_at = None, []
