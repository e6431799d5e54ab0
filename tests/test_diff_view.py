"""What `agent-ab diff` shows: readable at 100 columns, and whole as data."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from agent_ab.divergence import parting
from agent_ab.divergence.aftermath import follow
from agent_ab.divergence.divergence import between
from agent_ab.divergence.view import PairDiff, cut, data, patch_diff, plain, view
from agent_ab.model import Arm, CheckStatus, ExchangeLog, Json, Patch
from agent_ab.pair.pair import judge
from tests.builders import attempt, check, pair
from tests.conversations import TURNS, Turn, conversation, golden, golden_tokens, words

PATCH = """diff --git a/a.py b/a.py
index 111..222 100644
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@ def f():
 same
-old
+new
"""


def diff(left: ExchangeLog, right: ExchangeLog, patches: tuple[str, str] = (PATCH, PATCH)) -> PairDiff:
    failed = replace(check("atomicity", CheckStatus.FAIL), reason="expected 900, got 650")
    arms = (
        attempt(Arm.BASELINE, log=left, patch=Patch(patches[0], ("a.py",), True), checks=(check("atomicity"),)),
        attempt(Arm.CANDIDATE, 9, log=right, patch=Patch(patches[1], ("a.py",), True), checks=(failed,)),
    )
    found = between(*arms, words)
    return PairDiff(judge(pair(*arms)), left, right, found, follow(*arms, found.raw.common))


def shown(found: PairDiff, *, full: bool = False) -> str:
    console = Console(width=100, file=io.StringIO())
    with console.capture() as captured:
        console.print(view(found, full=full))
    return captured.get()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ["known-bad", "cpu-demo", "placebo"])
def test_a_real_pair_fits_in_100_columns(name: str, full: bool) -> None:
    assert max(len(line) for line in shown(diff(*golden(name)), full=full).splitlines()) <= 100


def test_the_known_bad_pair_shows_where_it_parts_both_replies_the_flip_and_how_it_went_on() -> None:
    logs = golden("known-bad")
    found = diff(*logs)
    arms = [attempt(arm, log=log) for arm, log in zip(Arm, logs, strict=True)]
    text = shown(replace(found, parting=between(arms[0], arms[1], golden_tokens("known-bad"))))
    assert "as recorded: model: exchange 1, token 9 of the reply" in text
    assert "exchange 0 (equal in both)" in text
    assert "exchange 1 (here they part)" in text
    assert "> read path=wallet/accounts.py" in text
    assert "pass: as the rule says" in text
    assert "fail: expected 900, got 650" in text
    assert "patches: equal in both" in text
    assert [line.split() for line in text.splitlines() if line.startswith("malformed")] == [
        ["malformed", "tool", "calls", "0", "3"]
    ]


def test_both_views_are_shown_when_they_differ() -> None:
    text = shown(diff(*golden("placebo")))
    assert "as recorded: environment: exchange 2, $.messages[15].content: a duration" in text
    assert "normalised: identical" in text
    assert "passed over (durations)" in text


def test_what_a_model_wrote_is_shown_as_text_and_never_obeyed() -> None:
    evil = "[bold]x[/bold] [link=file:///x]y[/link] \x1b[31mred\x1b[0m \u202eback [/nothing]"
    text = shown(diff(conversation((Turn(evil, evil, evil), Turn(evil))), conversation((Turn("fine"),))), full=True)
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text
    assert "\u240b" not in text and "\u241b[31mred" in text
    assert "<U+202E>back" in text


def test_long_conversations_are_cut_and_say_so_unless_all_is_asked_for() -> None:
    many = [Turn(f"Turn {i}.", f"echo {i}", f"{i}") for i in range(20)]
    found = diff(conversation(many), conversation([replace(many[0], says="Other."), *many[1:]]))
    assert "14 more exchanges left out" in shown(found)
    assert "Turn 19." not in shown(found)
    assert "Turn 19." in shown(found, full=True)


def test_a_request_that_is_equal_is_shown_once_and_one_that_differs_on_both_sides() -> None:
    equal = shown(diff(conversation(), conversation((replace(TURNS[0], says="Other."), *TURNS[1:]))))
    assert equal.count("Repair it.") == 1
    text = shown(diff(conversation(), conversation((replace(TURNS[0], prints="c.py"), *TURNS[1:]))))
    assert [line.split() for line in text.splitlines() if "c.py" in line][-1] == ["tool:", "a.py", "tool:", "c.py"]


def test_an_arm_that_ended_is_shown_as_nothing() -> None:
    text = shown(diff(conversation(), conversation(TURNS[:1])))
    assert "environment: after 1 equal exchanges" in text
    assert "exchange 2" in text


def test_odd_requests_are_told() -> None:
    log = conversation()
    crowded = ExchangeLog((log.exchanges[0], replace(log.exchanges[1], concurrent=True), log.exchanges[2]), ())
    assert "candidate: exchange 1: concurrent request: another request was open" in shown(diff(log, crowded))


def test_two_patches_are_compared_without_their_blob_ids_and_line_numbers() -> None:
    moved = PATCH.replace("111..222", "333..444").replace("-1,3 +1,3", "-9,3 +9,3")
    assert patch_diff(PATCH, moved) == []
    other = patch_diff(PATCH, PATCH.replace("+new", "+newer"))
    assert [line for line in other if line[:1] in "+-" and line[:3] not in ("+++", "---")] == ["-+new", "++newer"]
    text = shown(diff(conversation(), conversation(), (PATCH, PATCH.replace("+new", "+newer"))))
    assert "patch of the baseline" in text and "from the one patch to the other" in text
    assert "(only line numbers)" in shown(diff(conversation(), conversation(), (PATCH, moved)))


def test_an_empty_patch_is_not_compared() -> None:
    text = shown(diff(conversation(), conversation(), (PATCH, "")))
    assert "(empty)" in text and "from the one patch" not in text


def test_the_data_holds_everything_uncut() -> None:
    long = "line\n" * 500
    logs = (
        conversation((Turn("I look.", "ls", long), Turn("Done."))),
        conversation((Turn("I see.", "ls", long), Turn("Done."))),
    )
    found = diff(*logs, patches=(PATCH, PATCH.replace("+new", "+newer")))
    made: Json = json.loads(json.dumps(data(found)))
    assert (made["schema"], made["name"], made["outcome"]) == (1, found.pair.name, "BROKEN")
    assert parting.from_json(made["divergence"]) == found.parting
    assert made["sentence"].startswith("model: exchange 0, token 1 of the reply")
    assert [(turn["exchange"], turn["common"]) for turn in made["transcript"]] == [(0, False), (1, False)]
    assert made["transcript"][1]["baseline"]["asked"] == [{"role": "tool", "text": long}]
    assert made["transcript"][0]["candidate"]["calls"][0] == {
        "name": "bash",
        "arguments": {"command": "ls"},
        "text": '{"command": "ls"}',
    }
    assert made["flips"] == [
        {
            "check": "atomicity",
            "rule": "It works.",
            "baseline": {"status": "pass", "reason": "as the rule says"},
            "candidate": {"status": "fail", "reason": "expected 900, got 650"},
        }
    ]
    assert made["patches"]["baseline"] == PATCH and "++newer" in made["patches"]["between"]
    assert made["odd_requests"] == {"baseline": [], "candidate": []}
    assert made["aftermath"]["tool_distance"] == 0


def test_texts_are_cut_in_their_middle() -> None:
    assert cut("a\nb\nc\n", 3) == "a\nb\nc"
    assert cut("\n".join("abcdefgh"), 4) == "a\nb\n[... 5 lines left out ...]\nh"
    assert cut("\n".join("abcdefgh"), None).count("\n") == 7


def test_only_what_steers_a_terminal_is_rewritten() -> None:
    assert plain("a\tb\nc é 你 ✓") == "a\tb\nc é 你 ✓"
    assert plain("\r\x00\x9b") == "\u240d\u2400<U+009B>"
