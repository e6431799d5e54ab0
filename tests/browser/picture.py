"""Make docs/images/report.png, the README's picture of the page: `python -m tests.browser.picture`.

It is the page of the recorded known-bad suite (tests/golden/suites.tar.xz: 4 tasks x 2 seeds, played for real). It needs
Chromium; `make browser-deps` gets it.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests import recorded
from tests.browser.needs import chromium

ROOT = Path(__file__).resolve().parent.parent.parent
PROFILE = "scripted-known-bad"
TARGET = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1200, 1000


def take(browser: Browser, page: Path, target: Path) -> None:
    """Photograph the first screen of the report `page`."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.screenshot(path=target)
    context.close()


def main() -> None:
    """Make the picture."""
    program = chromium()
    if program is None:
        sys.exit("no Chromium: `make browser-deps` gets it")
    with tempfile.TemporaryDirectory(prefix="agent-ab-picture-") as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        take(browser, recorded.pages(recorded.unpack(Path(place)))[PROFILE], TARGET)
        browser.close()
    print(TARGET)


if __name__ == "__main__":
    main()
