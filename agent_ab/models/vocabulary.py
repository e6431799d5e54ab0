"""The vocabulary of a scripted model: the pieces that it says, and long tokens for what it is going to read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import gguf

from agent_ab.errors import UserError
from agent_ab.models.merges import ALPHABET, Pair, symbols

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

PIECE = 12
"""Preferred length of a piece, in characters: long enough to be fast, short enough for a few hundred tokens."""
LONGEST_PIECE = 48
SHORTEST_LINE = 12
"""A line of the task's text of at least so many characters is a token: prompts get five times shorter."""
_CALL = "<tool_call>\n"


def control(reply: int) -> str:
    """Return the control token with which a prompt asks for reply number `reply`, from 0."""
    return f"<|s{reply}|>"


@dataclass(slots=True)
class Vocabulary:
    """Tokens in the order of their ids."""

    tokens: list[str]
    types: list[gguf.TokenType]
    ids: dict[str, int]
    words: frozenset[str]
    """The normal tokens, spelt in the byte alphabet; every other token is spelt as it reads."""

    @classmethod
    def start(cls, merges: Sequence[Pair], replies: int) -> "Vocabulary":
        """Return the byte alphabet, the merged words and the control tokens."""
        words = dict.fromkeys([*ALPHABET, *(a + b for a, b in merges)])
        special = [END_OF_TEXT, START, END, *map(control, range(replies))]
        tokens = [*words, *special]
        types = [gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.CONTROL] * len(special)
        return cls(tokens, types, {token: i for i, token in enumerate(tokens)}, frozenset(words))

    def can_say(self, piece: str) -> bool:
        """Return whether `piece` can be one token: its spelling does not belong to another text's token."""
        # llama.cpp takes some <tags> for ends of generation by their spelling alone.
        return symbols(piece) in self.words or (piece not in self.ids and not (piece[0] == "<" and piece[-1] == ">"))

    def say(self, piece: str) -> int:
        """Return the id of the token that says `piece`, making it if need be."""
        if (word := symbols(piece)) in self.words:
            return self.ids[word]
        self.ids[piece] = len(self.tokens)
        self.tokens.append(piece)
        self.types.append(gguf.TokenType.USER_DEFINED)
        return self.ids[piece]


def cut_all(texts: Sequence[str], vocabulary: Vocabulary, where: str) -> list[list[str]]:
    """Cut every text into pieces, no piece twice. Raises UserError."""
    used: set[str] = set()
    cuts: dict[int, list[str]] = {}
    # The shortest text has the fewest ways to be cut, so it chooses first.
    for index in sorted(range(len(texts)), key=lambda i: (len(texts[i]), i)):
        said, tag, call = texts[index].partition(_CALL)
        pieces: list[str] = []
        # The tag is the server's trigger word, which may be no token of its own: it answers 400 then.
        for part, shortest in ((said, 1), (tag + call, len(tag) + 4)):
            cut = _Cutter(part, used, vocabulary, shortest).cut()
            if cut is None:
                raise UserError(f"{where}: turn {index + 1}: other turns say the same words; say them differently")
            used.update(cut)
            pieces += cut
        cuts[index] = pieces
    return [cuts[i] for i in range(len(texts))]


_LENGTHS = sorted(range(1, LONGEST_PIECE + 1), key=lambda n: (abs(n - PIECE), n))


@dataclass(frozen=True, slots=True)
class _Cutter:
    """One text, and what its pieces may not be."""

    text: str
    used: set[str]
    vocabulary: Vocabulary
    shortest: int
    """Least length of the first piece, in characters."""

    def options(self, start: int, open_ends: set[int]) -> Iterator[str]:
        """Yield the pieces that may begin at `start` and end in `open_ends`, the best length first."""
        for n in _LENGTHS:
            piece = self.text[start : start + n]
            if start + n not in open_ends or piece in self.used or (start == 0 and n < self.shortest):
                continue
            if self.vocabulary.can_say(piece):
                yield piece

    def cut(self) -> list[str] | None:
        """Return pieces that make up the text, none of them twice; None when there are none (or none are found)."""
        open_ends = {len(self.text)}
        for start in reversed(range(len(self.text))):
            if next(self.options(start, open_ends), None) is not None:
                open_ends.add(start)
        pieces: dict[str, None] = {}
        pending = [self.options(0, open_ends)]
        at = 0
        for _ in range(20 * len(self.text) + 1000):
            if at == len(self.text):
                return list(pieces)
            piece = next(pending[-1], None)
            if piece is None:
                pending.pop()
                if not pending:
                    return None
                at -= len(pieces.popitem()[0])
            elif piece not in pieces:
                pieces[piece] = None
                at += len(piece)
                pending.append(self.options(at, open_ends))
        return None


def lines_of(corpus: Sequence[str]) -> list[str]:
    """Return the lines that prompts are likely to hold, each worth a token of its own."""
    lines = dict.fromkeys(line.strip() for text in corpus for line in text.splitlines())
    return [line for line in lines if len(line) >= SHORTEST_LINE and "<|" not in line and "tool_call>" not in line]
