"""Generated drafts: what a reply makes of them, and that the chosen acceptance is what they are made for."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from agent_ab.errors import UserError
from agent_ab.models import drafts, models, scripted
from agent_ab.models.drafts import Played, Target, Wanted, choose_wrong, expected, play, played, total
from tests.gguf_files import tiny
from tests.tiny_task import tiny_task

SCRIPT = """
mtp_noise = 0.25
[[turns]]
think = 80
say = "The sum lacks its second number, and nothing else does."
[turns.call]
name = "write"
arguments = { path = "calc.py" }
content_from = "solution/calc.py"
[[turns]]
think = 40
say = "Both numbers are in the sum now."
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a scripted model of about 150 said tokens."""
    root = tiny_task(tmp_path_factory.mktemp("drafts"), {"scripts/solve.toml": SCRIPT}).root
    out = root / "target.gguf"
    scripted.generate(root / "scripts" / "solve.toml", root, out)
    return out


@pytest.fixture(scope="module")
def found(target: Path) -> Target:
    """Return what a draft must know of it."""
    return Target.read(target)


@pytest.mark.parametrize(
    ("reply", "n_max", "drafted", "accepted"),
    [
        # Four more tokens and an end that the draft does not see coming: three accepted, two of the target's own.
        ([True, True, True, True, False], 3, 6, 3),
        # The end is the last of a draft, and accepted.
        ([True, True, True], 3, 3, 3),
        # The end is in the middle of a draft: it counts as the target's own.
        ([True, True, True, True, True], 3, 6, 3),
        ([False, True, True, False], 2, 4, 2),
        ([False] * 4, 1, 4, 0),
        ([], 3, 0, 0),
    ],
)
def test_a_reply_is_played_as_llama_server_counts_it(
    reply: list[bool], n_max: int, drafted: int, accepted: int
) -> None:
    assert play(reply, n_max) == Played(drafted, accepted)


def test_acceptance_of_nothing_is_nothing() -> None:
    assert total([]).acceptance == 0.0


def test_the_table_of_a_scripted_model_is_read_back(found: Target) -> None:
    assert len(found.replies) == 3
    assert [reply[1:] == tuple(dict.fromkeys(reply[1:])) for reply in found.replies] == [True] * 3
    said = sum(len(reply) - 1 for reply in found.replies)
    assert len(found.following) == said
    share = len(found.mtp_wrong) / said
    assert 0.2 < share < 0.3


def test_each_said_token_is_the_rotation_of_the_one_before() -> None:
    codes = scripted.orbit(500)
    assert np.allclose(codes[1:], codes[:-1] @ scripted.rotation().T, atol=1e-4)
    likeness = codes @ codes.T - np.eye(500)
    assert likeness.max() < 0.8


@pytest.mark.parametrize("kind", drafts.KINDS)
@pytest.mark.parametrize(("n_max", "acceptance"), [(3, 0.7), (7, 0.4)])
def test_the_wrong_rows_are_chosen_so_that_the_acceptance_is_the_wanted_one(
    found: Target, kind: str, n_max: int, acceptance: float
) -> None:
    wrong = choose_wrong(found, Wanted(kind, n_max, acceptance))
    assert abs(total(played(found, kind, n_max, wrong)).acceptance - acceptance) < 0.02


def test_what_must_come_out_is_worked_out_from_the_file(target: Path, found: Target) -> None:
    wanted = Wanted("draft-eagle3", 3, 0.7)
    assert expected(target, wanted) == played(found, wanted.kind, 3, choose_wrong(found, wanted))


def test_an_mtp_block_has_the_acceptance_of_its_own_noise(target: Path) -> None:
    one, four = (total(expected(target, Wanted("draft-mtp", n, 1.0))).acceptance for n in (1, 4))
    assert 0.65 < one < 0.85 and four < one


@pytest.mark.parametrize(("kind", "architecture"), drafts.KINDS.items())
def test_a_draft_has_its_architecture_and_the_targets_vocabulary(
    target: Path, tmp_path: Path, kind: str, architecture: str
) -> None:
    out = tmp_path / "draft.gguf"
    drafts.write(target, Wanted(kind, 3, 0.7), out)
    assert models.inspect(out).architecture == architecture
    theirs, own = (gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].contents() for path in (target, out))
    assert theirs == own


def test_equal_drafts_have_equal_names() -> None:
    one = Wanted("draft-eagle3", 3, 0.7)
    assert one.key() == Wanted("draft-eagle3", 3, 0.7).key()
    assert one.key() != Wanted("draft-eagle3", 4, 0.7).key() != Wanted("draft-dflash", 4, 0.7).key()
    assert (one.block, Wanted("draft-dflash", 16, 0.7).block) == (8, 17)


def test_no_draft_is_generated_for_another_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no scripted model"):
        drafts.write(tiny(tmp_path / "other.gguf"), Wanted("draft-simple", 3, 0.7), tmp_path / "draft.gguf")
