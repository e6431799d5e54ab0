"""docs/reading-a-report.md knows the page. Its commands are run by test_docs.py."""

from tests.command import ROOT

DOC = (ROOT / "docs" / "reading-a-report.md").read_text(encoding="utf-8")


def test_every_plot_of_the_page_is_explained() -> None:
    for name in ("wall time of each pair", "time ratio", "where the time goes", "speed and acceptance", "evidence"):
        assert f"| {name}" in DOC
