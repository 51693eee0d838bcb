"""Draw [Qwen3-FLOPs], figure 8: the idealised roofline and its ridge."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from ..shared.common import described
from ..shared.rooflines import AXES, draw_roof, mark_ridge, roof
from ..shared.source_accounting import QWEN3_H100, ideal, machine
from ..shared.style import BOUND_BY, new_figure, titled


def data(gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return attainable FLOP/s over intensity and the ridge."""
    ds = roof(gpu)
    return described(
        ds,
        title=f"Below {float(ds['ridge']):,.1f} FLOP per byte a kernel is memory-bound",
        shows="Left of the ridge a kernel reaches its intensity times the bandwidth, right of it the peak.",
        assumptions=f"{machine(ideal('8b', gpu))}; one GPU, ideal efficiencies, no activation traffic. Traced by a "
        "decode step of a parameter-count model in bf16 whose bytes per weight are varied.",
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw roof, regimes and ridge."""
    fig, ax = new_figure()
    draw_roof(ax, ds)
    mark_ridge(ax, ds, named=False)
    titled(ax, ds.attrs["title"], *AXES)
    ridge, peak, bandwidth = (float(ds[name]) for name in ("ridge", "peak", "bandwidth"))
    foot = ax.get_xaxis_transform()
    for x, label, bound in (
        (6, f"memory-bound:\nintensity x {bandwidth / 1e12:g} TB/s", "weights"),
        (1700, f"compute-bound:\n{peak / 1e12:,g} TFLOP/s", "compute"),
    ):
        ax.text(x, 0.06, label, transform=foot, color=BOUND_BY[bound], ha="center", va="bottom")
    ax.annotate(
        f"ridge: {ridge:,.1f} FLOP/byte",
        (ridge, peak / 1e12),
        xytext=(0, 12),
        textcoords="offset points",
        ha="center",
        fontweight="bold",
    )
    return fig
