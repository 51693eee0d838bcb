"""Seed 1, figure 1, with credible intervals: DeepSeek-V3 decode against batch."""

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
    ds = with_bands("tps_per_user", posterior)
    return described(
        ds,
        title="DeepSeek-V3 decode: what to expect of one request, beside the speed ceiling",
        shows="The setups of figure decode-tps. " + shows(posterior) + NEVER_PUBLISHED,
        assumptions=assumptions(f"efficiencies drawn from the posterior {ds.attrs['posterior']}"),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Speed of one request."""
    return draw_bands(ds, "tps_per_user", "output tokens/s of one request")
