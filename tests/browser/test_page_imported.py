"""The first page that a new user sees, `agent-ab demo`: imported numbers, without a grid of checks."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.conftest import watched
from tests.command import agent_ab


def test_the_page_of_imported_numbers_works_whole_and_stays_quiet(browser: Browser, tmp_path: Path) -> None:
    published = Path(__file__).parents[2] / "agent_ab" / "data" / "published_experiment.toml"
    assert agent_ab(tmp_path, "import", published, "--db", "p.db").status == 0
    assert agent_ab(tmp_path, "report", "--db", "p.db", "--html", "p.html").status == 0
    page = tmp_path / "p.html"
    found = watched(browser)
    found.open(page)
    expect(found.page.locator("#theme")).to_be_visible()
    expect(found.page.locator(".filter")).to_be_visible()
    found.open_pair(page, 8)
    found.stays_quiet(page)
    found.page.context.close()
