"""The example of docs/explanation/uncertainty.md runs and prints what it shows."""

import re
from contextlib import redirect_stdout
from io import StringIO

import pytest

import cheetah_xr as cx
from tests.helpers import DOCS

TEXT = (DOCS / "explanation" / "uncertainty.md").read_text(encoding="utf-8")


@pytest.mark.skipif("vllm" not in cx.list_posteriors(), reason="the posterior vllm is not shipped")
def test_the_example_prints_what_it_shows():
    ((block, after),) = re.findall(r"```python\n(.*?)```\n(.*)", TEXT, re.DOTALL)
    with redirect_stdout(StringIO()) as out:
        exec(compile(block, "uncertainty.md", "exec"), {})
    assert out.getvalue().strip()
    assert [f"    {line}".rstrip() for line in out.getvalue().splitlines()] == [
        line.rstrip() for line in re.findall(r"^    .*$", after, re.MULTILINE)
    ]
