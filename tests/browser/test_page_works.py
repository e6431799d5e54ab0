"""A person clicks, types and walks through the known-bad suite's page."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Watched, watched


@pytest.fixture
def bad(browser: Browser, pages: dict[str, Path]) -> Iterator[Watched]:
    """Return the known-bad suite's page, opened; it must have stayed quiet at the end."""
    found = watched(browser)
    found.open(pages["scripted-known-bad"])
    yield found
    found.stays_quiet(pages["scripted-known-bad"])
    found.page.context.close()


def title(page: Page) -> str:
    """Return the title of the pair that is shown."""
    page.wait_for_selector("#pair-proof")
    return page.inner_text("#pair-title")


def test_the_first_screen_tells_verdict_flips_and_price(bad: Watched) -> None:
    page = bad.page
    expect(page.locator("h1")).to_have_text("REJECT")
    for words in ("8 to 0", "72 broke", "8 pairs valid"):
        place = page.get_by_text(words, exact=True).bounding_box()
        assert place is not None and place["y"] < 900
    expect(page.locator(".tile").nth(2)).to_contain_text("the baseline's wall time")


def test_a_flip_opens_its_evidence_and_escape_leads_back_to_it(bad: Watched) -> None:
    page = bad.page
    flip = page.locator("#flips h3 a").first
    name = flip.inner_text()
    flip.click()
    assert title(page).startswith("Pair 1:")
    target = page.locator("tr.target")
    expect(target.locator("th")).to_contain_text(name)
    expect(target).to_be_in_viewport()
    expect(target.locator(".fail")).to_have_count(1)
    target.locator("summary").last.click()
    expect(target.locator(".evidence-json").last).to_contain_text("{")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(flip).to_be_focused()
    assert "#pair" not in page.url


def test_a_cell_of_the_grid_opens_its_check(bad: Watched) -> None:
    page = bad.page
    cell = page.locator("#grid button.pf").nth(3)
    name = cell.evaluate("(cell) => cell.closest('tr').dataset.check")
    cell.click()
    page.wait_for_selector("#pair-proof")
    expect(page.locator("tr.target th")).to_contain_text(name)


def test_the_grid_is_one_stop_of_the_tab_key_and_the_arrows_move_in_it(bad: Watched) -> None:
    page = bad.page
    assert page.locator("#grid button.c[tabindex='0']").count() == page.locator("#grid .grid").count()
    page.locator("#grid button.c[tabindex='0']").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("pair 5")
    page.keyboard.press("Enter")
    assert title(page).startswith("Pair 5:")


def test_a_line_of_a_plot_opens_its_pair(bad: Watched) -> None:
    bad.page.locator("#plot-wall circle[data-pair='6']").first.click()
    assert title(bad.page).startswith("Pair 6:")


def test_one_pair_shows_where_it_parts_with_both_patches_and_both_conversations(bad: Watched) -> None:
    page = bad.page
    page.locator("#pairs a.ref").nth(1).click()
    page.wait_for_selector("#pair-proof")
    expect(page.locator("#pair-part")).to_contain_text("model: exchange")
    expect(page.locator("#pair-part .side")).to_have_count(2)
    expect(page.locator("#pair-patches")).to_contain_text("The candidate changed no file")
    assert page.locator("#pair-patches .add .kw").count() > 3
    expect(page.locator("#pair-talk .here")).to_contain_text("here they part")
    expect(page.locator("#pair-talk .side.candidate").first).to_be_visible()
    folded = page.locator("#pair-talk > div > details.rest").first
    folded.locator("summary").first.click()
    expect(folded.locator(".turn").first).to_contain_text("equal in both")
    expect(page.locator("#pair-proof tr.good")).to_have_count(8)


def test_previous_next_and_the_browsers_own_back_button_walk_through_the_pairs(bad: Watched) -> None:
    page = bad.page
    page.locator("#pairs a.ref").first.click()
    assert title(page).startswith("Pair 1:")
    page.get_by_role("button", name="next").click()
    page.wait_for_function("document.querySelector('#pair-title').textContent.startsWith('Pair 2:')")
    page.go_back()
    page.wait_for_function("document.querySelector('#pair-title').textContent.startsWith('Pair 1:')")
    expect(page.get_by_role("button", name="previous")).to_be_disabled()
    page.get_by_role("button", name="close").click()
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_the_pairs_can_be_filtered_and_the_colours_turned(bad: Watched) -> None:
    page = bad.page
    page.get_by_role("button", name="fixed").click()
    expect(page.locator("#shown")).to_have_text("0 of 8")
    page.get_by_role("button", name="broken").click()
    expect(page.locator("#shown")).to_have_text("8 of 8")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.check("#only-flips")
    assert page.locator("#grid tr[data-check]:not(.flipped):visible").count() == 0


def test_a_printed_page_unfolds_and_leaves_the_tools_out(bad: Watched) -> None:
    page = bad.page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("nav.sections")).to_be_hidden()
    expect(page.locator("#flips details.rest li").last).to_be_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("#flips details.rest li").last).to_be_hidden()


BREAK_OUT = """async (address) => {
  const found = [];
  document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
  const attempt = (name, action) => { try { action(); } catch (error) { found.push(name); } };
  const added = (tag, facts) => {
    const made = Object.assign(document.createElement(tag), facts);
    const over = new Promise((done) => { made.onerror = done; made.onload = done; });
    document.body.append(made);
    return over;
  };
  await fetch(address).catch(() => found.push("fetch"));
  await added("img", { src: address });
  await added("link", { rel: "stylesheet", href: address });
  attempt("markup", () => document.body.insertAdjacentHTML("beforeend", "<b>markup</b>"));
  attempt("script", () => added("script", { textContent: "window.taken = true" }));
  attempt("source", () => added("script", { src: address }));
  attempt("eval", () => (0, eval)("window.taken = true"));
  return [found, window.taken === undefined];
}"""


def test_the_pages_policy_lets_no_script_in_and_no_request_out(browser: Browser, pages: dict[str, Path]) -> None:
    found = watched(browser)
    found.open(pages["scripted-known-bad"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        refused, untouched = found.page.evaluate(BREAK_OUT, address)
        listening.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listening.accept()
    assert untouched is True
    assert {"fetch", "connect-src", "img-src", "style-src-elem", "markup", "script", "source", "eval"} <= set(refused)
    found.page.context.close()
