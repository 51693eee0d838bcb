"""Draw [CHEETAH], figure 10: the setups of figure 1, output tokens/s of one GPU."""

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
        title="DeepSeek-V3 decode: per-GPU throughput rises with the batch",
        shows="The setups of figure decode-tps, throughput divided by the number of GPUs. " + SHOWS + NEVER_PUBLISHED,
        assumptions=assumptions(),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw throughput of one GPU."""
    return draw_setups(ds, "throughput_per_gpu", "output tokens/s of one GPU", "lower right")
