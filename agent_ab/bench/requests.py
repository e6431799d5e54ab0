"""What `agent-ab bench` plays: recorded agent requests, each with its class."""

import json
from collections.abc import Sequence
from pathlib import Path

from agent_ab import requests
from agent_ab.config import Profile
from agent_ab.errors import UserError
from agent_ab.exchanges import read_log
from agent_ab.model import Arm, Exchange, Task
from agent_ab.models import scripted
from agent_ab.paths import RunPaths
from agent_ab.requests import Recorded

EDITS = frozenset({"write", "edit", "patch", "apply_patch", "str_replace", "multiedit"})
"""Tools whose arguments are code."""
SCRIPT_TOKENS = 20_000
"""More than any reply of a script has."""


def find(source: str, profile: Profile, task: Task | None, runs_dir: Path) -> tuple[Recorded, ...]:
    """Return the requests of a `.jsonl` file or a pair (`RUN/PAIR`); without a source, the script's or our own set.

    Raises UserError, ApparatusError.
    """
    if not source:
        if profile.model.source == "scripted" and task is not None:
            return of_script(task.root / "scripts" / f"{profile.model.script}.toml", task)
        return requests.load()
    if source.endswith(".jsonl"):
        path = Path(source)
        return of_log(path) if path.name == "exchanges.jsonl" else requests.load(path)
    run, _, pair = source.partition("/")
    path = RunPaths(runs_dir / run).attempt(pair, Arm.BASELINE).exchanges
    if not pair or not path.is_file():
        raise UserError(
            f"--requests {source}: neither a .jsonl file nor a pair below {runs_dir}; `agent-ab pairs` names them"
        )
    return of_log(path)


def of_log(path: Path) -> tuple[Recorded, ...]:
    """Return the chat requests of an exchange log, each in the class of what was answered. Raises ApparatusError."""
    chats = [e for e in read_log(path).exchanges if e.path.endswith("/chat/completions")]
    return tuple(Recorded(f"exchange-{e.index}", _kind(e), requests.plain(e.request)) for e in chats)


def _kind(exchange: Exchange) -> str:
    names = [str((call.get("function") or {}).get("name")) for call in exchange.tool_calls if isinstance(call, dict)]
    if names:
        return "code" if EDITS & {name.lower() for name in names} else "tools"
    if exchange.request.get("response_format"):
        return "code" if _action(exchange.content) in EDITS else "json"
    return "reasoning" if len(exchange.reasoning) > len(exchange.content) else "prose"


def _action(content: str) -> str:
    try:
        action = json.loads(content)
    except ValueError:
        return ""
    return str(action.get("tool")) if isinstance(action, dict) else ""


def of_script(script: Path, task: Task) -> tuple[Recorded, ...]:
    """Return a request for each reply of a script, its last words included: a scripted model counts the answers before.

    Raises UserError.
    """
    made = []
    last = scripted.Turn(say=scripted.LAST_WORDS)
    for number, turn in enumerate((*scripted.load(script).turns, last)):
        messages = [{"role": "user", "content": task.instruction}]
        for before in range(number):
            messages += [
                {"role": "assistant", "content": f"answer {before}"},
                {"role": "user", "content": "go on"},
            ]
        kind = "prose" if turn.call is None else "code" if turn.call.name in EDITS else "tools"
        body = {"messages": messages, "max_tokens": SCRIPT_TOKENS}
        made.append(Recorded(f"reply-{number}", "reasoning" if turn.think else kind, body))
    return tuple(made)


def some_of_each(found: Sequence[Recorded], each: int | None) -> tuple[Recorded, ...]:
    """Return the first `each` requests of every class (all of them without), no two of them the same."""
    taken: dict[str, int] = {}
    bodies: set[str] = set()
    chosen = []
    for recorded in found:
        body = json.dumps(recorded.body, sort_keys=True)
        # What a server has answered before is drafted from memory by some methods: it would look fast.
        if body in bodies or (each is not None and taken.get(recorded.kind, 0) >= each):
            continue
        bodies.add(body)
        taken[recorded.kind] = taken.get(recorded.kind, 0) + 1
        chosen.append(recorded)
    return tuple(chosen)
