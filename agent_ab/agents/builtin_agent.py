"""The built-in coding agent: reads, edits and runs things in a workspace until the model says that it is done.

    python3 -I -B builtin_agent.py SETTINGS.json

One file, standard library only, Python >= 3.9: it runs in any box. Its requests are a pure function of settings,
workspace and replies: no time, pid, random id or directory order enters them. It prints a transcript, one JSON event a
line, and exits with 0 (completed, turn-limit, budget), 3 (server-error) or 4 (any other end).
"""

from __future__ import annotations

import ctypes
import hashlib
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = "1"
PROMPT = """You are a coding agent. You work alone in {workspace}: nobody answers questions.
Read the code, change it, run the tests."""
SYSTEM = """{prompt}

Files:
{files}

{guide}"""
TOOLS_GUIDE = "Use the tools, several at once where it helps. When you are done, answer with a short summary instead."
JSON_GUIDE = """Answer with one JSON action a turn:
{"tool":"read","path":"FILE"} shows a file
{"tool":"edit","path":"FILE","old":"text of the file","new":"the text instead"} changes a file that you have read
{"tool":"bash","command":"python3 -m unittest"} runs a command
{"tool":"done","summary":"what you changed"} when the tests pass"""
JSON_MORE = """
{"tool":"write","path":"FILE","content":"its whole text"} makes a file
{"tool":"grep","pattern":"def .*"} searches all files
{"tool":"glob","pattern":"**/*.py"} lists files"""
CONTINUE = "Your reply was cut off or empty. Go on with one action, or finish."
NO_ANSWER = "(no answer)"
EXIT_STATUS = {"completed": 0, "turn-limit": 0, "budget": 0, "server-error": 3}
HIDDEN = {".git", "__pycache__"}
INTEGERS = {"offset", "limit"}
CLOCK = ("LD_PRELOAD", "FAKETIME", "NO_FAKE_STAT", "DONT_FAKE_MONOTONIC")
"""A pinned clock holds for the tools as well."""
STUB = 300
"""Characters that stay of an old tool result when the context runs short."""
NAME = "[A-Za-z0-9_][-A-Za-z0-9_./]{0,40}"
COMMAND = f"^(python3 -m unittest( discover -s tests -t [.])?|python3 {NAME}|cat {NAME}|ls|git diff)$"
"""What a weak model may run: left to itself it makes up programs. No quote, which a grammar would not escape."""
MAX_REPEAT = 2000
"""llama.cpp's grammars repeat nothing more often, so that a longer string has to go without a limit."""
Message = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What the adapter writes; the file's keys are these names."""

    instruction: str
    base_url: str
    workspace: str
    protocol: str
    max_tokens: int
    max_turns: int
    model: str = "local"
    context: int = 0
    """The model's context in tokens; 0: unknown, nothing is shortened to fit."""
    reasoning_effort: str = ""
    prompt: str = ""
    """The system prompt's first words, instead of PROMPT."""
    command_timeout_s: float = 60
    retries: int = 2
    """How often one failed request is sent again, byte for byte."""
    pause_s: float = 0.5
    """Before it is sent again."""
    continues: int = 1
    """How many cut or empty replies in a row are answered with CONTINUE."""
    repeats: int = 5
    """So many equal turns (actions and results) in a row end the run."""
    connect_s: float = 20
    """How long the first connection may be refused."""

    @property
    def result_limit(self) -> int:
        """Return how many characters of one tool result the model sees: about an eighth of its context."""
        return min(30_000, max(1_000, self.context * 3 // 8)) if self.context else 30_000


class Stopped(Exception):
    """SIGTERM."""


class Expired(Exception):
    """A tool took too long."""


class ToolError(Exception):
    """A tool's refusal, told to the model."""


class ServerError(Exception):
    """A request that got no whole reply."""

    def __init__(self, message: str, status: int | None = None, kind: str = "") -> None:
        """Record the message, the HTTP status and the server's own type of the error."""
        super().__init__(message)
        self.status, self.kind = status, kind

    @property
    def fatal(self) -> bool:
        """Return whether the same request would only be refused again."""
        return self.status is not None and 400 <= self.status < 500


@dataclass
class Call:
    """One action that the model asked for; `arguments` is the model's own text."""

    name: str = ""
    arguments: str = ""

    def parsed(self) -> dict[str, Any] | None:
        """Return the arguments, or None when they are no JSON object."""
        with suppress(ValueError, RecursionError):
            value = json.loads(self.arguments or "{}")
            return value if isinstance(value, dict) else None
        return None


@dataclass
class Reply:
    """One whole streamed reply."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish: str = ""
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a tool came to; `text` is what the model sees."""

    text: str
    ok: bool = True
    exit: int | None = None


@dataclass(frozen=True)
class Tool:
    """A tool as the model is told about it: parameter -> meaning."""

    about: str
    required: dict[str, str]
    optional: dict[str, str] = field(default_factory=dict)


TOOLS = {
    "read": Tool(
        "Read a text file, or list a directory.",
        {"path": "the file"},
        {"offset": "first line, from 1", "limit": "lines"},
    ),
    "edit": Tool(
        "Replace one passage of a file.",
        {"path": "the file", "old": "exact text to replace; it must occur once", "new": "the text instead"},
    ),
    "write": Tool("Create or overwrite a file.", {"path": "the file", "content": "its whole text"}),
    "bash": Tool("Run a shell command. What it leaves running is ended with it.", {"command": "the command"}),
    "glob": Tool("List files by name.", {"pattern": "such as **/*.py"}),
    "grep": Tool("Search the lines of files.", {"pattern": "regular expression"}, {"path": "file or directory"}),
}


def clean(text: str) -> str:
    """Return `text` without lone surrogates, which JSON parsers refuse."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def cut(text: str, limit: int) -> str:
    """Return `text`, its middle left out when it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[head - limit :]}"


def emit(event: str, **fields: Any) -> None:
    """Print one line of the transcript."""
    data = (json.dumps({"event": event, **fields}) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


# ---- tools


def listing(root: Path) -> list[str]:
    """Return the files below `root`, relative and sorted, without .git and caches."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in HIDDEN]
        found += [clean((Path(folder) / name).relative_to(root).as_posix()) for name in files]
    return sorted(found)


def glob_regex(pattern: str) -> str:
    """Return a glob pattern as a regular expression over relative paths; without a slash it means any directory."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pattern = pattern if "/" in pattern else f"**/{pattern}"
    return re.sub(r"\*\*/|\*\*|\*|\?|[^*?]+", lambda part: parts.get(part[0]) or re.escape(part[0]), pattern)


def descendants() -> set[int]:
    """Return the processes below this one, zombies included; none where there is no /proc."""
    parents: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(file.parent.name)] = int(file.read_bytes().rpartition(b")")[2].split()[1])
    found = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {os.getpid()}


def end_leftovers() -> None:
    """Kill whatever a command left behind; a subreaper inherits even what left its group and session."""
    for _ in range(100):
        pids = descendants()
        if not pids:
            return
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def drain(fd: int, output: Output, seconds: float) -> None:
    """Read what comes within `seconds`, or until the pipe's end."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        data = os.read(fd, 65536)
        if not data:
            time.sleep(min(left, 0.01))
            return
        output.add(data)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End the block with a ToolError after `seconds` (0: never), for a regular expression may take for ever."""

    def expire(*_: object) -> None:
        raise Expired

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Expired:
        raise ToolError(f"stopped after {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Output:
    """A command's output, kept up to `limit` bytes at both ends while it is read."""

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self.limit, self.size, self.head, self.tail = limit, 0, b"", b""

    def add(self, data: bytes) -> None:
        """Take in what was read."""
        self.size += len(data)
        room = self.limit - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-self.limit :]

    def text(self) -> str:
        """Return it, saying how much is missing."""
        lost = self.size - len(self.head) - len(self.tail)
        gap = f"\n[... {lost} bytes left out ...]\n".encode() if lost else b""
        return (self.head + gap + self.tail).decode("utf-8", "replace")


class Workspace:
    """The tools, at work in one directory."""

    def __init__(self, settings: Settings) -> None:
        """Take the place and the limits from `settings`."""
        self.root = Path(settings.workspace).resolve()
        self.limit, self.timeout_s = settings.result_limit, settings.command_timeout_s
        self.env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", str(self.root))}
        self.env.update(TZ="UTC", LANG="C.UTF-8", PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1", PAGER="cat")
        self.env.update({name: os.environ[name] for name in CLOCK if name in os.environ})

    def use(self, call: Call) -> Result:
        """Run one tool; whatever goes wrong is a result for the model."""
        try:
            with time_limit(0 if call.name == "bash" else self.timeout_s):
                result: Result = getattr(self, self.known(call))(**self.arguments(call))
        except ToolError as error:
            return Result(clean(f"error: {error}"), ok=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return Result(clean(f"error: {reason}"), ok=False)
        return Result(clean(cut(result.text, self.limit)), result.ok, result.exit)

    @staticmethod
    def known(call: Call) -> str:
        """Return the tool's name. Raises ToolError."""
        if call.name not in TOOLS:
            raise ToolError(f"there is no tool {call.name[:50]!r}; there are {', '.join(TOOLS)}")
        return call.name

    @staticmethod
    def arguments(call: Call) -> dict[str, Any]:
        """Return the tool's arguments, None for those left out. Raises ToolError."""
        given, tool = call.parsed(), TOOLS[call.name]
        if given is None:
            raise ToolError("the arguments are not a JSON object")
        for name in (*tool.required, *tool.optional):
            kind = int if name in INTEGERS else str
            if given.get(name) is None and name in tool.required:
                raise ToolError(f"{name} is missing")
            if given.get(name) is not None and type(given[name]) is not kind:
                raise ToolError(f"{name} must be {'a whole number' if kind is int else 'a string'}")
        return {name: given.get(name) for name in (*tool.required, *tool.optional)}

    def path(self, name: str) -> Path:
        """Return the real path of `name`. Raises ToolError when it lies outside the workspace."""
        try:
            path = (self.root / name).resolve()
        except RuntimeError:  # before Python 3.13
            raise ToolError(f"{name} is a loop of links") from None
        if self.root not in (path, *path.parents):
            raise ToolError(f"{name} is outside the workspace")
        return path

    def load(self, name: str) -> str:
        """Return a file's text, in which foreign bytes survive a later `store`."""
        path = self.path(name)
        size = path.stat().st_size
        if not path.is_file():
            raise ToolError(f"{name} is not a regular file")
        if size > 10_000_000:
            raise ToolError(f"{name} is larger than 10 MB")
        return path.read_bytes().decode("utf-8", "surrogateescape")

    def store(self, name: str, text: str) -> None:
        """Write a file, with its parent directories."""
        path = self.path(name)
        if path.exists() and not path.is_file():
            raise ToolError(f"{name} is not a regular file")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = clean(text).encode()
        path.write_bytes(data)

    def read(self, path: str, offset: int | None, limit: int | None) -> Result:
        """Return lines of a file, or the names in a directory."""
        place = self.path(path)
        if place.is_dir():
            return Result("\n".join(sorted({entry.name for entry in place.iterdir()} - HIDDEN)) or "(empty)")
        lines = self.load(path).splitlines(keepends=True)
        first = max(1, offset or 1)
        chosen = lines[first - 1 :][: limit if limit is not None and limit > 0 else None]
        rest = len(lines) - (first - 1) - len(chosen)
        return Result(("".join(chosen) or "(empty)") + (f"\n[{rest} more lines]" if rest > 0 else ""))

    def write(self, path: str, content: str) -> Result:
        """Create or overwrite a file."""
        self.store(path, content)
        return Result(f"wrote {path}")

    def edit(self, path: str, old: str, new: str) -> Result:
        """Replace the one occurrence of `old`."""
        text = self.load(path)
        count = text.count(old) if old else 0
        if count != 1:
            why = f"occurs {count} times; give more of its surroundings" if count else "does not occur"
            raise ToolError(f"old {why} in {path}: nothing was changed")
        if old == new:
            raise ToolError("old and new are equal: nothing was changed")
        self.store(path, text.replace(old, new))
        return Result(f"edited {path}")

    def glob(self, pattern: str) -> Result:
        """List the files whose path matches."""
        return Result("\n".join(filter(re.compile(glob_regex(pattern)).fullmatch, listing(self.root))) or "no files")

    def grep(self, pattern: str, path: str | None) -> Result:
        """List the matching lines as path:line:text."""
        try:
            wanted = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"not a regular expression: {error}") from None
        base, found = self.path(path or "."), []
        for file in [base] if base.is_file() else [base / name for name in listing(base)]:
            with suppress(OSError, ToolError):
                name = file.relative_to(self.root).as_posix()
                lines = enumerate(self.load(name).splitlines(), 1)
                found += [f"{name}:{number}:{line}" for number, line in lines if wanted.search(line)]
        return Result("\n".join(found) or "no matches")

    def bash(self, command: str) -> Result:
        """Run a command; its output is bounded while it is read, and no child outlives it."""
        shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
        output, deadline, timed_out = Output(2 * self.limit), time.monotonic() + self.timeout_s, False
        process = subprocess.Popen(
            [shell, "-c", command],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            # A child in the background may hold the pipe, so the shell's end counts, not the pipe's.
            while process.poll() is None and not timed_out:
                drain(process.stdout.fileno(), output, 0.05)
                timed_out = time.monotonic() > deadline
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            end_leftovers()
        drain(process.stdout.fileno(), output, 1.0)
        process.stdout.close()
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        status = f"stopped after {self.timeout_s:g} s" if timed_out else f"exit status {code}"
        return Result(f"{output.text()}\n[{status}]".lstrip("\n"), not timed_out and code == 0, code)


# ---- the model


class Model:
    """The server's chat completions, streamed."""

    def __init__(self, settings: Settings) -> None:
        """Take the server's address from `settings`."""
        url = urllib.parse.urlsplit(settings.base_url)
        self.host, self.port, self.path = url.hostname or "", url.port, f"{url.path.rstrip('/')}/chat/completions"
        self.patience_s, self.reached = settings.connect_s, False

    def ask(self, body: bytes) -> Reply:
        """Send one request and return its whole reply. Raises ServerError."""
        connection = self.connect()
        try:
            connection.request("POST", self.path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise refusal(response.read(100_000), response.status)
            return assemble(events(response))
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"the connection broke: {error!r}") from None
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        """Connect without a time limit of our own; wait for a server that has never been there yet."""
        deadline = time.monotonic() + self.patience_s
        while True:
            connection = http.client.HTTPConnection(self.host, self.port)
            try:
                connection.connect()
            except OSError as error:
                if self.reached or time.monotonic() > deadline:
                    raise ServerError(f"no connection to {self.host}:{self.port}: {error}") from None
                time.sleep(0.1)
            else:
                self.reached = True
                return connection


def refusal(data: bytes, status: int | None = None) -> ServerError:
    """Return the error that an error body tells, be it JSON or not."""
    text = data.decode("utf-8", "replace").strip()
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        error = json.loads(text)["error"]
        code = error.get("code") if isinstance(error.get("code"), int) else None
        return ServerError(str(error.get("message")), status or code, str(error.get("type", "")))
    return ServerError(text[:2000] or "no message", status)


def events(response: http.client.HTTPResponse) -> Iterator[Any]:
    """Yield the data events of a stream up to [DONE]; comments are pings. Raises ServerError."""
    for line in iter(response.readline, b""):
        name, _, data = line.strip().partition(b":")
        if not line.endswith(b"\n"):
            return
        if name == b"error":
            raise refusal(b'{"error":' + data + b"}")
        if name != b"data":
            continue
        if data.strip() == b"[DONE]":
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise ServerError(f"an event of the stream is no JSON: {data[:200]!r}") from None
        if isinstance(event, dict) and event.get("error"):
            raise refusal(data)
        yield event


def assemble(stream: Iterator[Any]) -> Reply:
    """Put the deltas of a stream together. Raises ServerError when it ends early or has another shape."""
    reply = Reply()
    try:
        for event in stream:
            usage = event.get("usage") or {}
            reply.usage.update({name: count for name, count in usage.items() if isinstance(count, int)})
            for choice in event.get("choices") or []:
                add_delta(reply, choice.get("delta") or {})
                reply.finish = choice.get("finish_reason") or reply.finish
    except (AttributeError, TypeError, IndexError) as error:
        raise ServerError(f"an event of the stream has another shape: {error}") from None
    if not reply.finish:
        raise ServerError("the stream ended before the reply did")
    return reply


def add_delta(reply: Reply, delta: dict[str, Any]) -> None:
    """Add one delta to `reply`."""
    reply.content += delta.get("content") or ""
    reply.reasoning += delta.get("reasoning_content") or ""
    for piece in delta.get("tool_calls") or []:
        if piece.get("index", 0) == len(reply.calls):
            reply.calls.append(Call())
        call, function = reply.calls[piece.get("index", 0)], piece.get("function") or {}
        call.name = call.name or str(function.get("name") or "")
        call.arguments += function.get("arguments") or ""


# ---- the two protocols


class ToolCalls:
    """OpenAI tool calls, several a turn."""

    guide = TOOLS_GUIDE

    def request(self, workspace: Workspace) -> Message:
        """Return what the request needs beside the messages."""
        functions = []
        for name, tool in TOOLS.items():
            about = {**tool.required, **tool.optional}
            properties = {p: {"type": "integer" if p in INTEGERS else "string", "description": about[p]} for p in about}
            parameters = {"type": "object", "properties": properties, "required": list(tool.required)}
            functions.append({"name": name, "description": tool.about, "parameters": parameters})
        return {"tools": [{"type": "function", "function": function} for function in functions], "tool_choice": "auto"}

    def calls(self, reply: Reply) -> list[Call]:
        """Return what the model wants done; nothing means that it is done."""
        return reply.calls

    def said(self, reply: Reply, calls: list[Call], turn: int) -> Message:
        """Return the reply as a message, without the server's random call ids and without broken JSON."""
        message: Message = {"role": "assistant", "content": clean(reply.content)}
        if reply.reasoning:
            message["reasoning_content"] = clean(reply.reasoning)
        if calls:
            message["tool_calls"] = []
        for number, call in enumerate(calls, 1):
            # A template that parses the arguments answers 500 to broken ones, in every later turn.
            arguments = json.dumps({"malformed": call.arguments}) if call.parsed() is None else call.arguments or "{}"
            function = {"name": clean(call.name), "arguments": clean(arguments)}
            message["tool_calls"].append({"id": f"call_{turn}_{number}", "type": "function", "function": function})
        return message

    def answer(self, call: Call, result: Result, turn: int, number: int) -> Message:
        """Return a tool's result as a message."""
        return {"role": "tool", "tool_call_id": f"call_{turn}_{number}", "content": result.text}


class JsonActions:
    """One JSON action a turn, held to a schema by the server's grammar.

    A small response budget (under about 1,000 tokens) means a weak model. Its schema holds only what makes sense now:
    paths, lines and programs that exist, and strings that fit the budget; at most two files read in a row; one change,
    one command, the next change; an end only after a change that was tried.
    """

    def __init__(self, settings: Settings) -> None:
        """Size the strings so that a reply fits its budget, at two characters a token."""
        self.room = (settings.max_tokens - 60) * 2
        self.guide = JSON_GUIDE if self.room < MAX_REPEAT else JSON_GUIDE + JSON_MORE
        self.fresh: list[str] = []  # files that were read since they last changed, the latest last
        self.changed, self.tried = False, False  # a file was; a command has run since
        self.reads = 0  # in a row

    def request(self, workspace: Workspace) -> Message:
        """Return the schema of an action. Files are named from the workspace while they are few."""
        if self.room < MAX_REPEAT:
            actions = self.narrow(workspace)
        else:
            actions = [action(name, {p: {"type": "string"} for p in tool.required}) for name, tool in TOOLS.items()]
            actions.append(action("done", {"summary": {"type": "string"}}))
        schema = {"name": "action", "strict": True, "schema": {"anyOf": actions}}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}

    def narrow(self, workspace: Workspace) -> list[Message]:
        """Return the actions that make sense now."""
        files = [name for name in listing(workspace.root) if (workspace.root / name).is_file()]
        names = [name for name in files if (workspace.root / name).stat().st_size][:60]
        # A weak model that has begun to repeat itself goes on until the string is full.
        text = {"type": "string", "minLength": 1, "maxLength": max(16, min(200, self.room))}
        stale = [name for name in names if name not in self.fresh]
        actions = [action("read", {"path": {"enum": stale}})] if stale and self.reads < 2 else []
        for name in self.fresh[-3:] if self.tried or not self.changed else []:
            with suppress(OSError, ToolError):
                source = workspace.load(name)
                lines = [line for line in source.splitlines() if line.strip() and source.count(line) == 1]
                if lines := [line for line in lines if clean(line) == line]:
                    actions.append(action("edit", {"path": {"const": name}, "old": {"enum": lines[:200]}, "new": text}))
        if self.changed and self.tried:
            actions.append(action("done", {"summary": {"type": "string", "maxLength": 100}}))
        if not self.tried or not actions:
            actions.append(action("bash", {"command": {"type": "string", "pattern": COMMAND}}))
        return actions

    def calls(self, reply: Reply) -> list[Call]:
        """Return the one action, or none when the model says that it is done."""
        try:
            action, _ = json.JSONDecoder().raw_decode(reply.content, max(0, reply.content.find("{")))
            name = action.pop("tool", "")
        except (ValueError, RecursionError, AttributeError):
            return [Call("", reply.content)] if reply.content.strip() else []
        return [] if name == "done" else [Call(str(name), json.dumps(action))]

    def said(self, reply: Reply, calls: list[Call], turn: int) -> Message:
        """Return the reply as a message."""
        return {"role": "assistant", "content": clean(reply.content) or NO_ANSWER}

    def answer(self, call: Call, result: Result, turn: int, number: int) -> Message:
        """Return a tool's result as a message, and note what it means for the next schema."""
        self.reads = self.reads + 1 if call.name == "read" else 0
        path = str((call.parsed() or {}).get("path"))
        if call.name == "read" and result.ok:
            self.fresh = [*(name for name in self.fresh if name != path), path]
        elif call.name == "edit":
            self.fresh = [name for name in self.fresh if name != path]
            self.changed, self.tried = self.changed or result.ok, self.tried and not result.ok
        elif call.name == "bash":
            self.tried = True
        return {"role": "user", "content": result.text}


def action(name: str, properties: Message) -> Message:
    """Return the schema of one action; a grammar keeps the order of the keys."""
    return {
        "type": "object",
        "properties": {"tool": {"const": name}, **properties},
        "required": ["tool", *properties],
        "additionalProperties": False,
    }


# ---- the loop


class Agent:
    """One conversation."""

    def __init__(self, settings: Settings) -> None:
        """Write the system prompt and the instruction."""
        self.settings, self.workspace, self.model = settings, Workspace(settings), Model(settings)
        self.protocol = JsonActions(settings) if settings.protocol == "json" else ToolCalls()
        files = listing(self.workspace.root)
        tree = "\n".join(files[:100]) + (f"\n({len(files) - 100} more)" if len(files) > 100 else "")
        prompt = settings.prompt or PROMPT.format(workspace=settings.workspace)
        system = SYSTEM.format(prompt=prompt, files=tree, guide=self.protocol.guide)
        opening = {"system": system, "user": settings.instruction}
        self.messages = [{"role": role, "content": clean(text)} for role, text in opening.items()]
        self.results: list[int] = []  # where the tool results are that may still be shortened
        self.turn, self.tokens_per_byte = 0, 1 / 3
        self.counts: Counter[str] = Counter()

    def run(self) -> str:
        """Talk until an end, and return its name. Raises ServerError."""
        idle, repeated, last = 0, 0, None
        for turn in range(1, self.settings.max_turns + 1):
            self.turn = turn
            reply = self.ask()
            calls = self.protocol.calls(reply)
            if reply.finish == "length":
                calls = [call for call in calls if call.parsed() is not None]
            if not calls and (reply.finish == "length" or not reply.content.strip()):
                idle += 1
                end = self.unfinished(reply)
                if end == "context-full" or idle > self.settings.continues:
                    return end
                continue
            if not calls:
                return "completed"
            self.messages.append(self.protocol.said(reply, calls, turn))
            done = [(call.name, call.arguments, self.do(call, number)) for number, call in enumerate(calls, 1)]
            idle, repeated, last = 0, repeated + 1 if done == last else 1, done
            if repeated >= self.settings.repeats:
                return "no-progress"
        return "turn-limit"

    def unfinished(self, reply: Reply) -> str:
        """Ask to go on after a reply that was cut or empty, and return the end that another such reply leads to."""
        full = reply.finish == "length" and 0 < reply.usage.get("completion_tokens", 0) < self.settings.max_tokens
        end = "context-full" if full else "budget" if reply.finish == "length" else "no-progress"
        self.counts["empty_replies" if end == "no-progress" else "budget_stops"] += 1
        self.messages.append({"role": "assistant", "content": clean(reply.content) or NO_ANSWER})
        self.messages.append({"role": "user", "content": CONTINUE})
        emit("unfinished", turn=self.turn, why=end)
        return end

    def do(self, call: Call, number: int) -> str:
        """Carry out one action, tell the model, and return the result."""
        result = self.workspace.use(call)
        self.counts["malformed"] += call.parsed() is None or call.name not in TOOLS
        shown = {"arguments": cut(call.arguments, 4000), "size": len(result.text), "result": cut(result.text, 2000)}
        emit("tool", turn=self.turn, name=call.name, ok=result.ok, exit=result.exit, **shown)
        self.results.append(len(self.messages))
        self.messages.append(self.protocol.answer(call, result, self.turn, number))
        return result.text

    def ask(self) -> Reply:
        """Send the conversation; a failed request goes out again unchanged. Raises ServerError."""
        request = self.fitting_request()
        body = json.dumps(request, separators=(",", ":")).encode()
        facts = {"bytes": len(body), "messages": len(self.messages), "sha256": hashlib.sha256(body).hexdigest()}
        for attempt in range(1, self.settings.retries + 2):
            emit("request", turn=self.turn, attempt=attempt, **facts)
            try:
                reply = self.model.ask(body)
                break
            except ServerError as error:
                again = attempt <= self.settings.retries and not error.fatal
                shown = {"status": error.status, "type": error.kind, "message": str(error)[:2000]}
                emit("error", turn=self.turn, attempt=attempt, again=again, **shown)
                if not again:
                    raise
                self.counts["retries"] += 1
                time.sleep(self.settings.pause_s)
        said = {"content": reply.content, "reasoning": reply.reasoning, "usage": reply.usage}
        calls = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
        emit("reply", turn=self.turn, finish=reply.finish, calls=calls, **said)
        if reply.usage.get("prompt_tokens"):
            self.tokens_per_byte = reply.usage["prompt_tokens"] / self.prompt_bytes(request)
        return reply

    def request(self) -> Message:
        """Return the request."""
        request = {"model": self.settings.model, "messages": self.messages, **self.protocol.request(self.workspace)}
        request.update(stream=True, stream_options={"include_usage": True}, max_tokens=self.settings.max_tokens)
        if self.settings.reasoning_effort:
            request["reasoning_effort"] = self.settings.reasoning_effort
        return request

    def prompt_bytes(self, request: Message) -> int:
        """Return the size of what the server makes a prompt of."""
        return len(json.dumps([self.messages, request.get("tools")]))

    def fitting_request(self) -> Message:
        """Return the request, the oldest tool results shortened until prompt and reply fit the context."""
        request = self.request()
        room = (self.settings.context - self.settings.max_tokens) / 1.05
        while self.settings.context and self.results[1:] and self.prompt_bytes(request) * self.tokens_per_byte > room:
            index = self.results.pop(0)
            text = self.messages[index]["content"]
            if len(text) > 2 * STUB:
                self.messages[index] = {**self.messages[index], "content": cut(text, STUB)}
                emit("shortened", turn=self.turn, message=index, left_out=len(text) - STUB)
        return request


def stop(*_: object) -> None:
    """Turn SIGTERM into an end like any other."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def main() -> int:
    """Run the agent with the settings of argv[1] and return the exit status."""
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    agent, detail = Agent(settings), ""
    signal.signal(signal.SIGTERM, stop)
    emit("start", version=VERSION, protocol=settings.protocol, workspace=settings.workspace)
    try:
        reason = agent.run()
    except Stopped:
        # The signal may have come while a command was being started.
        end_leftovers()
        reason = "stopped"
    except ServerError as error:
        reason = "context-full" if error.kind == "exceed_context_size_error" else "server-error"
        detail = str(error)[:500]
    status = EXIT_STATUS.get(reason, 4)
    emit("end", reason=reason, detail=detail, turns=agent.turn, counts=dict(sorted(agent.counts.items())), exit=status)
    return status


if __name__ == "__main__":
    sys.exit(main())
