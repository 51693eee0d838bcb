"""Draw [CHEETAH], figure 1: DeepSeek-V3 decode against batch, model and published measurements."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

from ..shared.common import described
from ..shared.measurements import NEVER_PUBLISHED, assumptions
from ..shared.setup_lines import SHOWS, collected, draw_setups


def data() -> xr.Dataset:
    """Return predictions and measurements of all setups."""
    return described(
        collected(),
        title="DeepSeek-V3 decode: bound by memory, then communication or compute",
        shows=SHOWS + NEVER_PUBLISHED,
        assumptions=assumptions(),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw output tokens/s of one request."""
    return draw_setups(ds, "tps_per_user", "output tokens/s of one request", "lower left")
