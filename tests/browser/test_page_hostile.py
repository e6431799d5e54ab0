"""What a model wrote stays text, wherever the page shows it."""

from pathlib import Path

from playwright.sync_api import Browser

from agent_ab.report.page import compose, render
from tests import hostile
from tests.browser.conftest import keep, watched


def test_a_hostile_pair_runs_nothing_builds_nothing_and_is_shown_as_it_is(browser: Browser, tmp_path: Path) -> None:
    subject = hostile.subject()
    file = tmp_path / "hostile.html"
    file.write_text(render.render(compose.compose(subject, hostile.dossiers(subject), "agent_ab test")), "utf-8")
    found = watched(browser)
    page = found.page
    found.open_pair(file, 1)
    found.unfold()
    shown = page.inner_text("body")
    assert shown.count("</script><script>window.taken=1</script>") > 20
    assert "\x1b" not in shown and "\u202e" not in shown and "\u2066" not in shown
    assert "<U+202E>" in shown and "\u241b" in shown
    for section in ("checks", "part", "patches", "talk", "price", "proof"):
        assert "window.taken=1" in page.inner_text(f"#pair-{section}"), section
    assert page.evaluate("window.taken") is None
    assert (
        page.evaluate(
            "document.querySelectorAll('img, iframe, object, form, textarea, a[href^=\"javascript\"]').length"
        )
        == 0
    )
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].filter((e) => [...e.attributes].some((a) => /^on/.test(a.name))).length"
        )
        == 0
    )
    assert page.evaluate("document.querySelectorAll('script:not([type])').length") == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 1024
    keep(page, "hostile")
    found.stays_quiet(file)
    page.context.close()
