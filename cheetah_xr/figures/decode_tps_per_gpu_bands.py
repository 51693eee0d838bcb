"""Seed 1, figure 10, with credible intervals: the setups of figure 1, output tokens/s of one GPU."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from .bands import draw_bands, shows, with_bands
from .common import described
from .decode_tps import assumptions
from .measurements import NEVER_PUBLISHED


def data(posterior: Any = "vllm") -> xr.Dataset:
    """Bands, ceilings and points of all setups."""
    ds = with_bands("throughput_per_gpu", posterior)
    return described(
        ds,
        title="DeepSeek-V3 decode: what to expect of one GPU, beside the speed ceiling",
        shows="The setups of figure decode-tps-per-gpu. " + shows(posterior) + NEVER_PUBLISHED,
        assumptions=assumptions(f"efficiencies drawn from the posterior {ds.attrs['posterior']}"),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Throughput of one GPU."""
    return draw_bands(ds, "throughput_per_gpu", "output tokens/s of one GPU")
