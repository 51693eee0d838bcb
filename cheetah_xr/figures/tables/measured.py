"""Tabulate [CHEETAH], validation: published measurements of DeepSeek-V3/R1 decode and the engine's predictions."""

from __future__ import annotations

import xarray as xr

from ..shared.common import described
from ..shared.measurements import NEVER_PUBLISHED, assumptions, predictions
from ..shared.style import BOUND_NAMES


def data() -> xr.Dataset:
    """Return one row per measurement."""
    table = predictions()
    columns = {
        "setup": table.setup,
        "engine": table.engine,
        "run": table.note.where(table.note != "", "-"),
        "GPUs": table.decode.map({"decode only": "decode", "with prefill": "decode and prefill"}),
        "batch": table.batch,
        "context": table.context,
        "measured": table.measured.round(2),
        "predicted": table.predicted.round(2),
        "error_percent": (100 * (table.predicted / table.measured - 1)).round(0),
        "ideal": table.ideal.round(2),
        "bound_by": table.bound.map(BOUND_NAMES),
        "date": table.date,
        "source": table.source,
    }
    return described(
        xr.Dataset({name: ("row", values.to_numpy()) for name, values in columns.items()}),
        title="DeepSeek-V3/R1 decode, measured and predicted: output tokens/s of one GPU",
        shows="Predicted at default efficiencies, and at ideal ones, which nothing measured should exceed; no factor "
        "was fitted to these points. Where GPUs prefill too, the prefills of all prompts are added to the decode "
        "steps. The single request on 8 GPUs has the largest error: it runs more small kernels than are counted. "
        + NEVER_PUBLISHED,
        assumptions=assumptions(),
    )
