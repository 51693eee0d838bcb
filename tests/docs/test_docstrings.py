"""Examples in docstrings are run."""

import doctest
import importlib
import pkgutil

import pytest

import cheetah_xr

MODULES = [m.name for m in pkgutil.walk_packages(cheetah_xr.__path__, "cheetah_xr.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    actual = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert actual.failed == 0
