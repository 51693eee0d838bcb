"""Python blocks of the pages run in order and print what is shown below them."""

import re
from contextlib import redirect_stdout
from io import StringIO

import pytest

import cheetah_xr as cx
from tests.helpers import DOCS

BLOCK = re.compile(r"```python\n(.*?)```\n\n?((?:    [^\n]*\n|\n(?=    ))*)", re.DOTALL)


def runs(page, names):
    """Run the blocks of a page; what each printed, and what the page shows."""
    for block, shown in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        with redirect_stdout(StringIO()) as out:
            exec(compile(block, page, "exec"), names)
        yield (
            [line.rstrip() for line in out.getvalue().splitlines()],
            [line[4:].rstrip() for line in shown.splitlines()],
        )


def test_the_serving_tutorial_prints_what_it_shows():
    for printed, shown in runs("tutorials/serving.md", {}):
        assert printed == shown


@pytest.mark.skipif("vllm" not in cx.list_posteriors(), reason="the posterior vllm is not shipped")
def test_the_page_of_credible_intervals_prints_what_it_shows():
    for printed, shown in runs("how-to/credible-intervals.md", {}):
        assert printed
        assert printed == shown


def test_the_sweep_tutorial_prints_what_it_shows(elsewhere):
    sweep = re.search(r"```yaml\n(.*?)```", (DOCS / "tutorials/sweep.md").read_text(encoding="utf-8"), re.DOTALL)
    assert sweep is not None
    (elsewhere / "llama.yaml").write_text(sweep[1], encoding="utf-8")
    for printed, shown in runs("tutorials/sweep.md", {}):
        assert printed == shown
