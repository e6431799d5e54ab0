"""A run as a log of Inspect AI (format 2, JSON), to be opened with `inspect view` and read with `read_eval_log`.

One sample is one attempt, `<pair>/<arm>`. Scores: `solved` (C when every check passed), `checks` (the share that passed),
`check` (each by its name). An attempt that broke has an error and no score: it says nothing about its arm.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent_ab import __version__
from agent_ab.errors import ApparatusError, UserError
from agent_ab.exchanges import read_log
from agent_ab.files import appearing
from agent_ab.model import AgentEnd, Arm, Attempt, CheckStatus, Exchange, ExchangeLog, Json, Outcome, Pair, RunStatus
from agent_ab.pair.metrics import measure
from agent_ab.paths import AttemptPaths, RunPaths
from agent_ab.store import evidence
from agent_ab.store.store import RunRecord, Store

FORMAT = 2
"""Version of Inspect's log format."""
MODEL = "local"
_STATUS = {RunStatus.FINISHED: "success", RunStatus.STOPPED: "cancelled", RunStatus.RUNNING: "started"}
_STOP = {"stop": "stop", "tool_calls": "tool_calls", "length": "max_tokens", "content_filter": "content_filter"}


@dataclass(slots=True)
class _Tally:
    """What the valid pairs of one arm add up to."""

    attempts: int = 0
    solved: int = 0
    share: float = 0.0
    left_out: int = 0

    def add(self, pair: Pair, attempt: Attempt) -> None:
        if not pair.valid or not attempt.total:
            self.left_out += 1
            return
        self.attempts += 1
        self.solved += attempt.outcome is Outcome.PASS
        self.share += attempt.passed / attempt.total


def write(store: Store, run_id: str, runs_dir: Path, target: Path) -> None:
    """Write a run into the file `target`. Transcripts come from the evidence and are empty where that is not there.

    Raises UserError for another ending than `.json`, by which Inspect knows the format, or an unknown run.
    """
    if target.suffix != ".json":
        raise UserError(f"--eval-log {target}: Inspect knows the format by its ending; give the file one of .json")
    record = store.run(run_id)
    names = [f"{run_id}/{state.id}" for state in sorted(store.pair_states(run_id), key=lambda s: (s.block, s.id))]
    tallies: dict[Arm, _Tally] = defaultdict(_Tally)
    for name in names:
        pair = store.load_pair(name)
        for arm in Arm:
            tallies[arm].add(pair, pair.attempt(arm))
    try:
        with appearing(target) as partial, partial.open("w", encoding="utf-8") as file:
            _write(file, _header(record, names, tallies), _samples(store, names, RunPaths(runs_dir / run_id)))
    except OSError as error:
        raise UserError(f"--eval-log {target}: cannot be written: {error.strerror}") from error


def _write(file: IO[str], header: Json, samples: Iterator[Json]) -> None:
    """Write one sample at a time: a long run does not fit into memory. The header comes first, as readers expect."""
    file.write(json.dumps(header)[:-1] + ', "samples": [')
    for number, sample in enumerate(samples):
        file.write(",\n" if number else "\n")
        json.dump(sample, file)
    file.write("\n]}\n")


def _header(record: RunRecord, names: Sequence[str], tallies: dict[Arm, _Tally]) -> Json:
    samples = 2 * len(names)
    agent = record.plan.get("profile", {}).get("agent", {}).get("kind", "agent")
    return {
        "version": FORMAT,
        "status": _STATUS.get(RunStatus(record.status), "success"),
        "eval": {
            "eval_id": record.id,
            "run_id": record.id,
            "created": record.created_at,
            "task": f"agent_ab/{record.profile}",
            "task_id": record.id,
            "dataset": {"name": "agent_ab", "samples": samples, "shuffled": False},
            "model": MODEL,
            "config": {"epochs": 1},
            "packages": {"agent_ab": record.version or __version__},
            "metadata": {
                "kind": record.kind,
                "variable": record.plan.get("profile", {}).get("variable", ""),
                "plan_sha256": record.plan_sha256,
                "policy_sha256": record.policy_sha256,
            },
        },
        "plan": {"name": "agent_ab", "steps": [{"solver": agent}]},
        "results": {
            "total_samples": samples,
            "completed_samples": sum(tally.attempts for tally in tallies.values()),
            "scores": [score for arm in Arm for score in _scores(arm, tallies[arm])],
        },
        "stats": {"started_at": record.created_at, "completed_at": record.ended_at or ""},
    }


def _scores(arm: Arm, tally: _Tally) -> Iterator[Json]:
    for scorer, total in (("solved", float(tally.solved)), ("checks", tally.share)):
        value = total / tally.attempts if tally.attempts else None
        metrics = {} if value is None else {"mean": {"name": "mean", "value": value}}
        yield {
            "name": f"{scorer} ({arm})",
            "scorer": scorer,
            "scored_samples": tally.attempts,
            "unscored_samples": tally.left_out,
            "metrics": metrics,
        }


def _samples(store: Store, names: Sequence[str], paths: RunPaths) -> Iterator[Json]:
    for name in names:
        pair = store.load_pair(name)
        for arm in Arm:
            yield _sample(pair, pair.attempt(arm), _log(paths.attempt(pair.id, arm), pair.attempt(arm)))


def _log(paths: AttemptPaths, attempt: Attempt) -> ExchangeLog | None:
    if not paths.exchanges.is_file():
        return None
    evidence.recorded_file(attempt, paths.exchanges)
    try:
        return read_log(paths.exchanges)
    except ApparatusError:
        return None


def _sample(pair: Pair, attempt: Attempt, log: ExchangeLog | None) -> Json:
    longest = max(log.exchanges, key=lambda e: (len(_messages(e)), e.index)) if log and log.exchanges else None
    messages = [_message(message) for message in _messages(longest)] if longest else []
    asked = next((message["content"] for message in messages if message["role"] == "user"), pair.task)
    reply = _reply(longest) if longest else None
    metrics = measure(attempt)
    usage = {
        "input_tokens": metrics.prompt_tokens,
        "output_tokens": metrics.generated_tokens,
        "total_tokens": metrics.prompt_tokens + metrics.generated_tokens,
    }
    sample: dict[str, Json] = {
        "id": f"{pair.id}/{attempt.arm}",
        "epoch": 1,
        "input": asked,
        "target": "every hidden check passes",
        "messages": [*messages, reply] if reply else messages,
        "output": _output(longest, reply, usage),
        "scores": _attempt_scores(attempt),
        "metadata": _metadata(pair, attempt),
        "model_usage": {MODEL: usage},
        "total_time": attempt.duration_s,
        "working_time": attempt.agent.duration_s if attempt.agent else None,
        "turn_count": metrics.turns,
    }
    if attempt.started_at:
        sample["started_at"] = attempt.started_at
    if attempt.outcome is Outcome.INVALID:
        sample["error"] = {"message": attempt.invalid_reason, "traceback": "", "traceback_ansi": ""}
    if attempt.agent and attempt.agent.end is AgentEnd.TIMEOUT:
        sample["limit"] = {"type": "time", "limit": attempt.agent.time_limit_s}
    return sample


def _attempt_scores(attempt: Attempt) -> Json:
    if attempt.outcome is Outcome.INVALID or not attempt.total:
        return None
    failed = [f"{c.id}: {c.reason}" for c in attempt.scored if c.status is CheckStatus.FAIL]
    scores = {
        "solved": {"value": "C" if attempt.outcome is Outcome.PASS else "I", "explanation": "\n".join(failed)},
        "checks": {"value": attempt.passed / attempt.total, "answer": f"{attempt.passed} of {attempt.total}"},
    }
    if attempt.scored:
        scores["check"] = {"value": {c.id: int(c.status is CheckStatus.PASS) for c in attempt.scored}}
    return scores


def _metadata(pair: Pair, attempt: Attempt) -> Json:
    return {
        "run": pair.run,
        "pair": pair.id,
        "arm": attempt.arm.value,
        "task": pair.task,
        "seed": pair.seed,
        "repeat": pair.repeat,
        "block": pair.block,
        "pair_outcome": pair.outcome.value,
        "proven": pair.proven,
        "flips": [flip.check_id for flip in pair.flips],
        "speculation": attempt.server.spec_type if attempt.server else None,
        "agent_end": attempt.agent.end.value if attempt.agent else None,
        "patch": attempt.patch.text if attempt.patch else "",
    }


def _output(exchange: Exchange | None, reply: Json, usage: Json) -> Json:
    if exchange is None:
        return {"model": MODEL, "choices": []}
    stop = _STOP.get(exchange.finish_reason or "", "unknown")
    return {
        "model": MODEL,
        "choices": [{"message": reply, "stop_reason": stop}],
        "usage": usage,
        "error": exchange.error,
    }


def _messages(exchange: Exchange) -> list[dict[str, Json]]:
    messages = exchange.request.get("messages") if isinstance(exchange.request, dict) else None
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def _message(message: dict[str, Json]) -> dict[str, Json]:
    """Return a message of the chat API as Inspect's; a role that it does not know becomes the user's."""
    role = message.get("role")
    made: dict[str, Json] = {"role": role, "content": _text(message.get("content"))}
    if role == "assistant":
        made |= {"source": "generate", "tool_calls": _calls(message.get("tool_calls"))}
    elif role == "tool":
        made |= {"tool_call_id": str(message.get("tool_call_id") or ""), "function": str(message.get("name") or "")}
    elif role != "system":
        made["role"] = "user"
    return made


def _reply(exchange: Exchange) -> dict[str, Json]:
    content: Json = exchange.content
    if exchange.reasoning:
        content = [{"type": "reasoning", "reasoning": exchange.reasoning}, {"type": "text", "text": exchange.content}]
    made: dict[str, Json] = {"role": "assistant", "content": content, "source": "generate", "model": MODEL}
    return made | {"tool_calls": _calls(list(exchange.tool_calls))}


def _calls(calls: Json) -> list[Json] | None:
    if not isinstance(calls, list):
        return None
    return [_call(call, number) for number, call in enumerate(calls) if isinstance(call, dict)] or None


def _call(call: dict[str, Json], number: int) -> Json:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    text = function.get("arguments")
    made: dict[str, Json] = {
        "id": str(call.get("id") or f"call-{number}"),
        "function": str(function.get("name") or ""),
        "arguments": {},
        "type": "function",
    }
    try:
        arguments = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return made | {"arguments": arguments}
    return made | {"parse_error": "the arguments are no JSON object", "arguments": {"text": str(text)}}


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        pieces = [piece.get("text") for piece in content if isinstance(piece, dict)]
        return "\n".join(piece for piece in pieces if isinstance(piece, str))
    return "" if content is None else json.dumps(content)
