"""A pair's recorded requests, answered by another server, beside what was answered then."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_ab import connection
from agent_ab.divergence.reply_diff import ReplyDifference, ReplySide, Token, compare, parts, tokens_from_reply
from agent_ab.divergence.view import plain
from agent_ab.errors import UserError
from agent_ab.judge import symptoms
from agent_ab.judge.symptoms import Symptoms
from agent_ab.lossless import replay
from agent_ab.lossless.lossless import longest_draft
from agent_ab.lossless.replay import Replayed
from agent_ab.model import Arm, Event, Exchange, ExchangeLog, Json, Observer, Pair
from agent_ab.requests import Recorded
from agent_ab.workbench import ArmParts

SCHEMA = 1
"""Version of `data`'s shape: 1, the first."""
TOKENIZE_S = 60.0
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Answered:
    """What a server answered."""

    server: str
    """In words: which one it was."""
    replies: tuple[Replayed, ...]
    tokens: Mapping[str, tuple[Token, ...] | None]
    """Texts of these replies as the server cuts them; None: it has no `/tokenize`."""
    n_max: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """One request, answered twice."""

    exchange: int
    then: Exchange
    now: Exchange
    difference: ReplyDifference | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Everything side by side."""

    pair: str
    recorded: Arm
    server: str
    rows: tuple[Row, ...]
    then: Symptoms
    now: Symptoms


def by_arm(parts_of: ArmParts, arm: Arm, asked: Sequence[Recorded], folder: Path, observer: Observer) -> Answered:
    """Ask one arm's server, started for it; its log goes to `folder`. Raises ApparatusError."""
    with replay.serving(parts_of, arm, folder / "server.log", observer) as (client, facts):
        replies = replay.replay(client, [(r.id, r.body) for r in asked], _tick(observer, arm, len(asked)))
        tokens = _tokenized(client, replies)
    return Answered(
        f"the {arm}'s server, {facts.proof}", replies, tokens, longest_draft(parts_of.settings.server.speculation)
    )


def by_url(url: str, key_variable: str, asked: Sequence[Recorded], observer: Observer) -> Answered:
    """Ask a server that runs already. Raises UserError when it cannot be named so, ApparatusError when it is silent."""
    key = connection.key(key_variable, "--key-variable")
    base = url.rstrip("/").removesuffix("/v1")
    try:
        named = urlsplit(base)
        usable = named.scheme in ("http", "https") and bool(named.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise UserError(f"--url {url}: is no URL of a server; http://127.0.0.1:8000 is one")
    with connection.client(base, key) as client:
        replies = replay.replay(client, [(r.id, r.body) for r in asked], _tick(observer, None, len(asked)))
        tokens = _tokenized(client, replies)
    return Answered(base, replies, tokens, None)


def _tick(observer: Observer, arm: Arm | None, total: int) -> replay.Tick:
    name = f"{arm}: " if arm else ""
    return lambda count: observer(Event(None, None, f"{name}{count} of {total} replies"))


def _tokenized(client: httpx.Client, replies: Sequence[Replayed]) -> dict[str, tuple[Token, ...] | None]:
    texts = {part.text for reply in replies for part in parts(reply.exchange)}
    return {text: tokenize(client, text) for text in texts}


def tokenize(client: httpx.Client, text: str) -> tuple[Token, ...] | None:
    """Return a text's tokens by the server's own tokenizer; None when it has none to ask."""
    try:
        reply = client.post("/tokenize", json={"content": text, "with_pieces": True}, timeout=TOKENIZE_S)
        return tokens_from_reply(reply.json()) if reply.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def compare_all(
    pair: Pair, recorded: Arm, log: ExchangeLog, answered: Answered, then_tokens: Mapping[str, tuple[Token, ...]]
) -> ReplayResult:
    """Lay the replies beside those that were recorded."""
    tokens = {**then_tokens, **answered.tokens, "": ()}
    chats = {f"exchange-{exchange.index}": exchange for exchange in log.exchanges}
    rows = tuple(
        Row((then := chats[reply.id]).index, then, reply.exchange, compare(then, reply.exchange, tokens.get))
        for reply in answered.replies
    )
    return ReplayResult(
        pair=pair.name,
        recorded=recorded,
        server=answered.server,
        rows=rows,
        then=symptoms.count([row.then for row in rows]),
        now=symptoms.count([row.now for row in rows], answered.n_max or None),
    )


def data(result: ReplayResult) -> Json:
    """Return everything that `view` shows, as data."""
    return {
        "schema": SCHEMA,
        "pair": result.pair,
        "from": result.recorded.value,
        "server": result.server,
        "equal": sum(row.difference is None for row in result.rows),
        "replies": [
            {
                "exchange": row.exchange,
                "difference": None if row.difference is None else asdict(row.difference),
                "then": {
                    "content": row.then.content,
                    "reasoning": row.then.reasoning,
                    "tool_calls": row.then.tool_calls,
                },
                "now": {"content": row.now.content, "reasoning": row.now.reasoning, "tool_calls": row.now.tool_calls},
                "timings": asdict(row.now.timings) if row.now.timings else None,
            }
            for row in result.rows
        ],
        "symptoms": {"then": symptoms.to_json(result.then), "now": symptoms.to_json(result.now)},
    }


def view(result: ReplayResult) -> RenderableType:
    """Return the comparison for a terminal of 100 columns."""
    equal = sum(row.difference is None for row in result.rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("exchange", "replies part at"):
        table.add_column(name, no_wrap=True)
    for name in (f"{result.recorded} then", "now"):
        table.add_column(name, overflow="fold", ratio=1)
    for row in result.rows:
        found = row.difference
        if found is None:
            table.add_row(str(row.exchange), Text("nowhere, equal", style="green"), "", "")
            continue
        index = f"character {found.character}" if found.token is None else f"token {found.token}"
        where = f"{index}, {found.path}"
        table.add_row(str(row.exchange), Text(where, style="yellow"), *(_side(s) for s in (found.left, found.right)))
    counted = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("symptoms", f"{result.recorded} then", "now"):
        counted.add_column(name)
    for label, then in symptoms.rows(result.then).items():
        counted.add_row(label, then, symptoms.rows(result.now)[label])
    head = Text(
        f"{equal} of {len(result.rows)} replies are equal to what the {result.recorded} was told in {result.pair}"
    )
    return Group(head, Text(f"asked now: {result.server}"), Text(), table, Text(), counted)


def _side(side: ReplySide) -> Text:
    text = plain(side.continuation[:SHOWN])
    return Text(text or f"ends ({side.end})")
