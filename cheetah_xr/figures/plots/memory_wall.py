"""Draw [Qwen3-FLOPs], figures 3, 5 and 6: the memory wall, peak compute and bandwidth over release years."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

from ...analysis import derive
from ...specs import list_gpus, load_gpu
from ..shared.common import described, gpu_name
from ..shared.source_accounting import ideal
from ..shared.style import BOUND_BY, FAINT, HEIGHT, INK, end_labels, headline, log_axis, new_figure, titled

RIDGES = (100, 200, 400, 800)
"""Diagonals of equal ridge, FLOP/byte."""

NAMED = {
    "a100-sxm-80gb": (8, -12, "left"),
    "h100-sxm": (-8, 6, "right"),
    "h200-sxm": (8, -4, "left"),
    "b200-sxm": (7, -3, "left"),
    "mi355x": (2, 8, "center"),
    "mi250x": (8, -3, "left"),
    "mi300x": (7, 7, "center"),
    "rtx-4090": (8, -5, "left"),
    "l4": (8, -4, "left"),
    "l40s": (-8, 4, "right"),
    "tpu-v5e": (-8, 4, "right"),
    "tpu-v6e": (-8, -4, "right"),
    "tpu7x": (-8, 0, "right"),
    "trainium3": (8, -5, "left"),
    "gaudi3": (-8, 4, "right"),
}
"""Accelerators labelled in the figure, and the offset and alignment of their labels."""


def data() -> xr.Dataset:
    """Return bandwidth, BF16 peak, ridge and release year of every accelerator whose year is known."""
    years = {name: load_gpu(name).release_year for name in list_gpus()}
    known = [name for name, year in years.items() if year]
    ds = derive(ideal("8b", known), "ridge")
    dated = ds.assign_coords(year=("gpu", [years[name] for name in known])).sortby(["year", "gpu"])
    best = dated[["hbm_bandwidth", "peak_bf16"]].reset_coords(["hbm_bandwidth", "peak_bf16"]).groupby("year").max()
    growth = best.cumulative("year").max() / best.isel(year=0)
    span = growth["year"].values[[0, -1]]
    compute, bandwidth = float(growth["peak_bf16"][-1]), float(growth["hbm_bandwidth"][-1])
    return described(
        {
            "bandwidth": ("gpu", dated["hbm_bandwidth"].values, {"units": "B/s"}),
            "peak": ("gpu", dated["peak_bf16"].values, {"units": "FLOP/s"}),
            "ridge": ("gpu", dated["ridge"].values, {"units": "FLOP/B"}),
            "release_year": ("gpu", dated["year"].values.astype(np.int32)),
            "compute_growth": ("year", growth["peak_bf16"].values),
            "bandwidth_growth": ("year", growth["hbm_bandwidth"].values),
            "gpu": dated["gpu"].values,
            "year": growth["year"].values.astype(np.int32),
        },
        title=f"{span[0]} to {span[1]}: peak compute grew {compute:.1f}x, memory bandwidth {bandwidth:.1f}x",
        shows="Left: dense BF16 peak against memory bandwidth of the accelerators of the catalogue; diagonals join "
        "equal ridges. Right: the highest released so far, relative to the first year.",
        assumptions=f"Vendors' peaks from the catalogue; {len(known)} accelerators whose release year is certain.",
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw compute against bandwidth on the left, their growth on the right."""
    fig, (left, right) = new_figure(1, 2, width=10, height=HEIGHT + 0.3)
    headline(fig, ds.attrs["title"])
    _scatter(left, ds)
    _growth(right, ds)
    return fig


def _scatter(ax: Axes, ds: xr.Dataset) -> None:
    x, y, year = ds["bandwidth"].values / 1e12, ds["peak"].values / 1e12, ds["release_year"].values
    log_axis(ax, "x")
    log_axis(ax, "y")
    low, high = x.min() / 1.6, x.max() * 2.6
    for ridge in RIDGES:
        ax.plot([low, high], [low * ridge, high * ridge], color=FAINT, linewidth=0.8, linestyle=":", zorder=0)
    top = y.max() * 2.2
    for ridge in RIDGES:
        at = min(high, top / ridge)
        label = f"ridge {ridge}" if ridge == RIDGES[-1] else f"{ridge}"
        ax.annotate(
            label, (at, at * ridge), xytext=(-3, -3), textcoords="offset points", ha="right", va="top", color=FAINT
        )
    edges = np.arange(year.min(), year.max() + 2) - 0.5
    norm = BoundaryNorm(edges, 256)
    ax.scatter(x, y, c=year, cmap="viridis_r", norm=norm, s=46, edgecolor=INK, linewidth=0.6, zorder=3)
    for name, (dx, dy, ha) in NAMED.items():
        at = ds.sel(gpu=name)
        point = float(at["bandwidth"]) / 1e12, float(at["peak"]) / 1e12
        ax.annotate(gpu_name(name), point, xytext=(dx, dy), textcoords="offset points", ha=ha, fontsize=8.5)
    bar = ax.figure.colorbar(ScalarMappable(norm, "viridis_r"), ax=ax, ticks=np.unique(year), pad=0.02, aspect=30)
    bar.set_label("release year")
    ax.set_xlim(low, high)
    ax.set_ylim(y.min() / 1.8, top)
    titled(ax, "", "memory bandwidth (TB/s)", "BF16 peak, dense (TFLOP/s)")


def _growth(ax: Axes, ds: xr.Dataset) -> None:
    lines = []
    for name, label, colour in (
        ("compute_growth", "compute", BOUND_BY["compute"]),
        ("bandwidth_growth", "bandwidth", BOUND_BY["weights"]),
    ):
        x, y = ds["year"].values, ds[name].values
        ax.step(x, y, where="post", color=colour, linewidth=2.4)
        ax.plot(x, y, "o", color=colour, markersize=6)
        lines.append((x[-1], y[-1], f"{label}\n{y[-1]:.1f}x", colour))
    ax.set_xticks(ds["year"].values)
    ax.margins(x=0.04)
    ax.set_ylim(0.5, None)
    titled(ax, "", "release year", f"highest so far over {int(ds['year'][0])}")
    end_labels(ax, lines, gap=2.6)
