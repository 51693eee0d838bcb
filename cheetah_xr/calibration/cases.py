"""Measured rows as forward passes of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..engine.case import Case
from ..engine.evaluator import case_of
from ..engine.grid import build
from ..engine.inputs.arguments import Axes
from ..specs import Options
from .measurements.status import arguments_of

Array = NDArray[Any]

SERVED: dict[str, Any] = {"overlap_ep": 0.0, "on_infeasible": "ignore"}
"""Options of served forward passes: one micro-batch, so nothing overlaps the all-to-all; memory is checked apart."""


def case_of_rows(
    rows: pd.DataFrame, phase: str, degrees: Mapping[str, str], batch: Array, seq_len: Array, **options: Any
) -> Case:
    """Return one forward pass of every row of one model, accelerator and precision.

    Parameters
    ----------
    rows
        Rows of the table of measurements.
    phase
        "prefill" or "decode".
    degrees
        Column that holds each of tp, dp and ep.
    batch, seq_len
        Sequences of the instance and their tokens, whole numbers.
    options
        Options in addition to :data:`SERVED`.
    """

    given = arguments_of(rows, phase, degrees, batch, seq_len)
    axes = Axes(**given, efficiency="ideal", options=Options(**(SERVED | options)), scales={})
    with np.errstate(all="ignore"):
        return case_of(build(axes), 0, 0, {})


def sequences_that_fit(case: Case, n_rows: int) -> Array:
    """Count the sequences the instance's memory holds, at least 1 per attention rank; infinite without a KV cache."""
    return np.array(np.broadcast_to(case.capacity.sequences * case.p.dp, (n_rows,)))
