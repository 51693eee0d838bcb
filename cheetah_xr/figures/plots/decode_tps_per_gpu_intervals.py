"""Draw [CHEETAH], figure 10, with credible intervals: the setups of figure 1, output tokens/s of one GPU."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from ..shared.interval_panels import data_of, draw_intervals


def data(posterior: Any = "vllm") -> xr.Dataset:
    """Return intervals, ideal values and measurements of all setups."""
    return data_of("throughput_per_gpu", "one GPU", "decode-tps-per-gpu", posterior)


def draw(ds: xr.Dataset) -> Figure:
    """Draw throughput of one GPU."""
    return draw_intervals(ds, "throughput_per_gpu", "output tokens/s of one GPU")
