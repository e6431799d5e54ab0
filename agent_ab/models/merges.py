"""Byte-pair merges for the scripted models: fewer tokens for the prompts that they are known to get.

The algorithm is Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909) on GPT-2's byte alphabet, as llama.cpp reads it.
"""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Pair = tuple[str, str]

_WORD = re.compile(r"[^\r\n\w]?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
"""qwen2's pre-tokenizer, near enough: a word that it cuts elsewhere only costs a few tokens more."""


def _alphabet() -> tuple[str, ...]:
    """Return GPT-2's printable symbol of each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(shifted)) for byte in range(256))


ALPHABET = _alphabet()


def symbols(text: str) -> str:
    """Return `text` in the byte alphabet, as a normal token is spelt in a GGUF."""
    return "".join(ALPHABET[byte] for byte in text.encode())


@dataclass(slots=True)
class _Words:
    """The corpus as distinct words, with the pairs that occur in them."""

    parts: list[list[str]]
    counts: list[int]
    pairs: Counter[Pair]
    where: defaultdict[Pair, set[int]]

    def add(self, index: int, sign: int) -> None:
        """Count the pairs of one word in (`sign` 1) or out (-1)."""
        word = self.parts[index]
        for pair in pairwise(word):
            self.pairs[pair] += sign * self.counts[index]
            if sign > 0:
                self.where[pair].add(index)


def learn_merges(corpus: Sequence[str], limit: int) -> list[Pair]:
    """Return at most `limit` merges of pairs that occur at least twice in `corpus`, the most frequent first."""
    seen = Counter(word for text in corpus for word in _WORD.findall(text))
    words = _Words([list(symbols(word)) for word in seen], list(seen.values()), Counter(), defaultdict(set))
    for index in range(len(words.parts)):
        words.add(index, 1)
    # Ties go to the smallest pair, so that equal corpora give equal bytes.
    queue = [(-count, pair) for pair, count in words.pairs.items()]
    heapq.heapify(queue)
    merges: list[Pair] = []
    while queue and len(merges) < limit:
        count, best = heapq.heappop(queue)
        if -count != words.pairs[best]:
            # The count fell since it was queued; it comes back with its true one.
            heapq.heappush(queue, (-words.pairs[best], best))
            continue
        if -count < 2:
            break
        merges.append(best)
        touched: set[Pair] = set()
        for index in sorted(words.where.pop(best)):
            words.add(index, -1)
            words.parts[index] = _merged(words.parts[index], best)
            words.add(index, 1)
            touched.update(pairwise(words.parts[index]))
        del words.pairs[best]
        for pair in touched:
            heapq.heappush(queue, (-words.pairs[pair], pair))
    return merges


def _merged(word: list[str], pair: Pair) -> list[str]:
    out: list[str] = []
    position = 0
    while position < len(word):
        if tuple(word[position : position + 2]) == pair:
            out.append(pair[0] + pair[1])
            position += 2
        else:
            out.append(word[position])
            position += 1
    return out
