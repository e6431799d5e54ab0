"""Two replies to equal requests -> where they part, in characters and in tokens, and who did it. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_ab.divergence.request_diff import first_difference
from agent_ab.model import Exchange, ExchangeLog, Json


@dataclass(frozen=True, slots=True)
class Token:
    """One token as the server's `/tokenize` gives it."""

    id: int
    piece: str
    """Its text; bytes that are no UTF-8 by themselves are U+FFFD."""


Tokenize = Callable[[str], Sequence[Token] | None]
"""Cuts a text as the server does; None when it cannot tell (the text was not recorded)."""


class End(StrEnum):
    """How a reply ended."""

    FINISHED = "finished"
    """With the server's own last word."""
    MODEL_ERROR = "model-error"
    """With an error that what the model wrote brought about."""
    REFUSED = "refused"
    """With an HTTP error that no output of the model explains."""
    CUT = "cut"
    """The agent left, or the attempt was over."""
    BROKEN = "broken"
    """The server or the connection broke."""


_MODEL_ERROR = re.compile(
    r"model produced output|unexpected empty grammar stack|context shift is disabled|failed to parse (?:the )?output",
    re.IGNORECASE,
)
"""llama-server's words for output that it cannot go on with (common/chat.cpp, llama-grammar.cpp, server-context.cpp)."""

CUT_WORDS = ("client closed", "proxy stopped")
"""The proxy's words (docs/exchange-log.md)."""


class Blame(StrEnum):
    """Who made two replies to equal requests differ."""

    MODEL = "model"
    CUT = "cut"
    """Nobody: one was not allowed to finish, and as far as it came it is the same."""
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a reply, in the order in which models write them."""

    path: str
    """`reasoning`, `content`, `tool_calls[0].function.name`, `tool_calls[0].function.arguments`."""
    text: str


@dataclass(frozen=True, slots=True)
class ReplySide:
    """What one of the two wrote from where they part."""

    continuation: str
    """The rest of that part; a later part begins with its path in brackets."""
    token: Token | None
    """The first token of its own; None when it stopped there or no tokens are known."""
    end: str
    """The finish reason, or the error."""


@dataclass(frozen=True, slots=True)
class ReplyDifference:
    """Where two replies part."""

    blame: Blame
    path: str
    """A part's path, `finish_reason` or `error`."""
    character: int
    """Characters in common, from the reply's beginning."""
    token: int | None
    """Tokens in common, from the reply's beginning; None when a text's tokens are not known."""
    left: ReplySide
    right: ReplySide


def parts(exchange: Exchange) -> tuple[Part, ...]:
    """Return the pieces of a reply that hold any text. The server's random call ids are none of them."""
    found = [Part("reasoning", exchange.reasoning), Part("content", exchange.content)]
    for index, call in enumerate(exchange.tool_calls):
        function = call.get("function") if isinstance(call, dict) else None
        for key in ("name", "arguments"):
            value = function.get(key) if isinstance(function, dict) else None
            found.append(Part(f"tool_calls[{index}].function.{key}", value if isinstance(value, str) else ""))
    return tuple(part for part in found if part.text)


def texts(log: ExchangeLog) -> tuple[str, ...]:
    """Return every text of a log's replies once: what to have tokenized while the server still runs."""
    return tuple(dict.fromkeys(part.text for exchange in log.exchanges for part in parts(exchange)))


def recorded(tokens: Mapping[str, Sequence[Token]]) -> Tokenize:
    """Return a tokenizer that knows the texts which were tokenized before, and the empty one."""
    return lambda text: tokens.get(text) if text else ()


def tokens_from_reply(reply: Json) -> tuple[Token, ...]:
    """Return the tokens of llama-server's answer to `/tokenize` with `with_pieces`. Raises KeyError, TypeError."""
    return tuple(Token(token["id"], _piece(token["piece"])) for token in reply["tokens"])


def _piece(piece: Json) -> str:
    return piece if isinstance(piece, str) else bytes(piece).decode("utf-8", "replace")


def end_of(exchange: Exchange) -> End:
    """Return how a reply ended."""
    if exchange.error is None:
        return End.FINISHED if exchange.status is not None and exchange.status < 400 else End.BROKEN
    if exchange.error in CUT_WORDS:
        return End.CUT
    if _MODEL_ERROR.search(exchange.error):
        return End.MODEL_ERROR
    return End.REFUSED if exchange.status is not None and exchange.status >= 400 else End.BROKEN


def compare(left: Exchange, right: Exchange, tokenize: Tokenize | None = None) -> ReplyDifference | None:
    """Return where two replies to equal requests part; None when they are equal.

    Timings, usage, ids and what a reply cost are no part of it.
    """
    mine, theirs = (parts(left), parts(right))
    paths = sorted({part.path for part in (*mine, *theirs)}, key=_place)
    texts_of = [{part.path: part.text for part in each} for each in (mine, theirs)]
    common: list[Part] = []
    for path in paths:
        a, b = (each.get(path, "") for each in texts_of)
        if a != b:
            spot = _Spot(tuple(common), path, (a, b), (_after(mine, path), _after(theirs, path)))
            return spot.difference(left, right, tokenize)
        common.append(Part(path, a))
    return _compare_ends(left, right, tuple(common), tokenize)


def _place(path: str) -> tuple[int, int, str]:
    """Sort paths into writing order: reasoning, content, then each call's name before its arguments."""
    index = re.search(r"\[(\d+)\]", path)
    if index is None:
        return (0, 0, "") if path == "reasoning" else (1, 0, "")
    return 2, int(index[1]), "" if path.endswith("name") else "arguments"


def _after(all_parts: Iterable[Part], path: str) -> tuple[Part, ...]:
    return tuple(part for part in all_parts if _place(part.path) > _place(path))


@dataclass(frozen=True, slots=True)
class _Spot:
    """The part in which two replies part."""

    common: tuple[Part, ...]
    path: str
    texts: tuple[str, str]
    later: tuple[tuple[Part, ...], tuple[Part, ...]]

    def difference(self, left: Exchange, right: Exchange, tokenize: Tokenize | None) -> ReplyDifference:
        """Return the difference, with the tokens' index when both texts can be tokenized."""
        a, b = self.texts
        character = first_difference(a, b)
        before = _count(self.common, tokenize)
        tokens = [tokenize(text) if tokenize else None for text in self.texts]
        index: int | None = None
        own: tuple[Token | None, Token | None] = (None, None)
        start = character
        if before is not None and tokens[0] is not None and tokens[1] is not None:
            same = _common(tokens[0], tokens[1])
            index, own = before + same, (_at(tokens[0], same), _at(tokens[1], same))
            # A continuation that begins with the differing token reads better than one that begins inside it.
            prefix = "".join(token.piece for token in tokens[0][:same])
            start = len(prefix) if a.startswith(prefix) and b.startswith(prefix) else character
        return ReplyDifference(
            blame=self._blame(character, left, right),
            path=self.path,
            character=sum(len(part.text) for part in self.common) + character,
            token=index,
            left=ReplySide(_rest(a[start:], self.later[0]), own[0], ending(left)),
            right=ReplySide(_rest(b[start:], self.later[1]), own[1], ending(right)),
        )

    def _blame(self, character: int, left: Exchange, right: Exchange) -> Blame:
        for text, later, exchange in zip(self.texts, self.later, (left, right), strict=True):
            if len(text) == character and not later:
                return _BLAME[end_of(exchange)]
        return Blame.MODEL


_BLAME = {
    End.FINISHED: Blame.MODEL,
    End.MODEL_ERROR: Blame.MODEL,
    End.CUT: Blame.CUT,
    End.REFUSED: Blame.SERVER,
    End.BROKEN: Blame.SERVER,
}
"""By how the one ended whose whole text is the beginning of the other's."""


def _compare_ends(
    left: Exchange, right: Exchange, common: tuple[Part, ...], tokenize: Tokenize | None
) -> ReplyDifference | None:
    ends = (end_of(left), end_of(right))
    broken = End.BROKEN in ends
    if not broken and (left.finish_reason, left.status, left.error) == (right.finish_reason, right.status, right.error):
        return None
    kinds = {_BLAME[end] for end in ends}
    return ReplyDifference(
        blame=next(blame for blame in (Blame.SERVER, Blame.CUT, Blame.MODEL) if blame in kinds),
        path="error" if left.error or right.error else "finish_reason",
        character=sum(len(part.text) for part in common),
        token=_count(common, tokenize),
        left=ReplySide("", None, ending(left)),
        right=ReplySide("", None, ending(right)),
    )


def ending(exchange: Exchange) -> str:
    """Return a reply's end in words: its finish reason, or its error with the HTTP status of a refusal."""
    if exchange.error is None:
        return exchange.finish_reason or ("no answer" if exchange.status is None else f"HTTP {exchange.status}")
    refused = exchange.status is not None and exchange.status >= 400
    return f"HTTP {exchange.status}: {exchange.error}" if refused else exchange.error


def _count(all_parts: Iterable[Part], tokenize: Tokenize | None) -> int | None:
    total = 0
    for part in all_parts:
        tokens = tokenize(part.text) if tokenize else None
        if tokens is None:
            return None
        total += len(tokens)
    return total


def _common(left: Sequence[Token], right: Sequence[Token]) -> int:
    same = 0
    for a, b in zip(left, right, strict=False):
        if a.id != b.id:
            break
        same += 1
    return same


def _at(tokens: Sequence[Token], index: int) -> Token | None:
    return tokens[index] if index < len(tokens) else None


def _rest(text: str, later: tuple[Part, ...]) -> str:
    return "\n".join(([text] if text else []) + [f"[{part.path}] {part.text}" for part in later])
