"""Marks are kept, the last one stands, and a measured quarantine outlives whatever is said after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_ab.errors import UserError
from agent_ab.review import marks
from agent_ab.review.marks import Mark, MarkKind
from agent_ab.store.store import Store
from tests.run_files import RUN, pair_of, played

PAIR = "transfer-repair-4242-0"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made, _ = played(tmp_path, pair_of())
    yield made
    made.close()


def test_every_mark_is_kept_and_the_last_one_of_a_flip_stands(store: Store) -> None:
    first = marks.add(store, RUN, Mark(PAIR, "check-3", MarkKind.ENVIRONMENT, "the disk was full"))
    other = marks.add(store, RUN, Mark(PAIR, "check-4", MarkKind.REAL, ""))
    last = marks.add(store, RUN, Mark(PAIR, "check-3", MarkKind.REAL, "no, it was not"))
    assert marks.history(store, RUN) == (first, other, last)
    assert set(marks.of_run(store, RUN)) == {other, last}
    assert marks.quarantined(store, RUN) == frozenset()


def test_a_quarantine_that_was_measured_outlives_later_marks(store: Store) -> None:
    reruns = {"baseline": ("pass", "pass", "pass"), "candidate": ("fail", "pass", "fail")}
    marks.add(store, RUN, Mark(PAIR, "check-3", MarkKind.FLAKY_CHECK, "", "", reruns, quarantined=True))
    later = marks.add(store, RUN, Mark(PAIR, "check-3", MarkKind.REAL, "I know better"))
    assert later.kind is MarkKind.REAL and later.quarantined
    assert marks.quarantined(store, RUN) == {("transfer-repair", "check-3")}
    (standing,) = marks.of_run(store, RUN)
    assert standing.reruns == {arm: list(verdicts) for arm, verdicts in reruns.items()}


@pytest.mark.parametrize(
    ("reruns", "disagrees"),
    [
        ({"baseline": ["pass"] * 3, "candidate": ["fail"] * 3}, False),
        ({"baseline": ["pass", "fail", "pass"], "candidate": ["fail"] * 3}, True),
    ],
)
def test_only_a_check_that_differs_on_one_snapshot_disagrees_with_itself(
    reruns: dict[str, list[str]], disagrees: bool
) -> None:
    assert marks.disagrees(reruns) is disagrees


def test_a_mark_on_a_pair_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(UserError):
        marks.add(store, RUN, Mark("nothing", "check-3", MarkKind.REAL, ""))
