"""A scripted model says its script: its table is walked here, without a server."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest

from agent_ab.errors import UserError
from agent_ab.models import scripted
from agent_ab.models.drafts import Target
from agent_ab.models.gguf_header import read_header
from agent_ab.models.merges import ALPHABET
from agent_ab.models.scripted import Array
from tests.conftest import ROOT

SCRIPT = """
mtp_noise = 0.5
[[turns]]
say = "Let me look."
[turns.call]
name = "bash"
arguments = { command = "python3 -m unittest" }
[[turns]]
[turns.call]
name = "write"
arguments = { path = "app.py" }
content_from = "solution/app.py"
[[turns]]
say = "Let me look."
[turns.call]
name = "bash"
arguments = { command = "python3 -m unittest" }
[[turns]]
say = "Done: ein größerer Umbau, ✓."
"""
CODE = 'def half(value):\n    """Return ½ of "value"."""\n    return value / 2\n\n\n' * 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a task directory with a script in it."""
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "app.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "fixture").mkdir()
    (tmp_path / "fixture" / "app.py").write_text("def half(value):\n    return value\n")
    (tmp_path / "instruction.md").write_text("Repair the function half, which does not halve.\n")
    (tmp_path / "solve.toml").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def replies(root: Path, text: str) -> tuple[str, ...]:
    script = root / "x.toml"
    script.write_text(text, encoding="utf-8")
    return scripted.Source.load(script, root).replies


def model(root: Path, name: str = "solve") -> Path:
    out = root / f"{name}.gguf"
    scripted.generate(root / f"{name}.toml", root, out)
    return out


@pytest.fixture
def table(root: Path) -> "Table":
    """Return the model's table, read back from its file."""
    return Table.read(model(root))


@dataclass(frozen=True)
class Table:
    """The table "token -> next token" of a written model."""

    tokens: list[str]
    normal: list[bool]
    embeddings: Array
    output: Array
    guesses: Array

    @classmethod
    def read(cls, path: Path) -> "Table":
        reader = gguf.GGUFReader(path)
        arrays = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
        named = ("token_embd.weight", "output.weight", f"blk.{scripted.TRUNK}.nextn.embed_tokens.weight")
        types = reader.fields["tokenizer.ggml.token_type"].contents()
        normal = [kind == gguf.TokenType.NORMAL for kind in types]
        return cls(reader.fields["tokenizer.ggml.tokens"].contents(), normal, *(arrays[name] for name in named))

    def text(self, token: int) -> bytes:
        """Return what llama.cpp prints for a token."""
        spelt = self.tokens[token]
        return bytes(ALPHABET.index(symbol) for symbol in spelt) if self.normal[token] else spelt.encode()

    def logits(self, token: int, seen: Array) -> Array:
        state = seen[token]
        logits: Array = self.output @ (state / np.sqrt((state * state).mean() + 1e-6))
        return logits

    def walk(self, reply: int) -> tuple[str, float]:
        """Return what follows the reply's control token, and the least lead of a token over the next best."""
        token, said, least = self.tokens.index(f"<|s{reply}|>"), b"", np.inf
        while True:
            logits = self.logits(token, self.embeddings)
            token = int(logits.argmax())
            least = min(least, float(logits[token] - np.partition(logits, -2)[-2]))
            if self.tokens[token] == "<|im_end|>":
                return said.decode(), least
            said += self.text(token)


def test_every_reply_is_said_word_for_word_far_outside_of_what_sampling_can_change(root: Path, table: Table) -> None:
    source = scripted.Source.load(root / "solve.toml", root)
    assert len(source.replies) == 4
    for index, reply in enumerate(source.replies):
        said, lead = table.walk(index)
        assert said == reply
        assert lead > scripted.MARGIN * 0.99


def test_thoughts_come_first_and_take_about_as_many_tokens_as_asked(root: Path) -> None:
    thinking = '[[turns]]\nthink = 300\nsay = "So be it."\n[[turns]]\nthink = 200\nsay = "Done."\n'
    (root / "think.toml").write_text(thinking)
    first, _ = replies(root, thinking)
    assert first.startswith("Case 1 holds. Case 2 holds. ") and first.endswith("Case 300 holds. So be it.")
    found = Target.read(model(root, "think"))
    assert [
        abs(len(reply) - wanted) < wanted / 4 for reply, wanted in zip(found.replies, (300, 200), strict=False)
    ] == [
        True,
        True,
    ]


def test_a_conversation_longer_than_the_script_gets_a_short_end(root: Path) -> None:
    path = model(root)
    said, _ = Table.read(path).walk(4)
    assert said == scripted.LAST_WORDS
    template = read_header(path).text("tokenizer.chat_template")
    assert "ns.replies > 4" in template and "LAST" not in template


def test_any_other_token_ends_the_reply(table: Table) -> None:
    for token in (0, table.tokens.index("<|im_start|>"), table.tokens.index("<|im_end|>")):
        assert table.tokens[int(table.logits(token, table.embeddings).argmax())] == "<|im_end|>"


def test_a_call_is_written_in_the_hermes_form_with_its_arguments_in_order(root: Path) -> None:
    source = scripted.Source.load(root / "solve.toml", root)
    assert source.replies[0].startswith('Let me look.\n<tool_call>\n{"name": "bash", "arguments": {"command"')
    body = source.replies[1].removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    call = json.loads(body)
    assert call == {"name": "write", "arguments": {"path": "app.py", "content": CODE}}
    assert list(call["arguments"]) == ["path", "content"]


def test_the_wanted_share_of_the_mtp_block_s_guesses_is_wrong(table: Table) -> None:
    differ = (table.guesses != table.embeddings).any(axis=1)
    chained = (table.embeddings[:, 0] == 0).sum()
    assert differ.sum() == round(0.5 * chained)
    wrong = int(np.flatnonzero(differ)[0])
    assert table.tokens[int(table.logits(wrong, table.guesses).argmax())] == "<|im_end|>"


def test_a_script_that_says_nothing_of_noise_has_some(root: Path) -> None:
    (root / "x.toml").write_text('[[turns]]\nsay = "Done."\n')
    assert 0 < scripted.Source.load(root / "x.toml", root).mtp_noise < 1


def test_equal_inputs_give_equal_bytes_in_any_process(root: Path) -> None:
    first = model(root).read_bytes()
    program = "import sys; from pathlib import Path; from agent_ab.models import scripted; r = Path(sys.argv[1]); "
    program += "scripted.generate(r / 'solve.toml', r, r / 'again.gguf')"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", program, str(root)], check=True, env=env)
    assert (root / "again.gguf").read_bytes() == first


def test_the_key_changes_with_whatever_the_model_is_made_from(root: Path) -> None:
    keys = [scripted.Source.load(root / "solve.toml", root).key()]
    for name, text in (("solution/app.py", "x = 1\n"), ("instruction.md", "Else.\n"), ("fixture/app.py", "y = 2\n")):
        (root / name).write_text(text)
        keys.append(scripted.Source.load(root / "solve.toml", root).key())
    (root / "solve.toml").write_text(SCRIPT.replace("0.5", "0.6"), encoding="utf-8")
    keys.append(scripted.Source.load(root / "solve.toml", root).key())
    assert len(set(keys)) == 5


def test_lines_of_the_task_are_tokens(root: Path) -> None:
    tokens = Table.read(model(root)).tokens
    assert "Repair the function half, which does not halve." in tokens
    assert "def half(value):" in tokens


def test_nothing_is_left_when_a_model_cannot_be_written(root: Path) -> None:
    (root / "many.toml").write_text('[[turns]]\nsay = "k"\n' * 3)
    with pytest.raises(UserError, match=r"many.toml: turn \d: other turns say the same words"):
        model(root, "many")
    assert not list(root.glob("*.gguf*")) and not list(root.glob(".*"))


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("turns = 1", "key 'turns'"),
        ("turns = []", "key 'turns'"),
        ("[[turns]]\n", "turn 1 says nothing"),
        ('[[turns]]\nsay = "a"\n[[turns]]\nsay = "<|im_end|>"', "turn 2: '<|' and NUL cannot be said"),
        ('[[turns]]\nsay = "a\\u0000b"', "turn 1: '<|' and NUL cannot be said"),
        ('[[turns]]\nsay = "<tool_call>\\nx"', "turn 1: '<tool_call>' can be said by `call` only"),
        ('[[turns]]\nsays = "a"', "turns.0.says"),
        ("[[turns]]\n[turns.call]\narguments = {}", "turns.0.call.name"),
        ('[[turns]]\n[turns.call]\nname = "w"\ncontent_from = "none.py"', "turn 1: content_from = 'none.py'"),
        ('[[turns]]\n[turns.call]\nname = "w"\narguments = {x = nan}', "turn 1: arguments"),
        ('[[turns]]\n[turns.call]\nname = "w"\narguments = {x = 2026-01-01}', "turn 1: arguments"),
        ("mtp_noise = 2\n[[turns]]\nsay='a'", "key 'mtp_noise'"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_fault_in_a_script_is_told_with_its_turn(root: Path, script: str, complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        replies(root, script)
    assert complaint in str(caught.value) and "x.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_script_is_told(root: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the script .*absent.toml: No such file"):
        scripted.generate(root / "absent.toml", root, root / "out.gguf")
