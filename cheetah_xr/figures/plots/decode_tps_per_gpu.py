"""Seed 1, figure 10: the setups of figure 1, output tokens/s of one GPU."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

from ..shared.common import described
from ..shared.measurements import NEVER_PUBLISHED
from ..shared.setups import draw_setups
from .decode_tps import SHOWS, assumptions, collected


def data() -> xr.Dataset:
    """Lines and points of all setups."""
    return described(
        collected(),
        title="DeepSeek-V3 decode: the larger the batch, the more a GPU yields",
        shows="The runs of figure decode-tps, divided by their GPUs. " + SHOWS + NEVER_PUBLISHED,
        assumptions=assumptions(),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Throughput of one GPU."""
    return draw_setups(ds, "throughput_per_gpu", "output tokens/s of one GPU", "lower right")
