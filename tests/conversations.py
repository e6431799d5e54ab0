"""Small conversations as exchange logs: a model that says given things, tools that print given things."""

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_ab.divergence.divergence import Story
from agent_ab.divergence.reply_diff import Token, Tokenize, recorded, tokens_from_reply
from agent_ab.exchanges import read_log
from agent_ab.model import Exchange, ExchangeLog, Json
from tests.builders import exchange, timings

GOLDEN = Path(__file__).parent / "golden" / "parting"
PINNED = {"seed": 4242, "cache_prompt": False}
SYSTEM = "You are a coding agent in /workspace. Today's date: Mon Nov 30 2026"
TOOLS = [{"type": "function", "function": {"name": name, "description": name}} for name in ("bash", "read")]


@dataclass(frozen=True)
class Turn:
    """What the model says and calls, and what the tool prints to it."""

    says: str = ""
    command: str = ""
    prints: str = ""


TURNS = (
    Turn("I look.", "ls -la", "a.py\nb.py"),
    Turn("I test.", "python3 -m unittest", "Ran 2 tests in 0.1s\n\nOK"),
    Turn("Done."),
)

_ids = itertools.count()


def sha(value: Json) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def conversation(turns: Sequence[Turn] = TURNS, system: str = SYSTEM) -> ExchangeLog:
    """Return the log of an agent that sends the server's call ids back, as OpenCode does; the ids are never the same."""
    messages: list[Json] = [{"role": "system", "content": system}, {"role": "user", "content": "Repair it."}]
    made: list[Exchange] = []
    for turn in turns:
        body = {"model": "local", "messages": list(messages), "tools": TOOLS, "max_tokens": 8192}
        calls: tuple[Json, ...] = ()
        said: Json = {"role": "assistant", "content": turn.says}
        messages.append(said)
        if turn.command:
            arguments = json.dumps({"command": turn.command})
            call = {
                "id": f"random{next(_ids):026d}",
                "type": "function",
                "function": {"name": "bash", "arguments": arguments},
            }
            calls = (call,)
            said["tool_calls"] = [call]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": turn.prints})
        made.append(
            asked(body, len(made), content=turn.says, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")
        )
    return ExchangeLog(tuple(made), ())


def asked(body: Json, index: int = 0, **changes: Any) -> Exchange:
    """Return an exchange whose request is `body` as the agent sent it, pinned by the proxy."""
    request = {**json.loads(json.dumps(body)), **PINNED}
    return exchange(
        index,
        agent_sha256=sha(body),
        server_sha256=sha(request),
        request=request,
        pinned=PINNED,
        timings=timings(prompt_n=len(json.dumps(body)) // 4),
        **changes,
    )


def changed(log: ExchangeLog, index: int, **changes: Any) -> ExchangeLog:
    """Return `log` with one exchange changed, and nothing that would follow from it."""
    exchanges = list(log.exchanges)
    exchanges[index] = replace(exchanges[index], **changes)
    return ExchangeLog(tuple(exchanges), log.refused)


def words(text: str) -> tuple[Token, ...]:
    """Tokenize as no real model does: a token ends at a blank."""
    return tuple(Token(int(sha(piece)[:8], 16), piece) for piece in text.replace(" ", " \0").split("\0") if piece)


def golden(name: str) -> tuple[ExchangeLog, ExchangeLog]:
    """Return excerpts of a real pair's logs, played on llama-server: tools left out, long messages cut in the middle."""
    return read_log(GOLDEN / f"{name}-baseline.jsonl"), read_log(GOLDEN / f"{name}-candidate.jsonl")


def golden_stories(name: str) -> tuple[Story, Story]:
    """Return the same as two stories."""
    left, right = golden(name)
    return Story(left), Story(right)


def golden_tokens(name: str) -> Tokenize:
    """Return what the real server's `/tokenize` said of the texts in `golden`."""
    data = json.loads((GOLDEN / f"{name}-tokens.json").read_text(encoding="utf-8"))
    return recorded({text: tokens_from_reply({"tokens": tokens}) for text, tokens in data.items()})
