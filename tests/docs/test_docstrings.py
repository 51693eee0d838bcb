"""Examples in docstrings are run."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import cheetah_xr

WITH_EXAMPLES = [
    module.name
    for module in pkgutil.walk_packages(cheetah_xr.__path__, "cheetah_xr.")
    if ">>> " in Path(module.module_finder.find_spec(module.name).origin).read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0
