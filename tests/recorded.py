"""Both control suites, 4 tasks x 2 seeds, as they were played; and their pages.

Played by `agent-ab run --profile scripted-known-bad` and `--profile scripted-placebo`, packed by
`tar cJf tests/golden/suites.tar.xz runs.db runs` after `sqlite3 runs.db "pragma wal_checkpoint(truncate)"`.
"""

import tarfile
from contextlib import closing
from pathlib import Path

from agent_ab.report.page import gather
from agent_ab.store.store import Store
from tests.command import ROOT


def unpack(place: Path) -> Path:
    """Lay runs.db and runs/ into the directory `place` and return it."""
    with tarfile.open(ROOT / "tests" / "golden" / "suites.tar.xz") as packed:
        # Pythons before 3.11.4 lack the filter.
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        packed.extractall(place)
    return place


def pages(place: Path) -> dict[str, Path]:
    """Write the page of each suite in `place`, and return them by their profile's name."""
    made = {}
    with closing(Store(place / "runs.db")) as store:
        for run in store.runs():
            subject = gather.subject_of(store, run.id, place / "runs.db", place / "runs")
            made[run.profile] = place / f"{run.profile}.html"
            gather.write_page(subject, place / "runs", made[run.profile])
    return made
