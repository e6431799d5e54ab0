"""One file that asks nothing of any network and runs no script but its own."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from agent_ab.report.page import compose, dossier, render
from agent_ab.report.page.lines import numbered
from tests import hostile
from tests.page.runs import played, subject


class Seen(HTMLParser):
    """The tags and attributes of a page, and what its scripts and styles hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open].append(data)
            self._open = ""


def made(pairs: int = 4) -> str:
    found = subject([played(n, candidate=9) for n in range(pairs)])
    packed = [dossier.pack(n.number, dossier.recorded(n, (), "x"), "linked") for n in numbered(found.pairs)]
    return render.render(compose.compose(found, packed, "agent_ab test"))


def evil() -> str:
    found = hostile.subject()
    return render.render(compose.compose(found, hostile.dossiers(found), "agent_ab test"))


@pytest.mark.parametrize("page", (made, evil), ids=("plain", "hostile"))
def test_the_policy_names_the_hashes_of_our_own_script_and_style_and_allows_nothing_else(page) -> None:  # type: ignore[no-untyped-def]
    seen = Seen(page())
    policy = next(a["content"] for tag, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    scripts = [
        text
        for (tag, a), text in zip((t for t in seen.tags if t[0] == "script"), seen.inside["script"], strict=True)
        if not a
    ]
    (style,) = seen.inside["style"]
    assert len(scripts) == 1
    for text, kind in ((scripts[0], "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy


@pytest.mark.parametrize("page", (made, evil), ids=("plain", "hostile"))
def test_nothing_is_loaded_and_no_attribute_is_a_script_or_a_style(page) -> None:  # type: ignore[no-untyped-def]
    seen = Seen(page())
    assert not {tag for tag, _ in seen.tags} & {
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "video",
        "audio",
        "frame",
    }
    for tag, attributes in seen.tags:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset", "action")
        ], tag
        link = attributes.get("href") or "#"
        assert link.startswith(("#", "data:image/svg+xml,")), link


def test_what_others_wrote_is_text_wherever_it_stands() -> None:
    page = evil()
    assert "<script>window.taken" not in page and "onerror=window.taken=1>" not in page
    assert page.count("&lt;/script&gt;&lt;script&gt;window.taken=1") > 10
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2066\ufeff]", page)
    page.encode("utf-8")


def test_the_script_makes_no_markup_of_text() -> None:
    script = (files("agent_ab.report.page") / "templates" / "page.js").read_text(encoding="utf-8")
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "import(",
    ):
        assert way not in script
    assert "</script" not in script


def test_every_id_is_there_once_and_every_anchor_leads_somewhere() -> None:
    seen = Seen(made())
    ids = [a["id"] for _, a in seen.tags if "id" in a]
    assert len(ids) == len(set(ids))
    anchors = {
        (a.get("href") or "")[1:] for tag, a in seen.tags if tag == "a" and (a.get("href") or "").startswith("#")
    }
    assert {anchor for anchor in anchors if not anchor.startswith("pair=")} <= set(ids)


def test_code_in_a_sentence_is_code_and_an_odd_backtick_is_not() -> None:
    assert render.prose("run `agent-ab <x>` now") == "run <code>agent-ab &lt;x&gt;</code> now"
    assert render.prose("odd ` <b>") == "odd ` &lt;b&gt;"
    assert render.prose("\x1b`\u202e`") == "\u241b<code>&lt;U+202E&gt;</code>"


def test_figures_are_there_as_text_too() -> None:
    seen = Seen(made())
    pictures = [a for tag, a in seen.tags if tag == "svg" and a.get("role") == "img"]
    assert len(pictures) == 7 and all(len(a.get("aria-label") or "") > 40 for a in pictures)
