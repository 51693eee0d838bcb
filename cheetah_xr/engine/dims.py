"""Names of the axes and their canonical order: the one place where they are spelled."""

from __future__ import annotations

from ..specs import DEGREES

MODEL = "model"
GPU = "gpu"
PRECISION = "precision"
EFFICIENCY = "efficiency"
PHASE = "phase"
TP = "tp"
DP = "dp"
EP = "ep"
BATCH = "batch"
SEQ_LEN = "seq_len"
LAYOUT = "layout"
DRAW = "draw"
QUANTILE = "quantile"
KERNEL = "kernel"
OPERATION = "operation"
CAUSE = "cause"

OPTIONS = "options"
"""Not an axis: the record of options, an input of most variables."""

RECORDS = (MODEL, GPU, PRECISION, EFFICIENCY)
"""Axes whose labels are names of specs."""

PARALLEL = tuple(DEGREES)
"""Degrees of parallelism, in order."""

LEADING = (*RECORDS, PHASE, *PARALLEL)
"""Axes before the user's own ones, in order."""

TRAILING = (BATCH, SEQ_LEN)
"""Axes after the user's own ones, in order."""


def canonical(user_dims: tuple[str, ...]) -> tuple[str, ...]:
    """Return the order of every dim: the leading axes, the user's in the order given, batch and seq_len."""
    return (*LEADING, *user_dims, *TRAILING)
