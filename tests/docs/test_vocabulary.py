"""Readers find the field's words: none that the glossary retires stands in pages, help, docstrings or identifiers."""

from pathlib import Path

import pytest

from tests.helpers.vocabulary import retired_names, retired_text

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SPECS = sorted([*(ROOT / "specs").rglob("*.yaml"), *(ROOT / "sweeps").rglob("*.yaml")])
FOLDERS = sorted({path.parent for path in (ROOT / "cheetah_xr").rglob("*.py")})


RETIRED = (
    "16 requests under way",
    "a share of the peak",
    "the exchange of experts",
    "a mixed pass",
    "factor set",
    "hidden behind compute",
)
CURRENT = ("one forward pass", "hidden size", "shared experts", "held-out rows", "a fraction of peak", "all-to-all")


def test_pages_use_the_words_of_the_field():
    assert [line for path in PAGES for line in retired_text(path)] == []


def test_specs_and_sweeps_use_the_words_of_the_field():
    assert [line for path in SPECS for line in retired_text(path)] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_docstrings_messages_and_help_use_the_words_of_the_field(folder):
    assert [line for path in sorted(folder.glob("*.py")) for line in retired_text(path)] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_identifiers_use_the_words_of_the_field(folder):
    assert [line for path in sorted(folder.glob("*.py")) for line in retired_names(path)] == []


@pytest.mark.parametrize(
    "text",
    [
        "16 requests under way",
        "a share of the peak",
        "the exchange of experts",
        "a mixed pass",
        "factor set",
        "hidden behind compute",
    ],
)
def test_retired_words_are_noticed(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert list(retired_text(page))


@pytest.mark.parametrize("text", CURRENT)
def test_words_of_the_field_pass(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert not list(retired_text(page))
