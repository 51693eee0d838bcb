"""Seed 1, figure 1, with credible intervals: DeepSeek-V3 decode against batch."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from .posterior_bands import data_of, draw_bands


def data(posterior: Any = "vllm") -> xr.Dataset:
    """Bands, ceilings and points of all setups."""
    return data_of("tps_per_user", "one request", "decode-tps", posterior)


def draw(ds: xr.Dataset) -> Figure:
    """Speed of one request."""
    return draw_bands(ds, "tps_per_user", "output tokens/s of one request")
