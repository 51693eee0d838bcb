"""Drawing of measured setups: lines over batch with their points, and strips that show what bounds each line."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from .style import BOUND_BY, BOUND_NAMES, corners, gpu_colour, headline, log_axis, new_figure, regime_colours

SAME_GPU = ((0.0, "-"), (0.45, "--"), (0.0, ":"))
"""Setups on the same accelerator: how much lighter, and which dashes."""


def draw_setups(ds: xr.Dataset, what: str, y: str, key: str) -> Figure:
    """One variable of every setup against batch; below it a strip per setup that shows what bounds it."""
    fig, (above, below) = new_figure(2, 1, height=6.4)
    above.get_gridspec().set_height_ratios([2.2, 1])
    looks = _looks(ds)
    for name, look in looks.items():
        line = ds.sel(setup=name)
        above.plot(ds["batch"], line[what], label=name, **look)
        _changes(above, line, what)
    for point in range(ds.sizes["point"]):
        at = ds.isel(point=point)
        colour = looks[str(at["measured_setup"].values)]["color"]
        face = colour if at["measured_decode"] == "alone" else "white"
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
    there = [name for code, name in enumerate(BOUND_BY) if (ds["regime"] == code).any()]
    patches = [Patch(color=BOUND_BY[name], label=BOUND_NAMES[name]) for name in there]
    fig.legend(handles=patches, loc="outside lower center", ncols=len(there))
    return fig


def _looks(ds: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Colour and dashes of every setup; those on the same accelerator are shades of its colour."""
    found: dict[str, dict[str, Any]] = {}
    seen: list[str] = []
    for name, gpu in zip(ds["setup"].values, ds["gpu"].values, strict=True):
        lighter, dashes = SAME_GPU[seen.count(gpu)]
        colour = tuple(part + lighter * (1 - part) for part in to_rgb(gpu_colour(str(gpu))))
        found[str(name)] = {"color": colour, "linestyle": dashes}
        seen.append(gpu)
    return found


def _changes(ax: Axes, line: xr.Dataset, what: str) -> None:
    """A diamond where the bottleneck changes, in the colour of the new one."""
    codes, colours = line["regime"].values, list(BOUND_BY.values())
    for i in np.flatnonzero((codes[1:] != codes[:-1]) & (codes[1:] >= 0) & (codes[:-1] >= 0)) + 1:
        ax.plot(line["batch"][i], line[what][i], "D", ms=6, color=colours[codes[i]], mec="white", zorder=3)


def _strips(ax: Axes, ds: xr.Dataset, looks: dict[str, dict[str, Any]]) -> None:
    """One row per setup, coloured by its bottleneck."""
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
