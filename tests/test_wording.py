"""Numbers as people read them; strangers' text made harmless."""

import pytest

from agent_ab import wording


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (99.9, "99.9 s"),
        (431.2, "7 min 11 s"),
        (3599.6, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_are_told_in_the_unit_that_fits(value: float | None, words: str) -> None:
    assert wording.seconds(value) == words


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(None, "-"), (0.62, "38 % less"), (1.0, "equal"), (1.004, "equal"), (1.27, "27 % more"), (5.7, "5.7 times")],
)
def test_a_ratio_is_told_as_what_it_changes(ratio: float | None, words: str) -> None:
    assert wording.change(ratio) == words


def test_counts_have_their_noun_and_gaps() -> None:
    assert wording.counted(1, "pair") == "1 pair"
    assert wording.counted(1234, "pair") == "1 234 pairs"
    assert wording.listed({"stop": 1, "tool_calls": 7}) == "tool_calls 7, stop 1"
    assert wording.listed({}) == "-"
    assert (wording.percent(0.733), wording.rate(36.0), wording.ratio(0.5)) == ("73.3 %", "36.0 tok/s", "0.50 x")
    assert (wording.percent(None), wording.rate(None), wording.ratio(None), wording.thousands(None)) == ("-",) * 4


def test_what_steers_a_terminal_or_turns_the_reading_is_made_visible() -> None:
    assert wording.visible("\x1b[31mred\u202e\u2066 \ufeff\ud800") == "\u241b[31mred<U+202E><U+2066> <U+FEFF><U+D800>"
    assert wording.visible("plain, naïve, 漢字") == "plain, naïve, 漢字"


@pytest.mark.parametrize(
    "text", ["::error file=x::boom", "  ::set-output name=a::b", "fine\n::warning::x", "a ##[command]rm", ":::group::x"]
)
def test_no_line_is_a_workflow_command(text: str) -> None:
    line = wording.plain_line(text)
    assert "::" not in line and "##[" not in line and "\n" not in line


def test_a_line_is_cut_where_asked() -> None:
    assert wording.plain_line("abcdefgh", 6) == "abc..."


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a", "`a`"),
        ("", ""),
        ("`x`", "`` `x` ``"),
        ("a``b", "```a``b```"),
        ("a | b", "`a \\| b`"),
        ("[x](http://evil) <b> @all", "`[x](http://evil) <b> @all`"),
    ],
)
def test_strangers_text_is_a_code_span_in_markdown(text: str, code: str) -> None:
    assert wording.markdown_code(text) == code


def test_long_lists_of_names_are_cut_with_a_count() -> None:
    names = [f"{number}.txt" for number in range(20_014)]
    assert wording.named([]) == "-" and wording.named(names[:20]).endswith(", 19.txt")
    assert wording.named(names).endswith(", 19.txt and 19 994 more")


def test_long_lists_and_texts_in_data_are_cut_with_their_size_and_all_else_stays() -> None:
    names = [f"{number}.txt" for number in range(20_014)]
    data = {
        "files": names,
        "text": "x" * 5_000_000,
        "rows": [{"n": n} for n in range(500)],
        "few": names[:100],
        "no": None,
    }
    cut = wording.capped(data)
    assert len(cut["files"]) == 101 and cut["files"][-1] == "and 19914 more"
    assert len(cut["text"]) < 100_100 and cut["text"].endswith("... (5000000 characters in all)")
    assert (cut["rows"], cut["few"], cut["no"]) == (data["rows"], data["few"], None)
