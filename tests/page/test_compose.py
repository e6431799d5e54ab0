"""A run and its verdict -> what is on the page."""

from agent_ab.report.page.compose import compose
from tests.page.runs import TASKS, played, subject


def test_every_section_has_its_content() -> None:
    page = compose(subject([played(n, candidate=9, ratio=0.8) for n in range(8)]), (), "agent_ab test")
    assert set(page.plots) == {"wall", "ratio", "split", "checks", "evidence", "speed", "acceptance"}
    assert [task.task for task in page.grid] == list(TASKS) and len(page.pairs) == 8
    assert [flip.check_id for flip in page.flips] == ["check-9"] * 4
    assert page.proof and page.settings.rows and page.hashes.rows and page.commands and page.machine
    assert page.kinds is not None and page.numbers is not None and page.made == "agent_ab test"
    assert page.void_lines == () and page.stated is None


def test_the_same_run_gives_the_same_page() -> None:
    pairs = [played(n, candidate=10 - n % 2) for n in range(8)]
    assert compose(subject(pairs), (), "x") == compose(subject(list(pairs)), (), "x")


def test_without_a_verdict_the_page_says_so() -> None:
    from dataclasses import replace

    page = compose(replace(subject([played(0)]), verdict=None), (), "x")
    assert (page.head.decision, page.head.tone) == ("NO VERDICT", "no-verdict")
    assert page.numbers is None and "evidence" not in page.plots
