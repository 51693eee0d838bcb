"""Relative links and anchors of the documentation, README and CONTRIBUTING lead somewhere."""

import re
from html import unescape
from urllib.parse import unquote

import pytest

from tests.helpers import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|(?:href|src)=\"([^\"]+)\"")


def anchors(path):
    """Anchors of a page as MkDocs and GitHub make them from headings, and explicit ones."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    known = {("", line.split()[1]) for line in text.splitlines() if line.startswith("::: ")}  # mkdocstrings: the path
    known |= set(re.findall(r"\{#([\w.-]+)[^}]*\}|(?:id|name)=\"([\w.-]+)\"", text))
    explicit = {name for pair in known for name in pair if name}
    for heading in re.findall(r"^#+ +(.*?)(?: *\{#.*\})?$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", unescape(heading))
        slug = re.sub(r"[^\w\s-]", "", plain).strip().lower()
        explicit.add(re.sub(r"[-\s]+", "-", slug))
    return explicit


def links(path):
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text(encoding="utf-8")))
    return [next(filter(None, match)) for match in LINK.findall(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    dead = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[2:]:
        assert str(page.relative_to(ROOT / "docs")) in navigation
