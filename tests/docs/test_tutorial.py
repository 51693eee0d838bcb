"""The tutorial runs block by block, prints what it shows, and its results are sane."""

import re
from contextlib import redirect_stdout
from io import StringIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from tests.helpers import DOCS

TUTORIAL = DOCS / "tutorials" / "first-grid.md"


@pytest.fixture(scope="module")
def tutorial():
    """Names left by the blocks, and for every block what it printed and what the text shows after it."""
    text = TUTORIAL.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    printed = []
    with mpl.rc_context({"backend": "agg"}):
        for block, after in re.findall(r"```python\n(.*?)```\n(.*?)(?=```python|\Z)", text, re.DOTALL):
            with redirect_stdout(StringIO()) as out:
                exec(compile(block, "tutorial.md", "exec"), names)
            printed.append((block, out.getvalue(), re.findall(r"^    (.*)$", after, re.MULTILINE)))
        yield names, printed
        plt.close("all")


def test_it_is_short(tutorial):
    blocks = [block for block, _, _ in tutorial[1]]
    assert len(blocks) == 4
    assert sum(bool(line.strip()) for block in blocks for line in block.splitlines()) < 40


def test_it_prints_what_it_shows(tutorial):
    for _, out, shown in tutorial[1]:
        assert [line.rstrip() for line in out.splitlines()] == [line.rstrip() for line in shown]


def test_its_results_are_sane(tutorial):
    names, _ = tutorial
    ds, front, cheapest = names["ds"], names["front"], names["cheapest"]
    assert ds.step_time.notnull().any()
    assert set(np.unique(names["words"].values)) >= {"weights", "kv", "compute", "does_not_fit"}
    for gpu in names["grid"].gpu.values:
        line = front.isel(point=np.flatnonzero(front.gpu.values == gpu))
        assert (np.diff(line.tps_per_user) > 0).all()
        assert (np.diff(line.throughput_per_gpu) < 0).all()
        assert int(line.batch[-1]) == 1
        fast = line.cost_per_million_tokens.values[line.tps_per_user.values >= 50]
        assert float(cheapest.cost_per_million_tokens.sel(gpu=gpu)) == fast.min(), "the cheapest is on the frontier"
    assert len(plt.get_fignums()) == 2
