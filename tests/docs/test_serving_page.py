"""The example of docs/explanation/serving-model.md runs and prints what it shows."""

import re
from contextlib import redirect_stdout
from io import StringIO

from tests.helpers import DOCS

PAGE = DOCS / "explanation" / "serving-model.md"


def test_the_example_prints_what_it_shows():
    text = PAGE.read_text(encoding="utf-8")
    block, shown = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", text, re.DOTALL).groups()
    with redirect_stdout(StringIO()) as out:
        exec(compile(block, "serving.md", "exec"), {})
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [line[4:].rstrip() for line in shown.splitlines()]
