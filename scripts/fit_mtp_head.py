"""Fit the MTP head of the demo model (agent_ab/data/smollm2_mtp_head.npy) and measure it on the real llama-server.

    python scripts/fit_mtp_head.py --server PATH/llama-server --out agent_ab/data/smollm2_mtp_head.npy

1. SmolLM2 answers the chat prompts of conversations.py. Conversations of a coding agent that acts in JSON are put
   together from Python's own library: under a schema the grammar chooses most tokens, and it costs seconds a reply.
2. The server gives the hidden state of every token of these conversations.
3. A ridge regression, then Adam on cross-entropy with the trunk's own distribution, gives
   `logits(t+2) = W_out rms_norm(head [rms(e_{t+1}); rms(h_t)])`.
4. The model with this head answers prompts that it was not fitted on; the server's own draft counts are printed.

It took 31 minutes with `--threads 1` and about a third of one core, so it should take around 10 on two idle ones; on a
busy machine more threads make llama-server slower, not faster. `--work DIR` keeps the samples: a second fit starts at 3.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import numpy.typing as npt
from conversations import CONTEXT, SYSTEM, Array, Ids, Samples, collect, post, serving

from agent_ab.engine.engine import cache_dir
from agent_ab.models import smollm2

BATCH, RATE, BETA_1, BETA_2, RIDGE = 256, 5e-4, 0.9, 0.99, 300.0
TOP = 8
"""How many of the trunk's most likely tokens make up a position's target."""

HELD_OUT_CHAT = [
    "Write a Python function that returns the most common word of a text.",
    "Explain what a foreign key is.",
    "How do I reverse a linked list?",
    "What is the difference between TCP and UDP?",
    "Describe the water cycle.",
    "Give me three ideas for a birthday party.",
    "Write a Python function that returns the longest word of a sentence.",
    "How do I boil an egg?",
    "What is a mutex?",
    "Explain how a refrigerator works.",
    "Write a regular expression for e-mail addresses.",
    "Who invented the telephone?",
]
HELD_OUT_CODE = [
    "Write a Python class for a stack with push, pop and peek.",
    "Write a Python function that counts the vowels of a text.",
]
HELD_OUT_TASKS = [
    "The totals are wrong when the list is empty. Repair it and run the tests.",
    "Reading the settings fails when the file is missing. It must use the defaults.",
    "Sorting puts upper case before lower case. It must ignore case.",
]


# --- the fit -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trunk:
    """The parts of SmolLM2 that the MTP block shares."""

    embeddings: Array
    """(vocabulary, width); the output matrix too."""
    out_norm: Array
    """(width,)."""

    @classmethod
    def load(cls, model: Path) -> "Trunk":
        """Read them from the GGUF."""
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(model).tensors}
        table = tensors["token_embd.weight"]
        embeddings = gguf.dequantize(table.data, table.tensor_type).astype(np.float32)
        return cls(embeddings, np.array(tensors["output_norm.weight"].data, np.float32))


@dataclass(frozen=True, slots=True)
class Lesson:
    """Samples in the form that the fit takes."""

    inputs: Array
    """(n, 2 * width): [rms(e_{t+1}); rms(h_t)]."""
    wanted: Array
    """(n, width): the trunk's own rms-normed state, h_{t+1} / out_norm."""
    ids: Ids
    """(n, TOP): the tokens that may come next."""
    chances: Array
    """(n, TOP): their probabilities."""


def rms(values: Array) -> Array:
    """Return the rows of `values` scaled to a mean square of 1."""
    scaled: Array = values / np.sqrt((values * values).mean(-1, keepdims=True) + 1e-6)
    return scaled


def lesson(samples: Samples, trunk: Trunk) -> Lesson:
    """Return what the head is to learn: the trunk's distribution, or the token said where a grammar ruled."""
    count = len(samples.tokens)
    ids = np.zeros((count, TOP), np.int32)
    chances = np.zeros((count, TOP), np.float32)
    for begin in range(0, count, 1024):
        rows = slice(begin, begin + 1024)
        logits = samples.next_states[rows] @ trunk.embeddings.T
        ids[rows] = np.argpartition(-logits, TOP, axis=1)[:, :TOP]
        top = np.take_along_axis(logits, ids[rows].astype(np.int64), axis=1)
        powers = np.exp(top - top.max(1, keepdims=True))
        chances[rows] = powers / powers.sum(1, keepdims=True)
    bound = samples.said >= 0
    ids[bound] = samples.said[bound, None]
    chances[bound] = np.eye(1, TOP, dtype=np.float32)
    inputs = np.concatenate([rms(trunk.embeddings[samples.tokens]), rms(samples.states)], axis=1)
    return Lesson(inputs, samples.next_states / trunk.out_norm, ids, chances)


def part(task: Lesson, chosen: npt.NDArray[np.bool_]) -> Lesson:
    """Return the chosen positions of a lesson."""
    return Lesson(*(getattr(task, name)[chosen] for name in Lesson.__dataclass_fields__))


def ridge(task: Lesson) -> Array:
    """Return the head that comes nearest to the trunk's next state, in closed form."""
    moment = task.inputs.T @ task.inputs
    moment[np.diag_indices_from(moment)] += RIDGE
    return np.linalg.solve(moment, task.inputs.T @ task.wanted).T.astype(np.float32)


def descend(task: Lesson, trunk: Trunk, head: Array, epochs: int) -> Array:
    """Return `head` after Adam (Kingma and Ba 2014) on the cross-entropy with the wanted distribution."""
    rng = np.random.default_rng(0)
    # Only tokens that some position wants compete: a tenth of the vocabulary, and ten times faster.
    vocabulary, columns = np.unique(task.ids, return_inverse=True)
    columns = columns.reshape(task.ids.shape)
    table = trunk.embeddings[vocabulary] * trunk.out_norm
    first, second = np.zeros_like(head), np.zeros_like(head)
    order = np.concatenate([rng.permutation(len(task.inputs)) for _ in range(epochs)])
    steps = len(order) // BATCH
    for step in range(steps):
        if step % 50 == 0:
            print(f"  step {step} of {steps}", flush=True)
        rows = order[step * BATCH : (step + 1) * BATCH]
        inputs = task.inputs[rows]
        raw = inputs @ head.T
        scale = np.sqrt((raw * raw).mean(1, keepdims=True) + 1e-6)
        state = raw / scale
        logits = state @ table.T
        powers = np.exp(logits - logits.max(1, keepdims=True))
        error = powers / powers.sum(1, keepdims=True)
        for rank in range(TOP):
            error[np.arange(len(rows)), columns[rows, rank]] -= task.chances[rows, rank]
        slope = error @ table / len(rows)
        slope = (slope - state * (slope * state).mean(1, keepdims=True)) / scale
        gradient = slope.T @ inputs
        first += (1 - BETA_1) * (gradient - first)
        second += (1 - BETA_2) * (gradient * gradient - second)
        rate = RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        corrected = first / (1 - BETA_1 ** (step + 1))
        head = head - rate * corrected / (np.sqrt(second / (1 - BETA_2 ** (step + 1))) + 1e-8)
    return head


def agreement(task: Lesson, trunk: Trunk, head: Array) -> float:
    """Return the mean probability that the trunk says the head's guess."""
    total = 0.0
    for begin in range(0, len(task.inputs), 1024):
        rows = slice(begin, begin + 1024)
        guess = ((rms(task.inputs[rows] @ head.T) * trunk.out_norm) @ trunk.embeddings.T).argmax(1)
        total += float(((task.ids[rows] == guess[:, None]) * task.chances[rows]).sum())
    return total / len(task.inputs)


# --- the measurement -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tally:
    """What llama-server counted over some replies."""

    drafted: int
    accepted: int
    tokens: int
    ms: float

    @property
    def line(self) -> str:
        """Return the tally for a table."""
        share = f"{self.accepted}/{self.drafted} = {self.accepted / self.drafted:.1%}" if self.drafted else "none"
        return f"{share:>20} accepted, {1000 * self.tokens / self.ms:6.1f} tok/s"


def reply_timings(client: httpx.Client, messages: Sequence[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """Return the server's timings of one chat reply."""
    body = {"messages": [{"role": role, "content": content} for role, content in messages]}
    sampling = {"top_k": 20, "top_p": 0.95, "min_p": 0, "seed": 4242, "max_tokens": 100}
    timings: dict[str, Any] = post(client, "/v1/chat/completions", **body, **sampling, **more)["timings"]
    return timings


def tally(timings: Sequence[dict[str, Any]]) -> Tally:
    """Add up the timings of some replies."""
    drafted, accepted = (sum(t.get(key, 0) for t in timings) for key in ("draft_n", "draft_n_accepted"))
    return Tally(drafted, accepted, sum(t["predicted_n"] for t in timings), sum(t["predicted_ms"] for t in timings))


def measure(binary: Path, model: Path, threads: int) -> None:
    """Print the acceptance and the speed on prompts that the head was not fitted on."""
    action = {"tool": {"enum": ["bash", "read"]}, "path": {"enum": ["app/main.py", "tests/test_main.py"]}}
    schema = {"type": "object", "properties": action, "required": list(action), "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": schema}}
    system = SYSTEM.format(tree="app/main.py\ntests/test_main.py")
    for name, options in (("none", ["none"]), ("draft-mtp", ["draft-mtp", "--spec-draft-n-max", "1"])):
        with serving(binary, model, threads, "-c", str(CONTEXT), "-np", "1", "--spec-type", *options) as client:
            for temperature in (0.0, 1.0):
                chats = [reply_timings(client, [("user", p)], temperature=temperature) for p in HELD_OUT_CHAT]
                print(f"{name:9} chat,         temperature {temperature}: {tally(chats).line}", flush=True)
            tasks = [[("system", system), ("user", text)] for text in HELD_OUT_TASKS]
            acts = [reply_timings(client, talk, temperature=1.0, response_format=form) for talk in tasks]
            print(f"{name:9} JSON actions, temperature 1.0: {tally(acts).line}", flush=True)
            codes = [reply_timings(client, [("user", text)], temperature=0.0) for text in HELD_OUT_CODE]
            print(f"{name:9} Python code,  temperature 0.0: {tally(codes).line}", flush=True)


def collected(options: argparse.Namespace, model: Path) -> Samples:
    """Return the samples that `--work` keeps, or fresh ones."""
    kept = options.work / "samples.npz" if options.work else None
    if kept and kept.is_file():
        with np.load(kept) as columns:
            return Samples(**{key: columns[key] for key in columns})
    samples = collect(options.server, model, options.threads)
    if kept:
        np.savez(kept, **{name: getattr(samples, name) for name in Samples.__dataclass_fields__})
    return samples


def main() -> None:
    """Collect, fit, save, measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server", type=Path, required=True, help="llama-server")
    parser.add_argument("--out", type=Path, required=True, help="where the head goes (.npy)")
    parser.add_argument("--model", type=Path, help="SmolLM2's GGUF; it is downloaded when not given")
    parser.add_argument("--work", type=Path, help="a directory that keeps the samples")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    begin = time.monotonic()
    model = options.model or smollm2.source(cache_dir(), lambda event: print(event.message))
    samples = collected(options, model)
    trunk = Trunk.load(model)
    task = lesson(samples, trunk)
    # Every eighth conversation is kept back, to see the fit from outside.
    apart = samples.talk % 8 == 7
    taught = part(task, ~apart)
    unseen = {"free": part(task, apart & (samples.said == -1)), "bound": part(task, apart & (samples.said >= 0))}
    print(f"{len(samples.tokens)} positions, {int((samples.said > -2).sum())} of them in replies")

    def show(name: str, head: Array) -> None:
        shares = ", ".join(f"{kind} {agreement(some, trunk, head):.1%}" for kind, some in unseen.items())
        print(f"{name}: probability of a draft in unseen conversations: {shares}", flush=True)

    head = ridge(taught)
    show("ridge", head)
    head = descend(taught, trunk, head, options.epochs)
    show("Adam", head)
    np.save(options.out, head.astype(np.float16))
    with tempfile.TemporaryDirectory() as folder:
        grown = Path(folder) / "mtp.gguf"
        smollm2.transplant(model, np.load(options.out), grown)
        measure(options.server, grown, options.threads)
    print(f"{(time.monotonic() - begin) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
