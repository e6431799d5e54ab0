"""What the MTP head of the demo model is fitted on: SmolLM2's own conversations, and its hidden states in them."""

import json
import random
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from agent_ab import process
from agent_ab.server.server import free_port

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

CONTEXT, SLOTS = 2048, 4
CHAT_TOKENS, PASSAGE, READ_EVERY = 220, 1000, 3
PROMPT_SHARE = 0.2
"""Of the positions inside prompts: they tell of the language, but no draft is ever made there."""

CHAT = [
    "Write a Python function that checks whether a string is a palindrome.",
    "Explain what a database transaction is and why it should be atomic.",
    "How do I read a CSV file in Python? Show me an example.",
    "What is the difference between a list and a tuple?",
    "Write a class for a bank account with deposit and withdraw methods.",
    "Explain recursion to a beginner, with an example.",
    "How can I sort a dictionary by its values in Python?",
    "Write unit tests for a function that adds two numbers.",
    "What is a race condition, and how do I avoid one?",
    "Describe how a hash table works.",
    "Write a SQL query that returns the ten customers with the largest orders.",
    "Why does my loop never end? `while i < 10: print(i)`",
    "What are the most important rules of good code review?",
    "Write a function that merges two sorted lists.",
    "Give me five tips for writing clear documentation.",
    "What does it mean that a function is idempotent?",
    "Write a decorator that measures the time of a function.",
    "How does garbage collection work in Python?",
    "Explain the CAP theorem in simple words.",
    "Write a bash script that counts the lines of all Python files.",
    "Translate this into plain English: the quick ratio fell below one.",
    "What are the planets of the solar system, and what is special about each?",
    "Write a short story about a robot that learns to paint.",
    "Summarise the causes of the French Revolution.",
    "How do plants make food from sunlight?",
    "Give me a recipe for vegetable soup.",
    "What should I pack for a week in the mountains?",
    "Explain the difference between weather and climate.",
    "Write a polite e-mail that asks for a meeting next week.",
    "What are the benefits of regular exercise?",
    "How does a bicycle stay upright?",
    "Write a poem about the sea.",
    "What is machine learning, and where is it used?",
    "Explain compound interest with numbers.",
    "How do I learn a new language quickly?",
    "Write a function that parses a date in the form YYYY-MM-DD.",
    "What is the difference between a process and a thread?",
    "Explain what an index does in a database.",
    "Write a generator that yields the Fibonacci numbers.",
    "How do I handle exceptions properly in Python?",
]
FAULTS = [
    "The function returns the wrong value for an empty input.",
    "Negative numbers are accepted, and they must raise ValueError.",
    "The file is not closed when an error occurs in the middle.",
    "The cache grows without a limit.",
    "Two calls at the same time corrupt the state.",
    "The date is wrong when the month has 31 days.",
    "An unknown key is ignored silently; it must raise KeyError.",
    "The comparison is off by one at the upper bound.",
]
LIBRARY = [
    *("heapq", "bisect", "calendar", "csv", "queue", "textwrap", "shlex", "fnmatch", "stat", "colorsys", "glob"),
    *("sched", "cmd", "copy", "types", "string"),
]
COMMANDS = [
    "python3 -m unittest",
    "python3 -m unittest tests.test_{module}",
    "python3 -m pytest -q",
    "cat {name}",
    "ls -la app",
    "git diff",
    "python3 -c 'import app.{module}'",
]
SYSTEM = """You are a coding agent. You work alone in /workspace: nobody answers questions. Read the code, change it, run the tests.

Files:
{tree}

Answer with one JSON action a turn:
{{"tool":"read","path":"FILE"}} shows a file
{{"tool":"edit","path":"FILE","old":"a line of the file","new":"the lines instead"}} changes a file that you have read
{{"tool":"bash","command":"python3 -m unittest"}} runs a command
{{"tool":"glob","pattern":"*.py"}} lists files
{{"tool":"grep","pattern":"def ","path":"FILE"}} searches
{{"tool":"done","summary":"what you changed"}} when the tests pass"""
TEST_OUTPUT = """F.
======================================================================
FAIL: test_{name} (tests.test_{name}.Test{title})
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/workspace/tests/test_{name}.py", line 21, in test_{name}
    self.assertEqual(result, expected)
AssertionError: None != 3

----------------------------------------------------------------------
Ran 2 tests in 0.004s

FAILED (failures=1)"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in tokens."""

    ids: list[int]
    free: list[int]
    """Positions that the model said freely."""
    bound: list[int]
    """Positions that it said under a grammar."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Positions of conversations: what the head sees, and what it should say."""

    tokens: Ids
    """(n,): token t+1."""
    states: Array
    """(n, width): h_t."""
    next_states: Array
    """(n, width): h_{t+1}, whose logits choose token t+2."""
    said: Ids
    """(n,): token t+2 where a grammar chose it too, -1 where the model was free, -2 in a prompt."""
    talk: Ids
    """(n,): the number of the conversation."""


@contextmanager
def serving(binary: Path, model: Path, threads: int, *options: str) -> Iterator[httpx.Client]:
    """Run llama-server on `model`, and give a client of it."""
    port = free_port()
    argv = [str(binary), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "--offline", "--no-ui"]
    argv += ["-ngl", "0", "-t", str(threads), "--cache-ram", "0", *options]
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "XDG_CONFIG_HOME": home}
        log = Path(home) / "server.log"
        with (
            process.started(argv, env=env, log=log, name="llama-server", patience_s=(2.0, 1.0)) as child,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client,
        ):
            while not healthy(client):
                if child.exit_code() is not None:
                    raise SystemExit(log.read_text(errors="replace")[-2000:])
                time.sleep(0.1)
            yield client


def healthy(client: httpx.Client) -> bool:
    """Return whether the server has loaded its model."""
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    """Return the server's JSON answer."""
    return client.post(path, json=body).raise_for_status().json()


def chatml(messages: Sequence[tuple[str, str]], reply: bool) -> str:
    """Return SmolLM2's own template of (role, content) messages, ready for a reply or closed."""
    default = ("system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face")
    whole = [*([] if messages[0][0] == "system" else [default]), *messages]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in whole)
    return text + ("<|im_start|>assistant\n" if reply else "")


def tokens_of(client: httpx.Client, text: str) -> list[int]:
    """Return the token ids of `text`, control tokens included."""
    return list(post(client, "/tokenize", content=text, add_special=True, parse_special=True)["tokens"])


def chat(client: httpx.Client, index: int) -> Conversation:
    """Let the model answer one chat prompt."""
    prompt = tokens_of(client, chatml([("user", CHAT[index])], reply=True))
    settings = {"temperature": 0.0 if index % 3 == 0 else 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0, "seed": index}
    answer = post(client, "/completion", prompt=prompt, n_predict=CHAT_TOKENS, return_tokens=True, **settings)
    ids = prompt + list(answer["tokens"])
    return Conversation(ids, list(range(len(prompt), len(ids))), [])


def actions(client: httpx.Client, module: str, seed: int) -> Conversation:
    """Put together a conversation of the coding agent about a module of Python's library."""
    rng = random.Random(seed)
    source = Path(sysconfig.get_path("stdlib"), f"{module}.py").read_text(encoding="utf-8")
    begin = rng.randrange(max(1, len(source) - PASSAGE))
    lines = source[begin : begin + PASSAGE].splitlines()[1:-1]
    code = [line for line in lines if len(line.strip()) > 12] or [f"import {module}"]
    name, tests = f"app/{module}.py", f"tests/test_{module}.py"
    # A grammar leaves the white space to the model, which likes four columns best.
    forms: list[dict[str, Any]] = [{"indent": 4}, {"indent": 2}, {"indent": 4}, {"separators": (",", ":")}]
    output = TEST_OUTPUT.format(name=module, title=module.title())
    steps: list[tuple[dict[str, str], str]] = [
        ({"tool": "bash", "command": "python3 -m unittest"}, output),
        ({"tool": "read", "path": name}, "\n".join(lines)),
        ({"tool": "grep", "pattern": rng.choice(code).split()[0], "path": name}, f"{name}:12:{rng.choice(code)}"),
        ({"tool": "read", "path": tests}, output.splitlines()[2]),
    ]
    rng.shuffle(steps)
    for _ in range(2):
        start = rng.randrange(len(code))
        old, new = code[start], "\n".join([*code[start : start + rng.randrange(1, 4)], rng.choice(code)])
        steps.append(({"tool": "edit", "path": name, "old": old, "new": new}, f"edited {name}"))
        steps.append(({"tool": "bash", "command": rng.choice(COMMANDS).format(name=name, module=module)}, output))
    fault = FAULTS[seed % len(FAULTS)]
    steps.append(({"tool": "done", "summary": f"{fault} It is repaired in {name}."}, ""))
    system = SYSTEM.format(tree="\n".join([name, tests, "README.md"]))
    messages = [("system", system), ("user", f"{fault} Find the cause in {name}, repair it and run the tests.")]
    ids: list[int] = []
    bound: list[int] = []
    for action, result in steps:
        start = len(tokens_of(client, chatml(messages, reply=True)))
        messages.append(("assistant", json.dumps(action, **forms[seed % 4])))
        ids = tokens_of(client, chatml(messages, reply=False))
        # The line end after <|im_end|> is the template's, not the model's.
        bound += range(start, len(ids) - 1)
        messages.append(("user", result))
    return Conversation(ids[:CONTEXT], [], [at for at in bound if at < CONTEXT])


def reading(client: httpx.Client, topic: str) -> Conversation:
    """Put Python's documentation into the model's mouth; what the model would say in its place is known all the same."""
    prompt = tokens_of(client, chatml([("user", f"Explain {topic.lower()} in Python.")], reply=True))
    ids = prompt + tokens_of(client, topics[topic][: PASSAGE * 2])
    return Conversation(ids, list(range(len(prompt), len(ids))), [])


def converse(client: httpx.Client) -> list[Conversation]:
    """Return all conversations to fit on."""
    with ThreadPoolExecutor(SLOTS) as pool:
        jobs = [pool.submit(chat, client, index) for index in range(len(CHAT))]
        jobs += [pool.submit(actions, client, module, seed) for seed, module in enumerate(LIBRARY)]
        jobs += [pool.submit(reading, client, topic) for topic in sorted(topics)[::READ_EVERY]]
        done = []
        for number, job in enumerate(jobs, 1):
            done.append(job.result())
            if number % 10 == 0:
                print(f"  {number} of {len(jobs)} conversations", flush=True)
    return done


def observe(client: httpx.Client, conversations: Sequence[Conversation]) -> Samples:
    """Return the hidden states of all conversations, prepared as samples."""
    rng = np.random.default_rng(0)
    parts: list[tuple[Ids, Array, Array, Ids, Ids]] = []
    for number, talk in enumerate(conversations):
        answer = post(client, "/embeddings", content=talk.ids, embd_normalize=-1)
        states = np.array(answer[0]["embedding"], np.float32)
        ids = np.array(talk.ids, np.int32)
        said = np.full(len(ids), -2, np.int32)
        said[talk.free] = -1
        said[talk.bound] = ids[talk.bound]
        kept = np.flatnonzero((said[2:] > -2) | (rng.random(len(ids) - 2) < PROMPT_SHARE))
        talks = np.full(len(kept), number, np.int32)
        parts.append((ids[kept + 1], states[kept], states[kept + 1], said[kept + 2], talks))
    return Samples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def collect(binary: Path, model: Path, threads: int) -> Samples:
    """Let the model talk, and look into it."""
    sizes = ["-c", str(CONTEXT * SLOTS), "-np", str(SLOTS), "-b", "2048", "-ub", "512"]
    with serving(binary, model, threads, "--spec-type", "none", *sizes) as client:
        conversations = converse(client)
    sizes = ["-c", str(CONTEXT), "-np", "1", "-b", "2048", "-ub", "2048"]
    with serving(binary, model, threads, "--embeddings", "--pooling", "none", *sizes) as client:
        return observe(client, conversations)
