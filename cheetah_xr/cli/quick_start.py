"""Start a command that works out one point without what only large grids need."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

UNUSED = ("dask",)
"""Packages that xarray imports for lazy arrays where they are installed."""


@contextmanager
def quick_start() -> Iterator[None]:
    """Run a short command of a fresh process in about the time it takes to import xarray.

    xarray imports ``dask.array``, and with it SciPy, when it makes its first variable, which takes nearly as long as
    xarray itself. It is optional and for arrays that one point does not have, so it counts as not installed meanwhile.
    What is imported is no garbage: the collector looks at it once, not again and again.
    """
    if {"pandas", "xarray", *UNUSED} & sys.modules.keys() or not gc.isenabled():
        yield  # a program that calls the command line keeps what it has
        return
    gc.disable()
    for name in UNUSED:
        sys.modules[name] = cast(Any, None)  # importing a name that is None raises ModuleNotFoundError
    try:
        yield
    finally:
        for name in UNUSED:
            del sys.modules[name]
        gc.freeze()
        gc.enable()
