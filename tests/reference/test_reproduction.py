"""docs/evidence/reproduction.md shows the tables as generated.

``python -m tests.reference.test_reproduction`` writes them there.
"""

import re

import pytest

from cheetah_xr.figures import render
from cheetah_xr.figures.catalogue import QWEN3_FLOPS, ROOFLINE, TABLES_BY_SOURCE
from tests.helpers import DOCS

PAGE = DOCS / "evidence" / "reproduction.md"
NAMES = [*TABLES_BY_SOURCE[QWEN3_FLOPS], *TABLES_BY_SOURCE[ROOFLINE]]
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n```text\n)(.*?)(```)", re.DOTALL)


def generated(name):
    return render.aligned(render.table_frame(render.data_of(name))) + "\n"


def blocks():
    return {name: text for _, name, text, _ in BLOCK.findall(PAGE.read_text(encoding="utf-8"))}


def test_every_table_of_the_source_texts_is_in_the_page():
    assert list(blocks()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_generated_table(name):
    assert blocks()[name] == generated(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_difference_is_exact_rounded_or_explained(name):
    frame = render.table_frame(render.data_of(name))
    assert list(frame.columns) == ["item", "unit", "printed", "computed", "difference", "note", "place"]
    assert not frame["note"].isin(["differs", ""]).any(), frame[frame["note"] == "differs"]
    assert (frame.loc[frame["note"] == "exact", "difference"] == 0).all()


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda m: m[1] + generated(m[2]) + m[4], text), encoding="utf-8")
