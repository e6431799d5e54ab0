"""Both control suites' pages fit every screen, leave nothing out of sight, and ask nothing of anybody."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import needs
from tests.browser.conftest import WIDTHS, Watched, keep, watched

LAYOUT = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")
PROFILES = ("scripted-known-bad", "scripted-placebo")


def fits(found: Watched, width: int) -> None:
    """Fail when the page scrolls sideways or when text cannot be seen."""
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert found.page.evaluate("document.body.scrollWidth") <= width
    faults = found.page.evaluate(LAYOUT)
    assert not faults, "\n".join(faults[:20])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_page_fits_and_stays_by_itself(browser: Browser, pages: dict[str, Path], profile: str, width: int) -> None:
    found = watched(browser, width, "dark" if width == 1024 else "light")
    found.open(pages[profile])
    fits(found, width)
    keep(found.page, f"{profile}-{width}")
    # And with everything unfolded.
    found.unfold()
    fits(found, width)
    found.stays_quiet(pages[profile])
    found.page.context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_one_pair_fits_and_stays_by_itself(browser: Browser, pages: dict[str, Path], width: int) -> None:
    found = watched(browser, width, "light" if width == 1024 else "dark")
    found.open_pair(pages["scripted-known-bad"], 1)
    fits(found, width)
    assert found.page.evaluate(
        "(() => { const b = document.querySelector('.body'); return b.scrollWidth <= b.clientWidth; })()"
    )
    keep(found.page, f"pair-{width}")
    found.stays_quiet(pages["scripted-known-bad"])
    found.page.context.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """Return axe-core's script; skip, with what to do about it, where it cannot be had."""
    if not needs.axe().is_file():
        pytest.skip("NO AXE-CORE: `python -m tests.browser.needs` fetches it once, with npm")
    return needs.axe().read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("where", "scheme"),
    (("scripted-known-bad", "light"), ("scripted-placebo", "dark"), ("a pair", "light"), ("a pair", "dark")),
)
def test_axe_finds_no_serious_fault(
    browser: Browser, pages: dict[str, Path], axe: str, where: str, scheme: str
) -> None:
    found = watched(browser, 1024, scheme)
    if where == "a pair":
        found.open_pair(pages["scripted-known-bad"], 1)
    else:
        found.open(pages[where])
        found.unfold()
    session = found.page.context.new_cdp_session(found.page)
    # Not as a script of the page: its policy would forbid that.
    session.send("Runtime.evaluate", {"expression": axe})
    part = "'dialog'" if where == "a pair" else "document"
    faults = found.page.evaluate(f"axe.run({part}, {{resultTypes: ['violations']}}).then((found) => found.violations)")
    serious = [
        f"{fault['id']}: {node['html'][:150]} {node.get('failureSummary', '')[:200]}"
        for fault in faults
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"][:3]
    ]
    assert serious == []
    found.page.context.close()
