"""Draw [CHEETAH], figure 1, with credible intervals: DeepSeek-V3 decode against batch."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from ..shared.interval_panels import data_of, draw_intervals


def data(posterior: Any = "vllm") -> xr.Dataset:
    """Return intervals, ideal values and measurements of all setups."""
    return data_of("tps_per_user", "one request", "decode-tps", posterior)


def draw(ds: xr.Dataset) -> Figure:
    """Draw output tokens/s of one request."""
    return draw_intervals(ds, "tps_per_user", "output tokens/s of one request")
