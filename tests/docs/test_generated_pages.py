"""Tables made from the code are in the pages as `python docs/generate.py` writes them."""

import importlib.util

import pytest

from tests.helpers import ROOT

spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
assert spec is not None
assert spec.loader is not None
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


@pytest.mark.parametrize("page", generate.pages(), ids=lambda page: page.name)
def test_a_page_is_as_generated(page):
    text = generate.pages()[page]
    assert generate.renewed(text) == text, "run `python docs/generate.py`"


def test_every_table_is_on_a_page():
    used = {match[2] for text in generate.pages().values() for match in generate.BLOCK.finditer(text)}
    assert used == set(generate.GENERATED)
