"""Seed 1, figure 10, with credible intervals: the setups of figure 1, output tokens/s of one GPU."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from .posterior_bands import data_of, draw_bands


def data(posterior: Any = "vllm") -> xr.Dataset:
    """Bands, ceilings and points of all setups."""
    return data_of("throughput_per_gpu", "one GPU", "decode-tps-per-gpu", posterior)


def draw(ds: xr.Dataset) -> Figure:
    """Throughput of one GPU."""
    return draw_bands(ds, "throughput_per_gpu", "output tokens/s of one GPU")
