"""Interactive examples of the documentation (``>>>``) run, and their numbers are those printed."""

import doctest

import pytest

from tests.helpers import ROOT

PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if ">>> " in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_a_page(page):
    text = page.read_text(encoding="utf-8").replace("```", "\n")
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("name", ["cost-model", "attention", "mlp-and-experts", "collectives"])
def test_every_section_with_a_formula_has_an_example(name):
    sections = (ROOT / "docs" / "explanation" / f"{name}.md").read_text(encoding="utf-8").split("\n## ")[1:]
    lacking = [text.splitlines()[0] for text in sections if "$$" in text and "**Example.**" not in text]
    assert not lacking
