"""Predict measured setups over batch and draw them with their measurements and what bounds each."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from ...analysis import derive, regimes
from .common import log_grid
from .measurements import evaluated, measured_points, setups
from .style import BOUND_BY, BOUND_NAMES, corners, gpu_colour, headline, log_axis, new_figure, regime_colours

SHOWS = (
    "Lines are the model, from one sequence per attention rank to the largest batch that fits; a diamond marks a "
    "change of bottleneck, named in the strips below. Markers are published measurements (filled: GPUs that only "
    "decode; open: GPUs that also prefill, which the lines leave out); no efficiency was fitted to them. "
)
LINES = ["tps_per_user", "throughput_per_gpu"]

SAME_GPU = ((0.0, "-"), (0.45, "--"), (0.0, ":"))
"""Setups on the same accelerator: how much lighter, and which dashes."""


def collected() -> xr.Dataset:
    """Return the predictions of all setups on one batch axis, and the measured points on dim ``point``."""
    batch, lines, names = log_grid(1, 131072, 120), [], setups()
    rows: list[Any] = list(names.itertuples())
    for row in rows:
        result = derive(evaluated(row, batch), LINES)
        runs = (result["batch"] >= row.dp) & result["step_time"].notnull()
        line = result[LINES].where(runs).assign(regime=regimes(result).where(runs, -1).astype("int8"))
        lines.append(line.drop_vars([name for name in line.coords if name != "batch"]))
    ds = xr.concat(lines, "setup").assign_coords(setup=list(names.setup), gpu=("setup", list(names.gpu)))
    return ds.assign(measured_points())


def draw_setups(ds: xr.Dataset, what: str, y: str, key: str) -> Figure:
    """Draw one variable of every setup against batch, and below it a strip per setup with what bounds it."""
    fig, (above, below) = new_figure(2, 1, height=6.4)
    above.get_gridspec().set_height_ratios([2.2, 1])
    looks = _line_styles(ds)
    for name, look in looks.items():
        line = ds.sel(setup=name)
        above.plot(ds["batch"], line[what], label=name, **look)
        _changes(above, line, what)
    for point in range(ds.sizes["point"]):
        at = ds.isel(point=point)
        colour = looks[str(at["measured_setup"].values)]["color"]
        face = colour if at["measured_decode"] == "decode only" else "white"
        above.plot(at["measured_batch"], at[f"measured_{what}"], "o", ms=7, color=colour, markerfacecolor=face, mew=1.6)
    above.legend(loc=key, labelcolor="linecolor", handlelength=2.4, fontsize=9, labelspacing=0.3)
    _strips(below, ds, looks)
    for ax in (above, below):
        log_axis(ax, "x")
        ax.set_xlim(0.8, float(ds["batch"][-1]))
    log_axis(above, "y")
    above.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    above.tick_params(axis="x", labelbottom=False)
    above.set_ylabel(y)
    below.set_xlabel("batch (concurrent sequences of the whole instance)")
    headline(fig, ds.attrs["title"])
    present = [name for code, name in enumerate(BOUND_BY) if (ds["regime"] == code).any()]
    patches = [Patch(color=BOUND_BY[name], label=BOUND_NAMES[name]) for name in present]
    fig.legend(handles=patches, loc="outside lower center", ncols=len(present))
    return fig


def _line_styles(ds: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Return colour and dashes of every setup; those on the same accelerator are shades of its colour."""
    styles: dict[str, dict[str, Any]] = {}
    seen: list[str] = []
    for name, gpu in zip(ds["setup"].values, ds["gpu"].values, strict=True):
        lighter, dashes = SAME_GPU[seen.count(gpu)]
        colour = tuple(part + lighter * (1 - part) for part in to_rgb(gpu_colour(str(gpu))))
        styles[str(name)] = {"color": colour, "linestyle": dashes}
        seen.append(gpu)
    return styles


def _changes(ax: Axes, line: xr.Dataset, what: str) -> None:
    """Mark where the bottleneck changes with a diamond in the colour of the new one."""
    codes, colours = line["regime"].values, list(BOUND_BY.values())
    for i in np.flatnonzero((codes[1:] != codes[:-1]) & (codes[1:] >= 0) & (codes[:-1] >= 0)) + 1:
        ax.plot(line["batch"][i], line[what][i], "D", ms=6, color=colours[codes[i]], mec="white", zorder=3)


def _strips(ax: Axes, ds: xr.Dataset, looks: dict[str, dict[str, Any]]) -> None:
    """Draw one row per setup, coloured by its bottleneck."""
    codes = np.ma.masked_less(ds["regime"].transpose("setup", "batch").values, 0)
    rows = np.arange(len(looks) + 1) - 0.5
    ax.pcolormesh(corners(ds["batch"].values), rows, codes, cmap=regime_colours(), vmin=-0.5, vmax=len(BOUND_BY) - 0.5)
    ax.hlines(rows, 0.5, 2e5, color="white", linewidth=5)
    ax.set_yticks(range(len(looks)), list(looks))
    ax.tick_params(axis="y", length=0)
    for label, look in zip(ax.get_yticklabels(), looks.values(), strict=True):
        label.set_color(look["color"])
    ax.invert_yaxis()
    ax.grid(visible=False)
