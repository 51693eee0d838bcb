"""Draw [Qwen3-FLOPs], figures 3 and 5: the roofline with decode and prefill marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..shared.common import described, gpu_name, model_name
from ..shared.rooflines import AXES, draw_roof, mark_ridge, points, roof
from ..shared.source_accounting import LAYERS_SMALL, QWEN3_H100, assumed_on
from ..shared.style import BOUND_BY, FAINT, INK, headline, new_figure, titled

LENGTH = 1000
FORWARD_PASSES = (("decode", 1), ("decode", 8), ("prefill", 1))
"""Phase and batch of the marked forward passes."""


def data(model: Any = "qwen3-32b", gpu: Any = QWEN3_H100) -> xr.Dataset:
    """Return the roof, and decode and prefill of one length on it."""
    results = [points(model, gpu, LAYERS_SMALL, phase, [LENGTH], batch) for phase, batch in FORWARD_PASSES]
    names = [f"{phase}, batch {batch}" for phase, batch in FORWARD_PASSES]
    marks = xr.concat(
        [ds[["arithmetic_intensity", "reached"]].isel(seq_len=0).reset_coords(drop=True) for ds in results],
        dim="forward_pass",
    )
    ds = results[0]
    gap = float(roof(gpu)["peak"] / marks["reached"][0])
    return described(
        xr.merge([marks.assign_coords(forward_pass=names), roof(gpu)], combine_attrs="drop").assign(gap=((), gap)),
        title=f"Decode of one sequence reaches {1 / gap:.2%} of the peak of {gpu_name(str(ds['gpu'].values))}",
        shows=f"{model_name(str(ds['model'].values))} at {LENGTH:,} tokens. Left of the ridge more work per byte "
        "(larger batches, fewer bytes) raises throughput; right of it only more FLOP/s do.",
        assumptions=assumed_on(ds),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw the roof, the forward passes on it, and their labels."""
    fig, ax = new_figure()
    headline(fig, ds.attrs["title"])
    draw_roof(ax, ds)
    mark_ridge(ax, ds)
    titled(ax, "", *AXES)
    one, eight = ds["arithmetic_intensity"].values[:2]
    for name in ds["forward_pass"].values:
        at = ds.sel(forward_pass=name)
        point = float(at["arithmetic_intensity"]), float(at["reached"]) / 1e12
        free = point[0] >= float(ds["ridge"])
        colour = BOUND_BY["compute" if free else "weights"]
        ax.plot(*point, "o", color=colour, markersize=8, zorder=4)
        ax.annotate(
            f"{name}: {point[0]:,.3g}" if not free else f"{name}:\n{point[0]:,.4g} FLOP/byte",
            point,
            xytext=(0, -12) if free else (11, -20 if eight < 2 * one and point[0] == one else -4),
            textcoords="offset points",
            ha="center" if free else "left",
            va="top",
            color=colour,
        )
    _gap(ax, ds)
    _slope(ax, ds)
    return fig


def _gap(ax: Axes, ds: xr.Dataset) -> None:
    """Draw an arrow from decode of one sequence up to the peak."""
    x, low, high = (float(v) for v in (ds["arithmetic_intensity"][0], ds["reached"][0] / 1e12, ds["peak"] / 1e12))
    ax.plot([ds["intensity"].values[0], float(ds["ridge"])], [high, high], color=FAINT, linestyle=":", linewidth=1.2)
    ax.annotate("", (x, high), (x, low * 1.25), arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 1.2})
    ax.annotate(
        f"{1 / float(ds['gap']):.2%}\nof peak",
        (x, np.sqrt(low * high)),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        fontweight="bold",
    )


def _slope(ax: Axes, ds: xr.Dataset) -> None:
    """Label slope and roof."""
    bandwidth, peak = float(ds["bandwidth"]) / 1e12, float(ds["peak"]) / 1e12
    ax.annotate(f"{peak:,g} TFLOP/s", (float(ds["ridge"]), peak), xytext=(10, 6), textcoords="offset points")
    x = 60.0
    label = f"slope: {bandwidth:g} TB/s"
    ax.annotate(label, (x, x * bandwidth), xytext=(-6, 2), textcoords="offset points", ha="right", va="bottom")
