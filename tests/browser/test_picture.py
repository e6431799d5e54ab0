"""The README's picture can be made again, and is of the size that `python -m tests.browser.picture` makes."""

from pathlib import Path

from playwright.sync_api import Browser

from tests.browser import picture


def size(file: Path) -> bytes:
    """Return width and height as a PNG file's header holds them."""
    return file.read_bytes()[16:24]


def test_the_picture_of_the_page_can_be_made_again(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    picture.take(browser, pages[picture.PROFILE], tmp_path / "report.png")
    assert size(tmp_path / "report.png") == size(picture.TARGET)
