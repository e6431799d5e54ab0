"""The pages that the browser tests open, and the browser. The runs were played for real and recorded; see `recorded_runs`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests import recorded
from tests.browser import needs

ROOT = Path(__file__).parent.parent.parent
ARTIFACTS = ROOT / "artifacts" / "browser"
"""Where screenshots stay; git ignores it."""
WIDTHS = (390, 1024, 1600)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this directory as `browser`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


@dataclass
class Watched:
    """A browser page, and everything that it must not do."""

    page: Page
    said: list[str] = field(default_factory=list)
    """What came to the console, and errors."""
    asked: list[str] = field(default_factory=list)
    """Every address that was requested."""

    def open(self, file: Path, fragment: str = "") -> None:
        """Open `file` and wait until it can be used."""
        self.page.goto(file.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def open_pair(self, file: Path, number: int, check: str = "") -> None:
        """Open `file` at one pair, and wait until it is shown."""
        self.open(file, f"#pair={number}" + (f"/{check}" if check else ""))
        self.page.wait_for_selector("#pair-proof")

    def unfold(self) -> None:
        """Open everything that folds."""
        self.page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")

    def stays_quiet(self, file: Path) -> None:
        """Fail unless only `file` itself was requested and the console is empty."""
        assert self.said == []
        assert {address.partition("#")[0] for address in self.asked} <= {file.as_uri()}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return a running Chromium; skip, with what to do about it, where there is none."""
    program = needs.chromium()
    if program is None:
        pytest.skip("NO CHROMIUM: `make test` installs it as root on Debian, else `apt install chromium`")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


def watched(browser: Browser, width: int = 1024, scheme: str = "light") -> Watched:
    """Return a new page of `width` pixels that is watched."""
    context = browser.new_context(
        viewport={"width": width, "height": 844 if width < 600 else 900},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    found = Watched(context.new_page())
    found.page.on("console", lambda message: found.said.append(message.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.on("dialog", lambda dialog: found.said.append(f"dialog: {dialog.message}"))
    found.page.on("request", lambda request: found.asked.append(request.url))
    found.page.set_default_timeout(60_000)
    return found


@pytest.fixture(scope="session")
def pages(recorded_runs: Path) -> dict[str, Path]:
    """Return the page of each recorded suite, by its profile's name."""
    return recorded.pages(recorded_runs)


def keep(page: Page, name: str) -> None:
    """Keep a picture of the whole page as an artefact."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
