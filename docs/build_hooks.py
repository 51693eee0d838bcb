"""Hooks of MkDocs: formulas become MathML at build time, so that a page needs no script and no other server."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

ROLE = re.compile(r":(?:func|class|data|meth|mod):(?=<code)")
"""Roles of reStructuredText in docstrings, which Markdown shows as text."""

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Replace the LaTeX of every formula of a page by MathML, and leave out roles of docstrings."""

    def typeset(match: re.Match[str]) -> str:
        latex = unescape(match[3])
        try:
            mathml = convert(latex, display="block" if match[2] == "[" else "inline")
            return mathml.replace("\\_", "_")  # an underscore in text, which LaTeX wants escaped
        except Exception as error:
            raise PluginError(f"{page.file.src_uri}: formula cannot be typeset: {latex!r} ({error})") from error

    return FORMULA.sub(typeset, ROLE.sub("", html))
