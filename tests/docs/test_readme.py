"""The README's examples run and print what it says."""

import re
from contextlib import redirect_stdout
from io import StringIO

from tests.helpers import ROOT

README = ROOT / "README.md"


def test_examples_print_what_the_readme_says():
    text = README.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    assert examples[0].count("\n") <= 10
    printed = StringIO()
    names: dict[str, object] = {}
    with redirect_stdout(printed):
        for example in examples:
            exec(compile(example, "README.md", "exec"), names)
    shown = [line.strip() for line in printed.getvalue().splitlines()]
    assert shown
    for line in shown:
        assert f"    {line}" in text or line in text
