"""The page as HTML: one file that asks nothing of any network and runs no script but its own."""

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from agent_ab import wording
from agent_ab.report.page.contents import SCHEMA, Page

TEMPLATES = ("page.html.jinja", "parts.html.jinja", "sections.html.jinja")
LISTED = 10
"""Most lines of a list that are open at once; the rest folds away."""


def render(page: Page) -> str:
    """Return the whole page. Whatever is in it is escaped; only our own style and script are not."""
    style, script = _text("page.css"), _text("page.js")
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            page=page,
            schema=SCHEMA,
            listed=LISTED,
            style=Markup(style),
            script=Markup(script),
            policy=content_policy(style, script),
        )
    )


def content_policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy: nothing is fetched, and only what has these hashes runs."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _text(name: str) -> str:
    return (files("agent_ab.report.page") / "templates" / name).read_text(encoding="utf-8")


def prose(text: str) -> Markup:
    """Return a sentence, escaped, with what stands in backticks as code."""
    pieces = wording.visible(text).split("`")
    if len(pieces) % 2 == 0:
        return escape("`".join(pieces))
    marked = (escape(p) if i % 2 == 0 else Markup("<code>{}</code>").format(p) for i, p in enumerate(pieces))
    return Markup("").join(marked)


def _visible(value: object) -> object:
    # Every expression of the templates goes through here, and is escaped after it.
    return wording.visible(value) if type(value) is str else value


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=DictLoader({name: _text(name) for name in TEMPLATES}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    environment.filters["counted"] = wording.counted
    return environment
