"""llama-cpp-python on the server's libraries: rows, going back, grammars. In a process of its own, as the judge has it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_ab.engine import engine as engines
from agent_ab.models import models
from tests.command import ROOT

PROGRAM = """
import json, sys
import numpy as np
from agent_ab.judge.binding import Binding
from agent_ab.judge.case import Loading

target = Binding(Loading(sys.argv[1], 1024, 64, 32, 0, 2, "f16", "f16", True, 2))
prompt = target.tokenize(sys.argv[2], True)
row = target.begin(prompt)
said = []
while len(said) < 12:
    said.append(int(row.argmax()))
    row = target.feed(said[-1:])[0]
alone = row.tolist()
anew = target.begin(prompt)
crowd = np.concatenate([target.feed(said[i : i + 4]) for i in range(0, 12, 4)])
settings = {"grammar": 'root ::= "yes" | "no"'}
grammar = target.grammar(settings, False)
words = {word: target.tokenize(word, False)[0] for word in ("y", "n", "x")}
allowed = {word: grammar.allows(token) for word, token in words.items()}
mask = grammar.mask()
trigger = {"grammar_lazy": True, "grammar_triggers": [{"type": 1, "value": "x"}]}
lazy = target.grammar({"grammar": 'root ::= "x" "yes"', **trigger}, True)
wrong = target.grammar({"grammar": 'root ::= "yes"', **trigger}, True)
print(json.dumps({
    "text": b"".join(target.pieces[token] for token in said).decode(),
    "same": bool((anew == target.begin(prompt)).all()),
    "close": float(np.abs(crowd[-1] - np.array(alone)).max()),
    "allowed": allowed,
    "mask": [int(mask.sum()), bool(mask[words["y"]]), bool(mask[words["x"]])],
    "forbidden": grammar.accept(words["x"]),
    "accepted": grammar.accept(words["y"]),
    "lazy": [lazy.accept(words["n"]), lazy.accept(words["x"]), lazy.allows(words["n"]), lazy.allows(words["y"])],
    "wrong": [wrong.accept(words["n"]), wrong.accept(words["x"])],
    "none": target.grammar({"grammar": "%llguidance"}, False) is None,
    "ends": [target.pieces[token].decode() for token in target.ends],
}))
"""


def run(engine: engines.Engine, model: Path, prompt: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model), prompt],
        env={"LLAMA_CPP_LIB_PATH": str(engine.binary.parent), "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_binding_reads_goes_back_and_knows_grammars(engine: engines.Engine, scripted: models.Model) -> None:
    found = run(engine, scripted.path, "Do it." * 20 + "<|im_start|>assistant\n<|s0|>")
    # The scripted model is a hybrid, whose memory cannot go back: it is read anew, and comes to the same.
    assert found["text"].startswith("First I look at what is there.")
    assert found["same"] and found["close"] < 0.01
    assert found["allowed"] == {"y": True, "n": True, "x": False}
    assert found["mask"][1:] == [True, False] and 2 <= found["mask"][0] < 20
    assert (found["forbidden"], found["accepted"]) == (False, True)
    # Before its trigger a lazy grammar allows everything; one that could not go on would end the process.
    assert found["lazy"] == [True, True, False, True] and found["wrong"] == [True, False] and found["none"]
    assert "<|im_end|>" in found["ends"]
