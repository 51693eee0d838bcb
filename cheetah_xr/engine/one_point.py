"""Work out one forward pass without its times: its operations, and what memory holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..specs import SpecError
from .case import Case
from .evaluator import case_of
from .grid import Grid, build
from .inputs.arguments import Axes


def one_point(axes: Axes, what: str) -> tuple[Grid, Case]:
    """Return the grid and the case of a single point, whether or not it fits in memory.

    Parameters
    ----------
    axes
        The point.
    what
        Name of the function that was called, for errors.

    Raises
    ------
    SpecError
        For an argument that cannot be used, or with more than one value.
    """
    grid = build(replace(axes, options=axes.options.ignoring_memory()))
    if grid.dims:
        raise SpecError(f"{what}: one point at a time; {', '.join(grid.dims)} has more than one value")
    with np.errstate(all="ignore"):
        return grid, case_of(grid, 0, 0, {})
