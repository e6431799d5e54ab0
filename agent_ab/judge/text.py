"""A reply of which only the text was recorded: find tokens that the model can have said it with. Pure but for the target.

Chunks of a stream are not tokens, and a model may write a text with other tokens than its tokenizer would. So the text
counts as possible when *any* way to cut it, from where the replies part to past the first differing byte, lies in the
sampler's support; only where there is none, the target would not have said it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from agent_ab.judge.case import Guess, Said
from agent_ab.judge.rules import Reading

SLACK = 0.5
"""In nats: a text whose tokens lie this near to the support counts as a way; the place itself is judged exactly."""
STEPS = 60
"""Places beyond the tokenizer's own cut that are tried before the search is given up."""
NOT_LAID = (
    "the recorded text cannot be laid over the model's tokens; `agent-ab lossless PAIR` asks for the tokens themselves"
)


@dataclass(frozen=True, slots=True)
class Recut:
    """Two texts as tokens, up to the first that differs."""

    path: tuple[int, ...]
    baseline: int
    candidate: int
    laid: bool
    """The candidate's text, too, has a way through the model past the first byte that differs."""


def recut(baseline: Said, candidate: Said, reading: Reading) -> Recut | str:
    """Return the tokens in common and the first of each side, or why there are none."""
    unlaid: Recut | None = None
    guesses = zip(baseline.guesses, candidate.guesses, strict=True)
    for (left, right), prefilled in product(guesses, (True, False) if reading.constrained else (True,)):
        reading.begin_grammar(prefilled)
        found = _Pair(reading, left, right, (baseline.ended, candidate.ended)).part()
        if found is not None and found.laid:
            return found
        unlaid = unlaid or found
    return unlaid or NOT_LAID


@dataclass(slots=True)
class _Walk:
    """A search for one way through one text."""

    reading: Reading
    text: bytes
    ended: bool
    slack: float = SLACK
    steps: int = STEPS
    furthest: tuple[int, ...] = ()
    reach: int = -1

    def to(self, path: Sequence[int], at: int, stop: int) -> tuple[int, ...] | None:
        """Return the first way from `path`, which ends at byte `at`, that reaches byte `stop` or the reply's end."""
        trail = list(path)
        open_ends: list[tuple[int, Iterator[int]]] = []
        while not self._done(trail, at, stop):
            open_ends.append((at, self._next(trail, at)))
            while True:
                if not open_ends:
                    return None
                at, options = open_ends[-1]
                token = next(options, None)
                if token is not None:
                    break
                open_ends.pop()
                if open_ends:
                    trail.pop()
            trail.append(token)
            at += self._length(token, at)
        return tuple(trail)

    def _done(self, trail: list[int], at: int, stop: int) -> bool:
        if trail and trail[-1] in self.reading.target.ends:
            return True
        return at >= stop or (at == len(self.text) and not self.ended)

    def _next(self, trail: list[int], at: int) -> Iterator[int]:
        """Yield the tokens that may come next, the tokenizer's own choice first."""
        if at > self.reach:
            self.furthest, self.reach = tuple(trail), at
        self.steps -= 1
        place = self.reading.place(trail) if self.steps >= 0 else None
        if place is None:
            return
        rest = self.text[at:]
        own = self.own(rest)
        if own is not None and place.possible(own, self.slack):
            self.steps += 1
            yield own
        for token in place.choices(self.slack):
            if token != own and self._fits(token, rest):
                yield token

    def own(self, rest: bytes) -> int | None:
        """Return the token that the tokenizer cuts from the beginning of `rest`."""
        if not rest:
            return None
        cut = self.reading.target.tokenize(rest[:200].decode("utf-8", "ignore"), False)
        return cut[0] if cut and self._fits(cut[0], rest) else None

    def _fits(self, token: int, rest: bytes) -> bool:
        piece = self.reading.target.pieces[token]
        if token in self.reading.target.ends:
            return self.ended and not rest
        if not rest:
            # Blanks at a reply's end are taken away by the server.
            return self.ended and piece != b"" and not piece.strip()
        return piece != b"" and rest.startswith(piece)

    def _length(self, token: int, at: int) -> int:
        return min(len(self.reading.target.pieces[token]), len(self.text) - at)


@dataclass(slots=True)
class _Pair:
    """Both texts, in one style."""

    reading: Reading
    left: Guess
    right: Guess
    ended: tuple[bool, bool]

    def part(self) -> Recut | None:
        """Return where they part, or None when the baseline's own text has no way through the model."""
        mine, theirs = _bytes(self.left), _bytes(self.right)
        common = _common(mine, theirs)
        if common == len(mine) == len(theirs):
            return None
        path = _Walk(self.reading, mine, self.ended[0]).to((), 0, self._boundary(mine, theirs, common))
        if path is None:
            return None
        at = len(b"".join(self.reading.target.pieces[token] for token in path))
        way = _Walk(self.reading, mine, self.ended[0]).to(path, at, common + 1)
        # A way through the support itself comes first: one that lies beside it would be taken for a fault.
        their_way = _Walk(self.reading, theirs, self.ended[1], 0.0).to(path, at, common + 1)
        other = _Walk(self.reading, theirs, self.ended[1])
        their_way = their_way or other.to(path, at, common + 1)
        if way is None or len(way) == len(path):
            return None
        return self._stray(way, other) if their_way is None else _fork(way, their_way, len(path))

    def _stray(self, way: tuple[int, ...], other: "_Walk") -> Recut | None:
        """Return the token that was let through: the one that the tokenizer sees where the furthest way ends."""
        path = other.furthest
        at = len(b"".join(self.reading.target.pieces[token] for token in path))
        if (
            other.steps < 0
            or way[: len(path)] != path
            or len(way) == len(path)
            or not self._accusable(at, len(other.text))
        ):
            return None
        rest = other.text[at:]
        token = other.own(rest) if rest else self._likeliest_end(path)
        return None if token is None or token == way[len(path)] else Recut(path, way[len(path)], token, False)

    def _accusable(self, at: int, size: int) -> bool:
        """Return whether byte `at` of the candidate's text was recorded, and no guessed mark stands right before it."""
        spans = self.right.recorded
        if at < size:
            return any(begin < at < end or begin == at == 0 for begin, end in spans)
        # Where a grammar holds, the server may have taken a closing mark away.
        lazy = bool(self.reading.settings.get("grammar_lazy"))
        whole = not spans or spans[-1][1] == size
        return self.ended[1] and whole and (lazy or not self.reading.constrained)

    def _likeliest_end(self, path: tuple[int, ...]) -> int | None:
        place = self.reading.place(path)
        ends = self.reading.target.ends
        return max(ends, key=lambda token: place.row[token]) if place is not None and ends else None

    def _boundary(self, left: bytes, right: bytes, common: int) -> int:
        """Return the byte at which the last token that the tokenizer cuts from both texts alike ends."""
        target = self.reading.target
        cuts = [target.tokenize(text.decode("utf-8", "ignore"), False) for text in (left, right)]
        end = 0
        for a, b in zip(*cuts, strict=False):
            size = len(target.pieces[a])
            if a != b or end + size > common:
                break
            end += size
        return end


def _fork(way: tuple[int, ...], other: tuple[int, ...], index: int) -> Recut | None:
    while index < min(len(way), len(other)) and way[index] == other[index]:
        index += 1
    return None if index >= min(len(way), len(other)) else Recut(way[:index], way[index], other[index], True)


def _bytes(guess: Guess) -> bytes:
    return guess.text.encode("utf-8", "surrogatepass")


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
